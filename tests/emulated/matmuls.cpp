// The emulated device's replacements for cuBLASLt and cuDNN: matmuls and convolutions as loops, and attention by our
// own kernels.
#include "tests/emulated/device.h"

#include "runtime/cuda/device.h"
#include "runtime/cuda/kernels/attention.h"
#include "runtime/cuda/kernels/convolution.h"
#include "runtime/cuda/kernels/cudnn_attention.h"
#include "runtime/cuda/kernels/matmul.h"
#include "runtime/cuda/tuning.h"

#include <cstdio>
#include <cstdlib>

namespace fsdpc::rt {

namespace {

constexpr Algorithm favourite = {1}, fastest = {2};

} // namespace

/// Of two algorithms with bitwise identical results, the second is faster.
struct Matmul::Plan final : Tunable {
  MatmulShape shape;
  cudaStream_t stream = nullptr;
  Algorithm algorithm{};

  std::string key() const override {
    return "matmul " + std::to_string(shape.batch) + " " + std::to_string(shape.m) + " " + std::to_string(shape.n) +
           " " + std::to_string(shape.k);
  }
  std::vector<Algorithm> candidates() const override { return {favourite, fastest}; }
  double microseconds(const Algorithm &candidate) override { return candidate == fastest ? 1 : 2; }
  void use(const Algorithm &chosen) override { algorithm = chosen; }
};

Matmul::Matmul() = default;
Matmul::~Matmul() = default;

void Matmul::create(const Context &c, const MatmulShape &shape, std::int64_t) {
  plan = std::make_unique<Plan>();
  plan->shape = shape;
  plan->stream = deviceOf(c).compute;
  if (deviceOf(c).tuner)
    deviceOf(c).tuner->add(*plan);
  else
    plan->use(favourite);
}

std::string matmulMachine() { return "emulated device"; }

namespace {

template <class T, class R>
void multiply(const MatmulShape &s, const T *a, const T *b, const R *bias, R *out) {
  for (std::int64_t batch = 0; batch < s.batch; ++batch) {
    const T *left = a + (s.oneA ? 0 : batch * s.m * s.k), *right = b + (s.oneB ? 0 : batch * s.k * s.n);
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t j = 0; j < s.n; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < s.k; ++k)
          sum += static_cast<double>(static_cast<float>(left[s.transposeA ? k * s.m + i : i * s.k + k])) *
                 static_cast<double>(static_cast<float>(right[s.transposeB ? j * s.k + k : k * s.n + j]));
        const float rounded = static_cast<float>(sum);
        R &to = out[(batch * s.m + i) * s.n + j];
        const float added = bias ? static_cast<float>(bias[j]) : s.accumulate ? static_cast<float>(to) : 0;
        to = static_cast<R>(bias || s.accumulate ? rounded + added : rounded);
      }
  }
}

template <class T>
void multiplyHalves(const MatmulShape &s, const void *a, const void *b, const void *bias, void *out) {
  const auto *left = static_cast<const T *>(a), *right = static_cast<const T *>(b);
  if (s.result == DType::f32)
    multiply(s, left, right, static_cast<const float *>(bias), static_cast<float *>(out));
  else
    multiply(s, left, right, static_cast<const T *>(bias), static_cast<T *>(out));
}

void multiply(const MatmulShape &s, const void *a, const void *b, const void *bias, void *out) {
  if (s.elements == DType::f32)
    return multiply(s, static_cast<const float *>(a), static_cast<const float *>(b), static_cast<const float *>(bias),
                    static_cast<float *>(out));
  s.elements == DType::f16 ? multiplyHalves<Float16>(s, a, b, bias, out) : multiplyHalves<Bfloat16>(s, a, b, bias, out);
}

/// Emulates a library that uses all of its scratch.
void spoil(Workspace workspace) {
  if (workspace.bytes > 0)
    std::memset(workspace.data, 0xff, static_cast<std::size_t>(workspace.bytes));
}

} // namespace

void Matmul::run(const void *a, const void *b, const void *bias, void *out, Workspace workspace) const {
  if (plan->algorithm == Algorithm{}) {
    std::fputs("emulated matmuls: one that has no algorithm yet\n", stderr);
    std::abort();
  }
  const MatmulShape shape = plan->shape;
  if (shape.bias != (bias != nullptr)) {
    std::fputs("emulated matmuls: a bias of which the shape says the contrary\n", stderr);
    std::abort();
  }
  emulated::Device::instance().enqueue(*plan->stream, {[=] {
    spoil(workspace);
    multiply(shape, a, b, bias, out);
  }});
}

struct Convolution::Plan {
  Pass pass;
  ConvolutionShape shape;
  cudaStream_t stream;
};

Convolution::Convolution() = default;
Convolution::~Convolution() = default;

void Convolution::create(const Context &c, Pass pass, const ConvolutionShape &shape, std::int64_t) {
  plan.reset(new Plan{pass, shape, deviceOf(c).compute});
}

