#include "runtime/cpu/kernels/convolution.h"

#include "runtime/common/parallel.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace fsdpc::rt {

namespace {

/// The plain row-major layout, or with `any` a layout that oneDNN chooses.
dnnl_memory_desc_t memoryOf(int rank, const dnnl_dims_t &dims, bool any) {
  dnnl_memory_desc_t memory;
  if (any) {
    checkLibrary(dnnl_memory_desc_init_by_tag(&memory, rank, dims, dnnl_f32, dnnl_format_tag_any), "a convolution");
    return memory;
  }
  dnnl_dims_t strides;
  std::int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= dims[i];
  }
  checkLibrary(dnnl_memory_desc_init_by_strides(&memory, rank, dims, dnnl_f32, strides), "a convolution");
  return memory;
}

/// x, w, y of the convolution.
struct Memories {
  dnnl_memory_desc_t x, w, y;
};

Memories memoriesOf(const ConvolutionShape &shape, bool any) {
  dnnl_dims_t x = {shape.batch, shape.inputChannels}, y = {shape.batch, shape.outputChannels};
  dnnl_dims_t w = {shape.groups, shape.outputChannels / shape.groups, shape.inputChannels / shape.groups};
  for (int i = 0; i < shape.axes; ++i) {
    x[2 + i] = shape.input[i];
    y[2 + i] = shape.output[i];
    w[3 + i] = shape.kernel[i];
  }
  // Without groups, a group dim would prevent oneDNN from using its faster kernels.
  const int grouped = shape.groups > 1 ? 1 : 0;
  dnnl_dims_t weight;
  std::memcpy(weight, w + 1 - grouped, sizeof(w) - (1 - grouped) * sizeof(w[0]));
  return {memoryOf(2 + shape.axes, x, any), memoryOf(2 + shape.axes + grouped, weight, any),
          memoryOf(2 + shape.axes, y, any)};
}

dnnl_memory_desc_t biasOf(const ConvolutionShape &shape) {
  const dnnl_dims_t dims = {shape.outputChannels};
  return memoryOf(1, dims, false);
}

dnnl_primitive_desc_t describe(Convolution::Pass pass, const ConvolutionShape &shape) {
  const Memories any = memoriesOf(shape, true);
  const dnnl_memory_desc_t bias = biasOf(shape);
  dnnl_dims_t dilations;
  for (int i = 0; i < 3; ++i)
    dilations[i] = shape.dilations[i] - 1;
  dnnl_convolution_desc_t forward, backward;
  checkLibrary(dnnl_dilated_convolution_forward_desc_init(&forward, dnnl_forward_training, dnnl_convolution_direct,
                                                          &any.x, &any.w, shape.bias ? &bias : nullptr, &any.y,
                                                          shape.strides, dilations, shape.padsBefore, shape.padsAfter),
               "a convolution");
  const dnnl_primitive_desc_t hint = describePrimitive(&forward, nullptr, "a convolution");
  if (pass == Convolution::Pass::forward)
    return hint;
  if (pass == Convolution::Pass::gradInput)
    checkLibrary(dnnl_dilated_convolution_backward_data_desc_init(&backward, dnnl_convolution_direct, &any.x, &any.w,
                                                                  &any.y, shape.strides, dilations, shape.padsBefore,
                                                                  shape.padsAfter),
                 "a convolution's derivative");
  else
    checkLibrary(dnnl_dilated_convolution_backward_weights_desc_init(&backward, dnnl_convolution_direct, &any.x, &any.w,
                                                                     nullptr, &any.y, shape.strides, dilations,
                                                                     shape.padsBefore, shape.padsAfter),
                 "a convolution's derivative");
  const dnnl_primitive_desc_t description = describePrimitive(&backward, hint, "a convolution's derivative");
  checkLibrary(dnnl_primitive_desc_destroy(hint), "a convolution");
  return description;
}

/// The oneDNN roles of the three tensors of a pass: a, b, out.
struct Role {
  dnnl_query_t query;
  int argument;
};
constexpr Role roles[3][3] = {
    {{dnnl_query_src_md, DNNL_ARG_SRC}, {dnnl_query_weights_md, DNNL_ARG_WEIGHTS}, {dnnl_query_dst_md, DNNL_ARG_DST}},
    {{dnnl_query_diff_dst_md, DNNL_ARG_DIFF_DST},
     {dnnl_query_weights_md, DNNL_ARG_WEIGHTS},
     {dnnl_query_diff_src_md, DNNL_ARG_DIFF_SRC}},
    {{dnnl_query_src_md, DNNL_ARG_SRC},
     {dnnl_query_diff_dst_md, DNNL_ARG_DIFF_DST},
     {dnnl_query_diff_weights_md, DNNL_ARG_DIFF_WEIGHTS}}};

