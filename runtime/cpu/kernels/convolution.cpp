#include "runtime/cpu/kernels/convolution.h"

#include "runtime/common/parallel.h"
#include "runtime/cpu/cpu_level.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

namespace fsdpc::rt {

struct Convolution::Types {
  dnnl_data_type_t elements, result;
  dnnl_data_type_t x(Pass pass) const { return pass == Pass::gradInput ? result : elements; }
  dnnl_data_type_t w(Pass pass) const { return pass == Pass::gradWeight ? result : elements; }
  dnnl_data_type_t y(Pass pass) const { return pass == Pass::forward ? result : elements; }
};

namespace {

/// The plain row-major layout, or with `any` a layout that oneDNN chooses.
dnnl_memory_desc_t memoryOf(dnnl_data_type_t type, int rank, const dnnl_dims_t &dims, bool any) {
  dnnl_memory_desc_t memory;
  if (any) {
    checkLibrary(dnnl_memory_desc_init_by_tag(&memory, rank, dims, type, dnnl_format_tag_any), "a convolution");
    return memory;
  }
  dnnl_dims_t strides;
  std::int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= dims[i];
  }
  checkLibrary(dnnl_memory_desc_init_by_strides(&memory, rank, dims, type, strides), "a convolution");
  return memory;
}

/// x, w, y of the convolution.
struct Memories {
  dnnl_memory_desc_t x, w, y;
};

Memories memoriesOf(const ConvolutionShape &shape, dnnl_data_type_t xType, dnnl_data_type_t wType,
                    dnnl_data_type_t yType, bool any) {
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
  return {memoryOf(xType, 2 + shape.axes, x, any), memoryOf(wType, 2 + shape.axes + grouped, weight, any),
          memoryOf(yType, 2 + shape.axes, y, any)};
}

dnnl_memory_desc_t biasOf(const ConvolutionShape &shape, dnnl_data_type_t type) {
  const dnnl_dims_t dims = {shape.outputChannels};
  return memoryOf(type, 1, dims, false);
}

/// A description, or null if oneDNN has none of these types but a reference, which is slower than copies in f32.
dnnl_primitive_desc_t described(const_dnnl_op_desc_t operation, const_dnnl_primitive_desc_t hint, bool isF32) {
  if (isF32)
    return describePrimitive(operation, hint, "a convolution");
  const dnnl_primitive_desc_t description = tryDescribePrimitive(operation, hint);
  const char *kind = "";
  if (description)
    checkLibrary(dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, &kind), "a convolution");
  if (!description || std::string_view(kind).substr(0, 3) != "ref")
    return description;
  checkLibrary(dnnl_primitive_desc_destroy(description), "a convolution");
  return nullptr;
}

dnnl_primitive_desc_t describe(Convolution::Pass pass, const ConvolutionShape &shape, dnnl_data_type_t elements,
                               dnnl_data_type_t result) {
  const bool isForward = pass == Convolution::Pass::forward, isF32 = elements == dnnl_f32;
  const Memories any = memoriesOf(shape, elements, elements, isForward ? result : elements, true);
  const dnnl_memory_desc_t bias = biasOf(shape, result);
  dnnl_dims_t dilations;
  for (int i = 0; i < 3; ++i)
    dilations[i] = shape.dilations[i] - 1;
  dnnl_convolution_desc_t forward, backward;
  checkLibrary(dnnl_dilated_convolution_forward_desc_init(&forward, dnnl_forward_training, dnnl_convolution_direct,
                                                          &any.x, &any.w, shape.bias ? &bias : nullptr, &any.y,
                                                          shape.strides, dilations, shape.padsBefore, shape.padsAfter),
               "a convolution");
  const dnnl_primitive_desc_t hint = described(&forward, nullptr, isF32);
  if (isForward || !hint)
    return hint;
  if (pass == Convolution::Pass::gradInput) {
    const Memories own = memoriesOf(shape, result, elements, elements, true);
    checkLibrary(dnnl_dilated_convolution_backward_data_desc_init(&backward, dnnl_convolution_direct, &own.x, &own.w,
                                                                  &own.y, shape.strides, dilations, shape.padsBefore,
                                                                  shape.padsAfter),
                 "a convolution's derivative");
  } else {
    const Memories own = memoriesOf(shape, elements, result, elements, true);
    checkLibrary(dnnl_dilated_convolution_backward_weights_desc_init(&backward, dnnl_convolution_direct, &own.x, &own.w,
                                                                     nullptr, &own.y, shape.strides, dilations,
                                                                     shape.padsBefore, shape.padsAfter),
                 "a convolution's derivative");
  }
  const dnnl_primitive_desc_t description = described(&backward, hint, isF32);
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
  threads.threads = c.threads;
  const Types native = {dnnl_bf16, shape.result == DType::f32 ? dnnl_f32 : dnnl_bf16};
  const Memories counts = memoriesOf(shape, dnnl_f32, dnnl_f32, dnnl_f32, false);
  const auto elements = [](const dnnl_memory_desc_t &memory) {
    return static_cast<std::int64_t>(dnnl_memory_desc_get_size(&memory) / sizeof(float));
  };
  const std::int64_t outputs = elements(pass == Pass::forward     ? counts.y
                                        : pass == Pass::gradInput ? counts.x
                                                                  : counts.w);
  outputBytes = outputs * byteSize(shape.result);
  if (shape.elements == DType::bf16 && multipliesBf16(c) && createAs(c, pass, shape, native, workspaceBytes))
    return;
  if (shape.elements != DType::f32)
    promotion = PromotedProduct({.a = elements(pass == Pass::gradInput ? counts.y : counts.x),
                                 .b = elements(pass == Pass::gradWeight ? counts.y : counts.w),
                                 .bias = shape.bias ? shape.outputChannels : 0,
                                 .out = outputs,
                                 .elements = shape.elements,
                                 .result = shape.result});
  if (promotion.bytes() > workspaceBytes)
    failForScratch("a convolution", promotion.bytes(), workspaceBytes);
  createAs(c, pass, shape, {dnnl_f32, dnnl_f32}, workspaceBytes - promotion.bytes());
}