namespace {

std::int64_t product(const std::int64_t (&dims)[3], int axes) {
  std::int64_t result = 1;
  for (int axis = 0; axis < axes; ++axis)
    result *= dims[axis];
  return result;
}

/// The input position that meets tap `tap` at `output`, all as flat positions; -1: padding.
std::int64_t inputOf(const ConvolutionShape &s, std::int64_t output, std::int64_t tap) {
  std::int64_t input = 0, scale = 1;
  for (int axis = s.axes - 1; axis >= 0; --axis) {
    const std::int64_t at =
        output % s.output[axis] * s.strides[axis] - s.padsBefore[axis] + tap % s.kernel[axis] * s.dilations[axis];
    if (at < 0 || at >= s.input[axis])
      return -1;
    input += at * scale;
    scale *= s.input[axis];
    output /= s.output[axis];
    tap /= s.kernel[axis];
  }
  return input;
}

/// The three elements of one product, in a plane of inputs, a plane of weights and a plane of outputs.
struct Tap {
  std::int64_t x, w, y;
};

std::vector<Tap> tapsOf(const ConvolutionShape &s) {
  std::vector<Tap> taps;
  const std::int64_t outputs = product(s.output, s.axes), kernel = product(s.kernel, s.axes);
  for (std::int64_t y = 0; y < outputs; ++y)
    for (std::int64_t w = 0; w < kernel; ++w)
      if (const std::int64_t x = inputOf(s, y, w); x >= 0)
        taps.push_back({x, w, y});
  return taps;
}

/// Calls body(flat x, flat w, flat y) for every product of the convolution.
template <class Body>
void forEachMultiply(const ConvolutionShape &s, const Body &body) {
  const std::vector<Tap> taps = tapsOf(s);
  const std::int64_t inputs = product(s.input, s.axes), outputs = product(s.output, s.axes),
                     kernel = product(s.kernel, s.axes);
  const std::int64_t groupInputs = s.inputChannels / s.groups, groupOutputs = s.outputChannels / s.groups;
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t m = 0; m < s.outputChannels; ++m)
      for (std::int64_t channel = 0; channel < groupInputs; ++channel) {
        const std::int64_t x = (n * s.inputChannels + m / groupOutputs * groupInputs + channel) * inputs;
        const std::int64_t w = (m * groupInputs + channel) * kernel, y = (n * s.outputChannels + m) * outputs;
        for (const Tap &tap : taps)
          body(x + tap.x, w + tap.w, y + tap.y);
      }
}

void convolve(Convolution::Pass pass, const ConvolutionShape &s, const float *a, const float *b, const float *bias,
              float *out) {
  const std::int64_t inputs = s.batch * s.inputChannels * product(s.input, s.axes);
  const std::int64_t outputs = s.batch * s.outputChannels * product(s.output, s.axes);
  const std::int64_t weights = s.outputChannels * (s.inputChannels / s.groups) * product(s.kernel, s.axes);
  using Pass = Convolution::Pass;
  std::vector<double> sums(static_cast<std::size_t>(pass == Pass::forward     ? outputs
                                                    : pass == Pass::gradInput ? inputs
                                                                              : weights));
  const std::int64_t plane = product(s.output, s.axes);
  if (bias)
    for (std::int64_t i = 0; i < outputs; ++i)
      sums[static_cast<std::size_t>(i)] = bias[i / plane % s.outputChannels];
  forEachMultiply(s, [&](std::int64_t x, std::int64_t w, std::int64_t y) {
    if (pass == Pass::forward)
      sums[static_cast<std::size_t>(y)] += double{a[x]} * double{b[w]};
    else if (pass == Pass::gradInput)
      sums[static_cast<std::size_t>(x)] += double{a[y]} * double{b[w]};
    else
      sums[static_cast<std::size_t>(w)] += double{a[x]} * double{b[y]};
  });
  for (std::size_t i = 0; i < sums.size(); ++i)
    out[i] = static_cast<float>(sums[i]);
}

} // namespace

void Convolution::run(const float *a, const float *b, const float *bias, float *out, Workspace workspace) const {
  emulated::Device::instance().enqueue(*plan->stream, {[=, pass = plan->pass, shape = plan->shape] {
    spoil(workspace);
    convolve(pass, shape, a, b, bias, out);
  }});
}

/// Our own kernels, with separate scratch: the planned scratch is for the library.
struct CudnnAttention::Plan {
  Context context;
  AttentionShape shape;
  std::vector<std::byte> own;

  Workspace takeScratch(Workspace planned) {
    emulated::Device::instance().enqueue(*deviceOf(context).compute, {[=] { spoil(planned); }});
    return {own.data(), static_cast<std::int64_t>(own.size())};
  }
};

CudnnAttention::CudnnAttention() = default;
CudnnAttention::~CudnnAttention() = default;

void CudnnAttention::create(const Context &c, Pass pass, const AttentionShape &shape, std::int64_t) {
  const std::int64_t bytes = pass == Pass::forward ? attentionScratchBytes(shape) : attentionGradScratchBytes(shape);
  plan.reset(new Plan{c, shape, std::vector<std::byte>(static_cast<std::size_t>(bytes))});
}

void CudnnAttention::operator()(const Bfloat16 *q, const Bfloat16 *k, const Bfloat16 *v, Bfloat16 *o, float *lse,
                                Workspace workspace) const {
  const Workspace own = plan->takeScratch(workspace);
  attention(plan->context, plan->shape, q, k, v, {}, o, lse, own);
}

void CudnnAttention::operator()(const Bfloat16 *dO, const Bfloat16 *q, const Bfloat16 *k, const Bfloat16 *v,
                                const Bfloat16 *o, const float *lse, Bfloat16 *dq, Bfloat16 *dk, Bfloat16 *dv,
                                Workspace workspace) const {
  const Workspace own = plan->takeScratch(workspace);
  attentionGrad(plan->context, plan->shape, dO, q, k, v, o, lse, {}, dq, dk, dv, own);
}

} // namespace fsdpc::rt
