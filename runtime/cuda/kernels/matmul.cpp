#include "runtime/cuda/kernels/matmul.h"

#include "runtime/cuda/device.h"

#include <cublasLt.h>

#include <string>

namespace fsdpc::rt {
namespace {

void checkBlas(cublasStatus_t status, const char *what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Failure(ExitCode::internal, std::string(what) + ": " + cublasLtGetStatusString(status));
}

cublasLtHandle_t library() {
  // One per thread that drives a device, made in start().
  static thread_local cublasLtHandle_t handle = [] {
    cublasLtHandle_t made = nullptr;
    checkBlas(cublasLtCreate(&made), "cublasLtCreate");
    return made;
  }();
  return handle;
}

/// Row-major [batch, rows, columns], as cuBLASLt's attributes say it.
cublasLtMatrixLayout_t layoutOf(cudaDataType_t type, std::int64_t batch, std::int64_t rows, std::int64_t columns,
                                bool repeated) {
  cublasLtMatrixLayout_t layout = nullptr;
  checkBlas(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(rows),
                                       static_cast<std::uint64_t>(columns), columns),
            "cublasLtMatrixLayoutCreate");
  const cublasLtOrder_t order = CUBLASLT_ORDER_ROW;
  const auto count = static_cast<std::int32_t>(batch);
  const std::int64_t stride = repeated ? 0 : rows * columns;
  const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, const void *value, std::size_t bytes) {
    checkBlas(cublasLtMatrixLayoutSetAttribute(layout, attribute, value, bytes), "cublasLtMatrixLayoutSetAttribute");
  };
  set(CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order);
  set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
  set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
  return layout;
}

} // namespace

struct Matmul::Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, out = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  cudaStream_t stream = nullptr;
  std::int64_t outBytes = 0;
  bool isZero = false; ///< a sum over nothing

  void describe(const MatmulShape &shape);
  void choose(std::int64_t workspaceBytes);
  ~Plan() {
    cublasLtMatmulDescDestroy(operation);
    for (cublasLtMatrixLayout_t layout : {a, b, out})
      cublasLtMatrixLayoutDestroy(layout);
  }
};

void Matmul::Plan::describe(const MatmulShape &shape) {
  checkBlas(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  const auto transpose = [&](cublasLtMatmulDescAttributes_t attribute, bool transposed) {
    const cublasOperation_t value = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    checkBlas(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value),
              "cublasLtMatmulDescSetAttribute");
  };
  transpose(CUBLASLT_MATMUL_DESC_TRANSA, shape.transposeA);
  transpose(CUBLASLT_MATMUL_DESC_TRANSB, shape.transposeB);
  const std::int64_t m = shape.m, n = shape.n, k = shape.k;
  a = layoutOf(CUDA_R_32F, shape.batch, shape.transposeA ? k : m, shape.transposeA ? m : k, shape.oneA);
  b = layoutOf(CUDA_R_32F, shape.batch, shape.transposeB ? n : k, shape.transposeB ? k : n, shape.oneB);
  out = layoutOf(CUDA_R_32F, shape.batch, m, n, false);
}

/// The heuristic's first candidate within the scratch that is planned.
void Matmul::Plan::choose(std::int64_t workspaceBytes) {
  cublasLtMatmulPreference_t preference = nullptr;
  checkBlas(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const auto most = static_cast<std::uint64_t>(workspaceBytes);
  checkBlas(
      cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most),
      "cublasLtMatmulPreferenceSetAttribute");
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(library(), operation, a, b, out, out, preference, 1, &found, &count);
  cublasLtMatmulPreferenceDestroy(preference);
  checkBlas(status, "cublasLtMatmulAlgoGetHeuristic");
  if (count == 0)
    throw Failure(ExitCode::internal, "cuBLASLt has no algorithm for a product of the program");
  algorithm = found.algo;
}

Matmul::Matmul() = default;
Matmul::~Matmul() = default;

void Matmul::create(const Context &c, const MatmulShape &shape, std::int64_t workspaceBytes) {
  plan = std::make_unique<Plan>();
  plan->stream = c.device->compute;
  plan->outBytes = shape.batch * shape.m * shape.n * static_cast<std::int64_t>(sizeof(float));
  plan->isZero = shape.k == 0;
  if (plan->outBytes == 0 || plan->isZero)
    return;
  plan->describe(shape);
  plan->choose(workspaceBytes);
}

void Matmul::operator()(const float *a, const float *b, float *out, Workspace workspace) const {
  if (plan->outBytes == 0)
    return;
  if (plan->isZero)
    return checkCuda(cudaMemsetAsync(out, 0, static_cast<std::size_t>(plan->outBytes), plan->stream),
                     "cudaMemsetAsync");
  const float one = 1, zero = 0;
  checkBlas(cublasLtMatmul(library(), plan->operation, &one, a, plan->a, b, plan->b, &zero, out, plan->out, out,
                           plan->out, &plan->algorithm, workspace.data, static_cast<std::size_t>(workspace.bytes),
                           plan->stream),
            "cublasLtMatmul");
}

} // namespace fsdpc::rt
