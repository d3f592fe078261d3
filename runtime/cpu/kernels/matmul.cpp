#include "runtime/cpu/kernels/matmul.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

namespace fsdpc::rt {

/// [batch, rows, columns] stored row-major, or [batch, columns, rows] if transposed.
static dnnl_memory_desc_t matrices(std::int64_t batch, std::int64_t rows, std::int64_t columns, bool transposed) {
  const dnnl_dims_t dims = {batch, rows, columns};
  const dnnl_dims_t strides = {rows * columns, transposed ? 1 : columns, transposed ? rows : 1};
  dnnl_memory_desc_t memory;
  // Without a batch, uses the 2-D form, which has the fastest kernels.
  if (batch == 1)
    checkLibrary(dnnl_memory_desc_init_by_strides(&memory, 2, dims + 1, dnnl_f32, strides + 1), "a matrix");
  else
    checkLibrary(dnnl_memory_desc_init_by_strides(&memory, 3, dims, dnnl_f32, strides), "matrices");
  return memory;
}

/// Turns a 2-D matrix into a 3-D tensor with one batch.
static void asBatch(dnnl_memory_desc_t &memory) {
  const dnnl_dims_t dims = {1, memory.dims[0], memory.dims[1]};
  const dnnl_dims_t strides = {memory.dims[0] * memory.dims[1], memory.format_desc.blocking.strides[0],
                               memory.format_desc.blocking.strides[1]};
  checkLibrary(dnnl_memory_desc_init_by_strides(&memory, 3, dims, dnnl_f32, strides), "a matrix");
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
  if (shape.batch * shape.m * shape.n * shape.k == 0)
    return;
  warmUp(shape);
  dnnl_memory_desc_t a = matrices(shape.oneA ? 1 : shape.batch, shape.m, shape.k, shape.transposeA);
  dnnl_memory_desc_t b = matrices(shape.oneB ? 1 : shape.batch, shape.k, shape.n, shape.transposeB);
  const dnnl_memory_desc_t out = matrices(shape.batch, shape.m, shape.n, false);
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
  dnnl_memory_desc_t bias = matrices(1, 1, shape.n, false);
  if (shape.batch > 1)
    asBatch(bias);
  checkLibrary(dnnl_matmul_desc_init(&operation, &a, &b, &bias, &out), "a matmul with a bias");
  primitive.create(c, &operation,
                   {{DNNL_ARG_SRC, &a}, {DNNL_ARG_WEIGHTS, &b}, {DNNL_ARG_BIAS, &bias}, {DNNL_ARG_DST, &out}},
                   workspaceBytes, "a matmul with a bias");
}

namespace {

struct RecordedMatmul {
  const Matmul *product;
  const float *a, *b, *bias;
  float *out;
  Workspace workspace;
};

// Null unless a benchmark records matmuls. A normal run pays one test per matmul.
std::vector<RecordedMatmul> *noted = nullptr;

std::vector<RecordedMatmul> &recordedMatmuls() {
  static std::vector<RecordedMatmul> products;
  return products;
}

} // namespace

void MatmulLog::start() {
  recordedMatmuls().clear();
  noted = &recordedMatmuls();
}

void MatmulLog::stop() { noted = nullptr; }

double MatmulLog::replayMicroseconds() {
  const auto begin = std::chrono::steady_clock::now();
  for (const RecordedMatmul &call : recordedMatmuls())
    call.product->run(call.a, call.b, call.bias, call.out, call.workspace);
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

void Matmul::run(const float *a, const float *b, const float *bias, float *out, Workspace workspace) const {
  if (noted)
    noted->push_back({this, a, b, bias, out, workspace});
  if (!primitive.exists() && shape.accumulate)
    return;
  if (!primitive.exists())
    std::memset(out, 0, static_cast<std::size_t>(shape.batch * shape.m * shape.n) * sizeof(float));
  else if (bias)
    primitive.run({a, b, bias, out}, workspace);
  else
    primitive.run({a, b, out}, workspace);
}

} // namespace fsdpc::rt