/// Returns whether oneDNN has such a primitive, or none is needed because a tensor is empty.
bool Convolution::createAs(const Context &c, Pass pass, const ConvolutionShape &shape, const Types &types,
                           std::int64_t workspaceBytes) {
  const Memories plainMemories = memoriesOf(shape, types.x(pass), types.w(pass), types.y(pass), false);
  const dnnl_memory_desc_t plain[3] = {pass == Pass::gradInput ? plainMemories.y : plainMemories.x,
                                       pass == Pass::gradWeight ? plainMemories.y : plainMemories.w,
                                       pass == Pass::forward     ? plainMemories.y
                                       : pass == Pass::gradInput ? plainMemories.x
                                                                 : plainMemories.w};
  // Checked separately, because the product of three sizes may be a multiple of 2^64.
  const auto isEmpty = [](const dnnl_memory_desc_t &memory) { return dnnl_memory_desc_get_size(&memory) == 0; };
  if (std::any_of(std::begin(plain), std::end(plain), isEmpty))
    return true;
  for (int count = c.threads;; --count) {
    setLibraryThreads(count);
    const dnnl_primitive_desc_t description = describe(pass, shape, types.elements, types.result);
    if (!description) {
      setLibraryThreads(c.threads);
      return false;
    }
    dnnl_memory_desc_t chosen[3];
    if (arrange(c, count, description, pass, plain, workspaceBytes, chosen)) {
      const dnnl_memory_desc_t bias = biasOf(shape, types.result);
      const Role(&role)[3] = roles[static_cast<int>(pass)];
      if (shape.bias)
        primitive.adopt(c, description, count,
                        {{role[0].argument, &chosen[0]},
                         {role[1].argument, &chosen[1]},
                         {DNNL_ARG_BIAS, &bias},
                         {role[2].argument, &chosen[2]}});
      else
        primitive.adopt(
            c, description, count,
            {{role[0].argument, &chosen[0]}, {role[1].argument, &chosen[1]}, {role[2].argument, &chosen[2]}});
      break;
    }
    checkLibrary(dnnl_primitive_desc_destroy(description), "a convolution");
    if (count == 1)
      failForScratch("a convolution", neededBytes, workspaceBytes);
  }
  setLibraryThreads(c.threads);
  return true;
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

void Convolution::run(const void *a, const void *b, const void *bias, void *out, Workspace workspace) const {
  if (primitive.exists())
    promotion.run(threads, {a, b, bias, out}, workspace,
                  [this](const ProductTensors &given, Workspace rest) { convolve(given, rest); });
  else
    std::memset(out, 0, static_cast<std::size_t>(outputBytes));
}

void Convolution::convolve(const ProductTensors &tensorsGiven, Workspace workspace) const {
  const void *given[2] = {tensorsGiven.a, tensorsGiven.b};
  for (int i = 0; i < 2; ++i)
    if (tensors[i].reorder.exists()) {
      std::byte *const arranged = workspace.data + tensors[i].offsetBytes;
      tensors[i].reorder.run({given[i], arranged}, {});
      given[i] = arranged;
    }
  void *const out = tensorsGiven.out;
  void *const result = tensors[2].reorder.exists() ? workspace.data + tensors[2].offsetBytes : out;
  const Workspace scratchpad = {workspace.data + scratchOffsetBytes, workspace.bytes - scratchOffsetBytes};
  if (tensorsGiven.bias)
    primitive.run({given[0], given[1], tensorsGiven.bias, result}, scratchpad);
  else
    primitive.run({given[0], given[1], result}, scratchpad);
  if (result != out)
    tensors[2].reorder.run({result, out}, {});
}

void Convolution::operator()(const void *a, const void *b, void *out, Workspace workspace) const {
  run(a, b, nullptr, out, workspace);
}
void Convolution::operator()(const void *a, const void *b, const void *bias, void *out, Workspace workspace) const {
  run(a, b, bias, out, workspace);
}

} // namespace fsdpc::rt
