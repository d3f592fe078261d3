#include "runtime/cuda/kernels/matmul.h"

#include "runtime/cuda/device.h"
#include "runtime/cuda/tuning.h"

#include <cublasLt.h>

#include <algorithm>
#include <cstring>
#include <optional>
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

/// A matmul as described to cuBLASLt.
struct Description {
  MatmulShape shape;
  DType a = DType::f32, b = DType::f32, out = DType::f32;
  bool allowsTf32 = false;
  std::int64_t workspaceBytes = 0; ///< the maximum for an algorithm
};

cudaDataType_t typeOf(DType dtype) {
  switch (dtype) {
  case DType::f32: return CUDA_R_32F;
  case DType::bf16: return CUDA_R_16BF;
  case DType::f16: return CUDA_R_16F;
  default: throw Failure(ExitCode::internal, "a matmul of a type that cuBLASLt does not support");
  }
}

/// Accumulates in f32 whatever the operand types are.
cublasComputeType_t computeTypeOf(const Description &d) {
  const bool isF32 = d.a == DType::f32 && d.b == DType::f32;
  return isF32 && d.allowsTf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

std::int64_t elementsOf(const Description &d, std::int64_t rows, std::int64_t columns, bool repeated) {
  return (repeated ? 1 : d.shape.batch) * rows * columns;
}

/// Alignment of most tensors of a program: what kernels load in one instruction. A view may begin anywhere.
constexpr std::uint32_t usualAlignmentBytes = 16;

/// Row-major [batch, rows, columns] as cuBLASLt sees it. cuBLASLt is column-major, so each matrix is its transpose.
cublasLtMatrixLayout_t layoutOf(cudaDataType_t type, std::int64_t batch, std::int64_t rows, std::int64_t columns,
                                bool repeated) {
  cublasLtMatrixLayout_t layout = nullptr;
  checkBlas(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(columns),
                                       static_cast<std::uint64_t>(rows), columns),
            "cublasLtMatrixLayoutCreate");
  const auto count = static_cast<std::int32_t>(batch);
  const std::int64_t stride = repeated ? 0 : rows * columns;
  const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, const void *value, std::size_t bytes) {
    checkBlas(cublasLtMatrixLayoutSetAttribute(layout, attribute, value, bytes), "cublasLtMatrixLayoutSetAttribute");
  };
  set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
  set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
  return layout;
}

/// Device memory for the duration of a measurement.
class Scratch {
public:
  explicit Scratch(std::int64_t bytes) {
    if (bytes > 0)
      checkCuda(cudaMalloc(&data_, static_cast<std::size_t>(bytes)), "cudaMalloc of what --tune measures on");
    if (bytes > 0)
      checkCuda(cudaMemset(data_, 0, static_cast<std::size_t>(bytes)), "cudaMemset");
  }
  ~Scratch() { cudaFree(data_); }
  Scratch(const Scratch &) = delete;
  Scratch &operator=(const Scratch &) = delete;
  void *data() const { return data_; }

private:
  void *data_ = nullptr;
};

class Stopwatch {
public:
  Stopwatch() {
    for (cudaEvent_t *event : {&begin, &end})
      checkCuda(cudaEventCreateWithFlags(event, cudaEventDefault), "cudaEventCreate");
  }
  ~Stopwatch() {
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }
  Stopwatch(const Stopwatch &) = delete;
  Stopwatch &operator=(const Stopwatch &) = delete;

  template <class Work>
  double microseconds(cudaStream_t stream, const Work &work) {
    float milliseconds = 0;
    checkCuda(cudaEventRecord(begin, stream), "cudaEventRecord");
    work();
    checkCuda(cudaEventRecord(end, stream), "cudaEventRecord");
    checkCuda(cudaEventSynchronize(end), "a matmul that --tune measures");
    checkCuda(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    return milliseconds * 1e3;
  }

private:
  cudaEvent_t begin = nullptr, end = nullptr;
};

constexpr int candidatesTried = 8, runsTimed = 5;

cublasLtMatmulAlgo_t handleOf(const Algorithm &algorithm) {
  cublasLtMatmulAlgo_t handle;
  static_assert(sizeof handle == sizeof algorithm);
  std::memcpy(&handle, &algorithm, sizeof handle);
  return handle;
}

} // namespace

