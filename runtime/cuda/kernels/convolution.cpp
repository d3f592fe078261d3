#include "runtime/cuda/kernels/convolution.h"

#include "runtime/cuda/device.h"
#include "runtime/cuda/kernels/cudnn_handle.h"

#include <array>
#include <string>

namespace fsdpc::rt {
namespace {

/// Spatial dims for cuDNN, which requires at least two: a missing one is added in front.
struct Spatial {
  std::array<int, 3> values{};
  int axes;

  Spatial(const std::int64_t (&dims)[3], int given, int fill) : axes(given < 2 ? 2 : given) {
    values[0] = fill;
    for (int axis = 0; axis < given; ++axis)
      values[static_cast<std::size_t>(axes - given + axis)] = static_cast<int>(dims[axis]);
  }
};

/// [first, second, spatial...], row-major.
struct Dims {
  std::array<int, 5> sizes{}, strides{};
  int rank;

  Dims(std::int64_t first, std::int64_t second, const Spatial &spatial) : rank(spatial.axes + 2) {
    sizes[0] = static_cast<int>(first);
    sizes[1] = static_cast<int>(second);
    for (int axis = 0; axis < spatial.axes; ++axis)
      sizes[static_cast<std::size_t>(axis + 2)] = spatial.values[static_cast<std::size_t>(axis)];
    int stride = 1;
    for (auto i = static_cast<std::size_t>(rank); i-- > 0; stride *= sizes[i])
      strides[i] = stride;
  }
};

cudnnTensorDescriptor_t tensorOf(const Dims &dims) {
  cudnnTensorDescriptor_t tensor = nullptr;
  checkDnn(cudnnCreateTensorDescriptor(&tensor), "cudnnCreateTensorDescriptor");
  checkDnn(cudnnSetTensorNdDescriptor(tensor, CUDNN_DATA_FLOAT, dims.rank, dims.sizes.data(), dims.strides.data()),
           "cudnnSetTensorNdDescriptor");
  return tensor;
}

} // namespace

struct Convolution::Plan {
  Pass pass = Pass::forward;
  cudnnTensorDescriptor_t x = nullptr, y = nullptr, bias = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
  cudnnHandle_t handle = nullptr;

  void describe(const ConvolutionShape &shape, bool allowsTf32);
  std::size_t neededBytes() const;
  ~Plan() {
    cudnnDestroyTensorDescriptor(x);
    cudnnDestroyTensorDescriptor(y);
    cudnnDestroyTensorDescriptor(bias);
    cudnnDestroyFilterDescriptor(w);
    cudnnDestroyConvolutionDescriptor(convolution);
  }
};

namespace {

// cuDNN's documentation lists these as deterministic. Deterministic ones without a workspace are far slower.
constexpr cudnnConvolutionFwdAlgo_t forwardAlgorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
constexpr cudnnConvolutionBwdDataAlgo_t gradInputAlgorithm = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
constexpr cudnnConvolutionBwdFilterAlgo_t gradWeightAlgorithm = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;

} // namespace

void Convolution::Plan::describe(const ConvolutionShape &s, bool allowsTf32) {
  const Spatial input(s.input, s.axes, 1), output(s.output, s.axes, 1), kernel(s.kernel, s.axes, 1);
  const Spatial pads(s.padsBefore, s.axes, 0), strides(s.strides, s.axes, 1), dilations(s.dilations, s.axes, 1);
  x = tensorOf(Dims(s.batch, s.inputChannels, input));
  y = tensorOf(Dims(s.batch, s.outputChannels, output));
  if (s.bias)
    bias = tensorOf(Dims(1, s.outputChannels, Spatial({1, 1, 1}, s.axes, 1)));
  const Dims weights(s.outputChannels, s.inputChannels / s.groups, kernel);
  checkDnn(cudnnCreateFilterDescriptor(&w), "cudnnCreateFilterDescriptor");
  checkDnn(cudnnSetFilterNdDescriptor(w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, weights.rank, weights.sizes.data()),
           "cudnnSetFilterNdDescriptor");
  checkDnn(cudnnCreateConvolutionDescriptor(&convolution), "cudnnCreateConvolutionDescriptor");
  checkDnn(cudnnSetConvolutionNdDescriptor(convolution, pads.axes, pads.values.data(), strides.values.data(),
                                           dilations.values.data(), CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
           "cudnnSetConvolutionNdDescriptor");
  checkDnn(cudnnSetConvolutionGroupCount(convolution, static_cast<int>(s.groups)), "cudnnSetConvolutionGroupCount");
  // cuDNN's default is tf32 for f32.
  checkDnn(cudnnSetConvolutionMathType(convolution, allowsTf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH),
           "cudnnSetConvolutionMathType");
}

std::size_t Convolution::Plan::neededBytes() const {
  std::size_t bytes = 0;
  if (pass == Pass::forward)
    checkDnn(cudnnGetConvolutionForwardWorkspaceSize(handle, x, w, convolution, y, forwardAlgorithm, &bytes),
             "cudnnGetConvolutionForwardWorkspaceSize");
  else if (pass == Pass::gradInput)
    checkDnn(cudnnGetConvolutionBackwardDataWorkspaceSize(handle, w, y, convolution, x, gradInputAlgorithm, &bytes),
             "cudnnGetConvolutionBackwardDataWorkspaceSize");
  else
    checkDnn(cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, x, y, convolution, w, gradWeightAlgorithm, &bytes),
             "cudnnGetConvolutionBackwardFilterWorkspaceSize");
  return bytes;
}

Convolution::Convolution() = default;
Convolution::~Convolution() = default;

void Convolution::create(const Context &c, Pass pass, const ConvolutionShape &shape, std::int64_t workspaceBytes) {
  plan = std::make_unique<Plan>();
  plan->pass = pass;
  plan->handle = cudnnHandleOf(deviceOf(c).compute);
  plan->describe(shape, deviceOf(c).allowsTf32);
  const std::size_t needed = plan->neededBytes();
  if (static_cast<std::int64_t>(needed) > workspaceBytes)
    throw Failure(ExitCode::memory, "cuDNN needs " + std::to_string(needed) + " bytes of scratch for a convolution, " +
                                        std::to_string(workspaceBytes) + " are planned");
}

void Convolution::run(const float *a, const float *b, const float *biasData, float *out, Workspace scratch) const {
  const Plan &p = *plan;
  const float one = 1, zero = 0;
  const auto bytes = static_cast<std::size_t>(scratch.bytes);
  if (p.pass == Pass::gradInput)
    return checkDnn(cudnnConvolutionBackwardData(p.handle, &one, p.w, b, p.y, a, p.convolution, gradInputAlgorithm,
                                                 scratch.data, bytes, &zero, p.x, out),
                    "cudnnConvolutionBackwardData");
  if (p.pass == Pass::gradWeight)
    return checkDnn(cudnnConvolutionBackwardFilter(p.handle, &one, p.x, a, p.y, b, p.convolution, gradWeightAlgorithm,
                                                   scratch.data, bytes, &zero, p.w, out),
                    "cudnnConvolutionBackwardFilter");
  checkDnn(cudnnConvolutionForward(p.handle, &one, p.x, a, p.w, b, p.convolution, forwardAlgorithm, scratch.data, bytes,
                                   &zero, p.y, out),
           "cudnnConvolutionForward");
  if (biasData)
    checkDnn(cudnnAddTensor(p.handle, &one, p.bias, biasData, &one, p.y, out), "cudnnAddTensor");
}

} // namespace fsdpc::rt