std::int64_t roundUp64(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

} // namespace

void Convolution::create(const Context &c, Pass pass, const ConvolutionShape &shape, std::int64_t workspaceBytes) {
  const Memories plainMemories = memoriesOf(shape, false);
  const dnnl_memory_desc_t plain[3] = {pass == Pass::gradInput ? plainMemories.y : plainMemories.x,
                                       pass == Pass::gradWeight ? plainMemories.y : plainMemories.w,
                                       pass == Pass::forward     ? plainMemories.y
                                       : pass == Pass::gradInput ? plainMemories.x
                                                                 : plainMemories.w};
  outputBytes = static_cast<std::int64_t>(dnnl_memory_desc_get_size(&plain[2]));
  // Checked separately, because the product of three sizes may be a multiple of 2^64.
  const auto isEmpty = [](const dnnl_memory_desc_t &memory) { return dnnl_memory_desc_get_size(&memory) == 0; };
  if (std::any_of(std::begin(plain), std::end(plain), isEmpty))
    return;
  for (int threads = c.threads;; --threads) {
    setLibraryThreads(threads);
    const dnnl_primitive_desc_t description = describe(pass, shape);
    dnnl_memory_desc_t chosen[3];
    if (arrange(c, threads, description, pass, plain, workspaceBytes, chosen)) {
      const dnnl_memory_desc_t bias = biasOf(shape);
      const Role(&role)[3] = roles[static_cast<int>(pass)];
      if (shape.bias)
        primitive.adopt(c, description, threads,
                        {{role[0].argument, &chosen[0]},
                         {role[1].argument, &chosen[1]},
                         {DNNL_ARG_BIAS, &bias},
                         {role[2].argument, &chosen[2]}});
      else
        primitive.adopt(
            c, description, threads,
            {{role[0].argument, &chosen[0]}, {role[1].argument, &chosen[1]}, {role[2].argument, &chosen[2]}});
      break;
    }
    checkLibrary(dnnl_primitive_desc_destroy(description), "a convolution");
    if (threads == 1)
      failForScratch("a convolution", neededBytes, workspaceBytes);
  }
  setLibraryThreads(c.threads);
}

bool Convolution::arrange(const Context &c, int threads, dnnl_primitive_desc_t description, Pass pass,
                          const dnnl_memory_desc_t *plain, std::int64_t workspaceBytes, dnnl_memory_desc_t *chosen) {
  scratchOffsetBytes = 0;
  for (int i = 0; i < 3; ++i) {
    chosen[i] = *dnnl_primitive_desc_query_md(description, roles[static_cast<int>(pass)][i].query, 0);
    if (dnnl_memory_desc_equal(&chosen[i], &plain[i]))
      continue;
    tensors[i].offsetBytes = scratchOffsetBytes;
    scratchOffsetBytes += roundUp64(static_cast<std::int64_t>(dnnl_memory_desc_get_size(&chosen[i])));
  }
  neededBytes = scratchOffsetBytes + scratchBytesOf(description);
  if (neededBytes > workspaceBytes)
    return false;
  for (int i = 0; i < 3; ++i)
    if (!dnnl_memory_desc_equal(&chosen[i], &plain[i]))
      tensors[i].reorder.createReorder(c, threads, i < 2 ? plain[i] : chosen[i], i < 2 ? chosen[i] : plain[i]);
  return true;
}

void Convolution::run(const float *a, const float *b, const float *bias, float *out, Workspace workspace) const {
  if (!primitive.exists()) {
    std::memset(out, 0, static_cast<std::size_t>(outputBytes));
    return;
  }
  const float *given[2] = {a, b};
  for (int i = 0; i < 2; ++i)
    if (tensors[i].reorder.exists()) {
      float *const arranged = reinterpret_cast<float *>(workspace.data + tensors[i].offsetBytes);
      tensors[i].reorder.run({given[i], arranged}, {});
      given[i] = arranged;
    }
  float *const result =
      tensors[2].reorder.exists() ? reinterpret_cast<float *>(workspace.data + tensors[2].offsetBytes) : out;
  const Workspace scratchpad = {workspace.data + scratchOffsetBytes, workspace.bytes - scratchOffsetBytes};
  if (bias)
    primitive.run({given[0], given[1], bias, result}, scratchpad);
  else
    primitive.run({given[0], given[1], result}, scratchpad);
  if (result != out)
    tensors[2].reorder.run({result, out}, {});
}

void Convolution::operator()(const float *a, const float *b, float *out, Workspace workspace) const {
  run(a, b, nullptr, out, workspace);
}
void Convolution::operator()(const float *a, const float *b, const float *bias, float *out, Workspace workspace) const {
  run(a, b, bias, out, workspace);
}

} // namespace fsdpc::rt