/// The transposed matmul, out^T = op(b)^T op(a)^T: cuBLASLt's first operand is b. Its rows are then the program's
/// columns, and cuBLASLt adds a bias only along rows.
struct Matmul::Plan final : Tunable {
  Description description;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, out = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  std::optional<cublasLtMatmulAlgo_t> anywhere; ///< for tensors with only element alignment
  cudaStream_t stream = nullptr;
  std::int64_t outBytes = 0;
  bool isZero = false; ///< an empty sum

  void describe();
  void setBias(const void *bias) const;
  void run(const void *aData, const void *bData, const void *bias, void *outData, Workspace workspace) const;
  ~Plan() override {
    cublasLtMatmulDescDestroy(operation);
    for (cublasLtMatrixLayout_t layout : {a, b, out})
      cublasLtMatrixLayoutDestroy(layout);
  }

  std::string key() const override;
  std::vector<Algorithm> candidates() const override {
    return heuristicCandidates(candidatesTried, usualAlignmentBytes);
  }
  double microseconds(const Algorithm &candidate) override;
  void use(const Algorithm &chosen) override { algorithm = handleOf(chosen); }
  std::vector<Algorithm> heuristicCandidates(int most, std::uint32_t alignmentBytes) const;
};

void Matmul::Plan::describe() {
  const MatmulShape &shape = description.shape;
  checkBlas(cublasLtMatmulDescCreate(&operation, computeTypeOf(description), CUDA_R_32F), "cublasLtMatmulDescCreate");
  const auto transpose = [&](cublasLtMatmulDescAttributes_t attribute, bool transposed) {
    const cublasOperation_t value = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    checkBlas(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value),
              "cublasLtMatmulDescSetAttribute");
  };
  transpose(CUBLASLT_MATMUL_DESC_TRANSA, shape.transposeB);
  transpose(CUBLASLT_MATMUL_DESC_TRANSB, shape.transposeA);
  if (shape.bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    checkBlas(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue),
              "cublasLtMatmulDescSetAttribute");
    // The heuristic finds nothing for a bias without an address, but accepts any aligned one.
    setBias(reinterpret_cast<const void *>(std::uintptr_t{1} << 12));
  }
  const std::int64_t m = shape.m, n = shape.n, k = shape.k;
  a = layoutOf(typeOf(description.a), shape.batch, shape.transposeA ? k : m, shape.transposeA ? m : k, shape.oneA);
  b = layoutOf(typeOf(description.b), shape.batch, shape.transposeB ? n : k, shape.transposeB ? k : n, shape.oneB);
  out = layoutOf(typeOf(description.out), shape.batch, m, n, false);
}

void Matmul::Plan::setBias(const void *bias) const {
  checkBlas(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias),
            "cublasLtMatmulDescSetAttribute");
}

/// The heuristic's first candidates within the planned scratch, for tensors that begin at multiples of
/// `alignmentBytes`. May be empty.
std::vector<Algorithm> Matmul::Plan::heuristicCandidates(int most, std::uint32_t alignmentBytes) const {
  cublasLtMatmulPreference_t preference = nullptr;
  checkBlas(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const auto bytes = static_cast<std::uint64_t>(description.workspaceBytes);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const void *value, std::size_t size) {
    checkBlas(cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, size),
              "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
  for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(attribute, &alignmentBytes, sizeof alignmentBytes);
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(most));
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(library(), operation, b, a, out, out, preference, most, found.data(), &count);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED)
    return {};
  checkBlas(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<Algorithm> algorithms(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < algorithms.size(); ++i)
    std::memcpy(&algorithms[i], &found[i].algo, sizeof algorithms[i]);
  return algorithms;
}

std::string Matmul::Plan::key() const {
  const MatmulShape &s = description.shape;
  const auto layout = [](bool transposed, bool repeated) {
    return std::string(transposed ? "t" : "n") + (repeated ? "1" : "");
  };
  std::string text = "matmul";
  for (const std::int64_t size : {s.batch, s.m, s.n, s.k})
    text += " " + std::to_string(size);
  text += " " + layout(s.transposeA, s.oneA) + " " + layout(s.transposeB, s.oneB);
  for (const DType dtype : {description.a, description.b, description.out})
    text += " " + std::to_string(typeOf(dtype));
  text += s.bias ? " bias" : "";
  text += s.accumulate ? " accumulate" : "";
  return text + (computeTypeOf(description) == CUBLAS_COMPUTE_32F_FAST_TF32 ? " tf32" : "") + " " +
         std::to_string(description.workspaceBytes);
}

