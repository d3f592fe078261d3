#include "runtime/cpu/kernels/matmul.h"

#include "runtime/common/parallel.h"
#include "runtime/cpu/cpu_level.h"
#include "runtime/cpu/matmul_log.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace fsdpc::rt {

using scratch_sizes::panelBytes;
using scratch_sizes::panelOfMatmul;
using scratch_sizes::panelStride;

/// [batch, rows, columns], the rows `stride` elements apart, or [batch, columns, rows] without gaps if transposed.
static dnnl_memory_desc_t matrices(dnnl_data_type_t type, std::int64_t batch, std::int64_t rows, std::int64_t columns,
                                   std::int64_t stride, bool transposed = false) {
  const dnnl_dims_t dims = {batch, rows, columns};
  const dnnl_dims_t strides = {rows * columns, transposed ? 1 : stride, transposed ? rows : 1};
  dnnl_memory_desc_t memory;
  // Without a batch, uses the 2-D form, which has the fastest kernels.
  if (batch == 1)
    checkLibrary(dnnl_memory_desc_init_by_strides(&memory, 2, dims + 1, type, strides + 1), "a matrix");
  else
    checkLibrary(dnnl_memory_desc_init_by_strides(&memory, 3, dims, type, strides), "matrices");
  return memory;
}

/// Turns a 2-D matrix into a 3-D tensor with one batch.
static void asBatch(dnnl_memory_desc_t &memory) {
  const dnnl_dims_t dims = {1, memory.dims[0], memory.dims[1]};
  const dnnl_dims_t strides = {memory.dims[0] * memory.dims[1], memory.format_desc.blocking.strides[0],
                               memory.format_desc.blocking.strides[1]};
  checkLibrary(dnnl_memory_desc_init_by_strides(&memory, 3, dims, memory.data_type, strides), "a matrix");
}

/// The library generates the code of a matmul when the first of its kind runs. This triggers it here rather than in a
/// step. A corner of the matrices is enough to select the kind.
static void warmUp(const MatmulShape &shape) {
  constexpr std::int64_t most = 64;
  const std::int64_t m = std::min(shape.m, most), n = std::min(shape.n, most), k = std::min(shape.k, most);
  const std::vector<float> zeros(most * most);
  std::vector<float> out(most * most);
  checkLibrary(dnnl_sgemm(shape.transposeA ? 'T' : 'N', shape.transposeB ? 'T' : 'N', m, n, k, 1, zeros.data(),
                          shape.transposeA ? m : k, zeros.data(), shape.transposeB ? k : n, 0, out.data(), n),
               "a block of a matmul");
}

void Matmul::create(const Context &c, const MatmulShape &wanted, std::int64_t workspaceBytes) {
  shape = wanted;
  threads.threads = c.threads;
  if (shape.batch * shape.m * shape.n * shape.k == 0)
    return;
  if (shape.elements == DType::bf16 && multipliesBf16(c))
    return describe(dnnl_bf16, shape.result == DType::bf16 ? dnnl_bf16 : dnnl_f32, c, workspaceBytes);
  warmUp(shape);
  if (shape.elements != DType::f32)
    promotion = PromotedProduct({.a = (shape.oneA ? 1 : shape.batch) * shape.m * shape.k,
                                 .b = (shape.oneB ? 1 : shape.batch) * shape.k * shape.n,
                                 .bias = shape.bias ? shape.n : 0,
                                 .out = shape.batch * shape.m * shape.n,
                                 .elements = shape.elements,
                                 .result = shape.result});
  panelColumns = panelOfMatmul(shape.batch, shape.m, shape.n, shape.k, shape.transposeB);
  ownBytes = promotion.bytes() + panelBytes(panelColumns, shape.k);
  if (ownBytes > workspaceBytes)
    failForScratch("a matmul", ownBytes, workspaceBytes);
  describe(dnnl_f32, dnnl_f32, c, workspaceBytes - ownBytes);
}

