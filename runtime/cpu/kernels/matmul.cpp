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
  // Without a batch the 2-D form: it is the one with the fastest kernels.
  if (batch == 1)
    checkLibrary(dnnl_memory_desc_init_by_strides(&memory, 2, dims + 1, dnnl_f32, strides + 1), "a matrix");
  else
    checkLibrary(dnnl_memory_desc_init_by_strides(&memory, 3, dims, dnnl_f32, strides), "matrices");
  return memory;
}

/// One batch of a 3-D product.
static void asBatch(dnnl_memory_desc_t &memory) {
  const dnnl_dims_t dims = {1, memory.dims[0], memory.dims[1]};
  const dnnl_dims_t strides = {memory.dims[0] * memory.dims[1], memory.format_desc.blocking.strides[0],
                               memory.format_desc.blocking.strides[1]};
  checkLibrary(dnnl_memory_desc_init_by_strides(&memory, 3, dims, dnnl_f32, strides), "a matrix");
}

/// The library writes the code of a product when the first of its kind runs: here, not in a step. What kind it is shows
/// in the corner of its matrices, too.
static void warmUp(const MatmulShape &shape) {
  constexpr std::int64_t most = 64;
  const std::int64_t m = std::min(shape.m, most), n = std::min(shape.n, most), k = std::min(shape.k, most);
  const std::vector<float> zeros(most * most);
  std::vector<float> out(most * most);
  checkLibrary(dnnl_sgemm(shape.transposeA ? 'T' : 'N', shape.transposeB ? 'T' : 'N', m, n, k, 1, zeros.data(),
                          shape.transposeA ? m : k, zeros.data(), shape.transposeB ? k : n, 0, out.data(), n),
               "the corner of a matrix product");
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
    checkLibrary(dnnl_matmul_desc_init(&operation, &a, &b, nullptr, &out), "a matrix product");
    primitive.create(c, &operation, {{DNNL_ARG_SRC, &a}, {DNNL_ARG_WEIGHTS, &b}, {DNNL_ARG_DST, &out}}, workspaceBytes,
                     "a matrix product");
    return;
  }
  dnnl_memory_desc_t bias = matrices(1, 1, shape.n, false);
  if (shape.batch > 1)
    asBatch(bias);
  checkLibrary(dnnl_matmul_desc_init(&operation, &a, &b, &bias, &out), "a matrix product with a bias");
  primitive.create(c, &operation,
                   {{DNNL_ARG_SRC, &a}, {DNNL_ARG_WEIGHTS, &b}, {DNNL_ARG_BIAS, &bias}, {DNNL_ARG_DST, &out}},
                   workspaceBytes, "a matrix product with a bias");
}

namespace {

struct NotedProduct {
  const Matmul *product;
  const float *a, *b, *bias;
  float *out;
  Workspace workspace;
};

// Null unless a benchmark asked for it: one test per product is all that a normal run pays.
std::vector<NotedProduct> *noted = nullptr;

std::vector<NotedProduct> &notedProducts() {
  static std::vector<NotedProduct> products;
  return products;
}

} // namespace

void MatmulLog::start() {
  notedProducts().clear();
  noted = &notedProducts();
}

void MatmulLog::stop() { noted = nullptr; }

double MatmulLog::replayMicroseconds() {
  const auto begin = std::chrono::steady_clock::now();
  for (const NotedProduct &call : notedProducts())
    call.product->run(call.a, call.b, call.bias, call.out, call.workspace);
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

void Matmul::run(const float *a, const float *b, const float *bias, float *out, Workspace workspace) const {
  if (noted)
    noted->push_back({this, a, b, bias, out, workspace});
  if (!primitive.exists())
    std::memset(out, 0, static_cast<std::size_t>(shape.batch * shape.m * shape.n) * sizeof(float));
  else if (bias)
    primitive.run({a, b, bias, out}, workspace);
  else
    primitive.run({a, b, out}, workspace);
}

} // namespace fsdpc::rt