/// The minimum of a few runs, after one warm-up run.
double Matmul::Plan::microseconds(const Algorithm &candidate) {
  use(candidate);
  const MatmulShape &s = description.shape;
  const Scratch aData(elementsOf(description, s.m, s.k, s.oneA) * byteSize(description.a));
  const Scratch bData(elementsOf(description, s.k, s.n, s.oneB) * byteSize(description.b));
  const Scratch outData(outBytes), workspace(description.workspaceBytes);
  const Scratch bias(s.bias ? s.n * byteSize(description.out) : 0);
  const auto work = [&] {
    run(aData.data(), bData.data(), bias.data(), outData.data(),
        {static_cast<std::byte *>(workspace.data()), description.workspaceBytes});
  };
  Stopwatch stopwatch;
  stopwatch.microseconds(stream, work);
  double shortest = stopwatch.microseconds(stream, work);
  for (int i = 1; i < runsTimed; ++i)
    shortest = std::min(shortest, stopwatch.microseconds(stream, work));
  return shortest;
}

void Matmul::Plan::run(const void *aData, const void *bData, const void *bias, void *outData,
                       Workspace workspace) const {
  const float one = 1, ofOut = description.shape.accumulate ? 1 : 0;
  const cublasLtMatmulAlgo_t *chosen = &algorithm;
  const auto isUsual = [](const void *data) {
    return reinterpret_cast<std::uintptr_t>(data) % usualAlignmentBytes == 0;
  };
  if (!isUsual(aData) || !isUsual(bData) || !isUsual(bias) || !isUsual(outData)) {
    if (!anywhere)
      throw Failure(ExitCode::internal, "cuBLASLt has no algorithm for a matmul with unaligned tensors");
    chosen = &*anywhere;
  }
  if (bias)
    setBias(bias);
  checkBlas(cublasLtMatmul(library(), operation, &one, bData, b, aData, a, &ofOut, outData, out, outData, out, chosen,
                           workspace.data, static_cast<std::size_t>(workspace.bytes), stream),
            "cublasLtMatmul");
}

Matmul::Matmul() = default;
Matmul::~Matmul() = default;

void Matmul::create(const Context &c, const MatmulShape &shape, std::int64_t workspaceBytes) {
  plan = std::make_unique<Plan>();
  plan->description = {.shape = shape,
                       .a = shape.elements,
                       .b = shape.elements,
                       .out = shape.result,
                       .allowsTf32 = deviceOf(c).allowsTf32,
                       .workspaceBytes = workspaceBytes};
  plan->stream = deviceOf(c).compute;
  plan->outBytes = shape.batch * shape.m * shape.n * byteSize(plan->description.out);
  plan->isZero = shape.k == 0;
  if (plan->outBytes == 0 || plan->isZero)
    return;
  plan->describe();
  const std::vector<Algorithm> usual = plan->heuristicCandidates(1, usualAlignmentBytes);
  const std::vector<Algorithm> anywhere =
      plan->heuristicCandidates(1, static_cast<std::uint32_t>(byteSize(shape.elements)));
  if (usual.empty())
    throw Failure(ExitCode::internal, "cuBLASLt has no algorithm for a matmul of the program");
  if (!anywhere.empty())
    plan->anywhere = handleOf(anywhere.front());
  if (deviceOf(c).tuner)
    deviceOf(c).tuner->add(*plan);
  else
    plan->use(usual.front());
}

void Matmul::run(const void *a, const void *b, const void *bias, void *out, Workspace workspace) const {
  if (plan->outBytes == 0)
    return;
  if (plan->isZero && plan->description.shape.accumulate)
    return;
  if (plan->isZero)
    return checkCuda(cudaMemsetAsync(out, 0, static_cast<std::size_t>(plan->outBytes), plan->stream),
                     "cudaMemsetAsync");
  plan->run(a, b, bias, out, workspace);
}

std::string matmulMachine() {
  int id = 0;
  cudaDeviceProp properties{};
  checkCuda(cudaGetDevice(&id), "cudaGetDevice");
  checkCuda(cudaGetDeviceProperties(&properties, id), "cudaGetDeviceProperties");
  return std::string(properties.name) + ", " + std::to_string(properties.multiProcessorCount) +
         " multiprocessors, cuBLASLt " + std::to_string(cublasLtGetVersion());
}

} // namespace fsdpc::rt