void Matmul::describe(dnnl_data_type_t elements, dnnl_data_type_t result, const Context &c,
                      std::int64_t workspaceBytes) {
  const std::int64_t columns = panelColumns > 0 ? panelColumns : shape.n;
  dnnl_memory_desc_t a = matrices(elements, shape.oneA ? 1 : shape.batch, shape.m, shape.k, shape.k, shape.transposeA);
  dnnl_memory_desc_t b = matrices(elements, shape.oneB ? 1 : shape.batch, shape.k, columns,
                                  panelColumns > 0 ? panelStride(columns) : columns, shape.transposeB);
  const dnnl_memory_desc_t out = matrices(result, shape.batch, shape.m, columns, shape.n);
  if (shape.batch > 1 && shape.oneA)
    asBatch(a);
  if (shape.batch > 1 && shape.oneB)
    asBatch(b);
  dnnl_matmul_desc_t operation;
  if (!shape.bias) {
    checkLibrary(dnnl_matmul_desc_init(&operation, &a, &b, nullptr, &out), "a matmul");
    primitive.create(c, &operation, {{DNNL_ARG_SRC, &a}, {DNNL_ARG_WEIGHTS, &b}, {DNNL_ARG_DST, &out}}, workspaceBytes,
                     "a matmul", shape.accumulate);
    return;
  }
  dnnl_memory_desc_t bias = matrices(result, 1, 1, columns, columns);
  if (shape.batch > 1)
    asBatch(bias);
  checkLibrary(dnnl_matmul_desc_init(&operation, &a, &b, &bias, &out), "a matmul with a bias");
  primitive.create(c, &operation,
                   {{DNNL_ARG_SRC, &a}, {DNNL_ARG_WEIGHTS, &b}, {DNNL_ARG_BIAS, &bias}, {DNNL_ARG_DST, &out}},
                   workspaceBytes, "a matmul with a bias");
}

void Matmul::run(const void *a, const void *b, const void *bias, void *out, Workspace workspace) const {
  matmulLog().note(
      {this,
       [](const RecordedMatmul &call) {
         static_cast<const Matmul *>(call.product)->run(call.a, call.b, call.bias, call.out, call.workspace);
       },
       a, b, bias, out, workspace});
  if (primitive.exists())
    return promotion.run(threads, {a, b, bias, out}, workspace, [this](const ProductTensors &tensors, Workspace rest) {
      panelColumns > 0 ? multiplyPanels(tensors, rest) : multiply(tensors, rest);
    });
  if (!shape.accumulate)
    std::memset(out, 0, static_cast<std::size_t>(shape.batch * shape.m * shape.n * byteSize(shape.result)));
}

void Matmul::multiply(const ProductTensors &tensors, Workspace workspace) const {
  if (tensors.bias)
    primitive.run({tensors.a, tensors.b, tensors.bias, tensors.out}, workspace);
  else
    primitive.run({tensors.a, tensors.b, tensors.out}, workspace);
}

void Matmul::multiplyPanels(const ProductTensors &tensors, Workspace workspace) const {
  constexpr std::int64_t rowsOfATask = 64;
  const auto *const b = static_cast<const float *>(tensors.b), *const bias = static_cast<const float *>(tensors.bias);
  float *const panel = reinterpret_cast<float *>(workspace.data), *const out = static_cast<float *>(tensors.out);
  const std::int64_t used = panelBytes(panelColumns, shape.k);
  const Workspace rest = {workspace.data + used, workspace.bytes - used};
  for (std::int64_t first = 0; first < shape.n; first += panelColumns) {
    parallelFor(threads, shape.k, rowsOfATask, [=, this](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        std::memcpy(panel + row * panelStride(panelColumns), b + row * shape.n + first,
                    static_cast<std::size_t>(panelColumns) * sizeof(float));
    });
    multiply({tensors.a, panel, bias ? bias + first : nullptr, out + first}, rest);
  }
}

} // namespace fsdpc::rt
