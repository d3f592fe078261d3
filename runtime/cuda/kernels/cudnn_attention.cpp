#if __has_include(<cudnn_frontend_version.h>)
#include <cudnn_frontend_version.h>
#endif

// Older frontends do not accept an array of pointers, and a map of them would allocate memory in a step.
#if defined(CUDNN_FRONTEND_VERSION) && CUDNN_FRONTEND_VERSION >= 13200

#include "runtime/cuda/kernels/cudnn_attention.h"

#include "runtime/cuda/device.h"
#include "runtime/cuda/kernels/cudnn_handle.h"

// The frontend must not print or throw, and must not need JSON.
#define NV_CUDNN_FRONTEND_DISABLE_LOGGING
#define NV_CUDNN_DISABLE_EXCEPTION
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include "runtime/cuda/kernels/without_nvrtc.h"

#include <string>
#include <vector>

namespace fsdpc::rt {
namespace {

namespace frontend = cudnn_frontend;
using Tensor = std::shared_ptr<frontend::graph::Tensor_attributes>;

/// Sizes and strides in the order [B, H, S, D], whatever the order in memory.
struct Layout {
  std::vector<std::int64_t> dims, strides;
  frontend::DataType_t elements;
};

Layout layoutOf(const AttentionShape &s, std::int64_t heads, std::int64_t length) {
  const std::int64_t width = s.queryWidth, row = s.sequenceFirst ? heads * width : width;
  return {{s.batch, heads, length, width},
          {heads * length * width, s.sequenceFirst ? width : length * width, row, 1},
          frontend::DataType_t::BFLOAT16};
}
Layout queriesOf(const AttentionShape &s) { return layoutOf(s, s.heads, s.queries); }
Layout keysOf(const AttentionShape &s) { return layoutOf(s, s.keyHeads > 0 ? s.keyHeads : s.heads, s.keys); }
Layout statisticsOf(const AttentionShape &s) {
  return {{s.batch, s.heads, s.queries, 1}, {s.heads * s.queries, s.queries, 1, 1}, frontend::DataType_t::FLOAT};
}

/// Numbers the tensors of a graph in the order in which a call passes them: the frontend identifies pointers by number.
class Tensors {
public:
  explicit Tensors(frontend::graph::Graph &graph) : graph(graph) {}

  Tensor operand(const char *name, const Layout &layout) {
    frontend::graph::Tensor_attributes made;
    made.set_name(name);
    describe(made, layout);
    return graph.tensor(made);
  }
  void result(const Tensor &tensor, const Layout &layout) {
    tensor->set_output(true);
    describe(*tensor, layout);
  }

private:
  void describe(frontend::graph::Tensor_attributes &tensor, const Layout &layout) {
    tensor.set_uid(next++).set_dim(layout.dims).set_stride(layout.strides).set_data_type(layout.elements);
  }

  frontend::graph::Graph &graph;
  std::int64_t next = 1;
};

void describeForward(frontend::graph::Graph &graph, const AttentionShape &shape) {
  Tensors tensors(graph);
  const Layout queries = queriesOf(shape), keys = keysOf(shape);
  const Tensor q = tensors.operand("q", queries), k = tensors.operand("k", keys), v = tensors.operand("v", keys);
  frontend::graph::SDPA_attributes attributes;
  attributes.set_name("attention").set_generate_stats(true).set_attn_scale(shape.scale).set_causal_mask(shape.causal);
  const auto [o, lse] = graph.sdpa(q, k, v, attributes);
  tensors.result(o, queries);
  tensors.result(lse, statisticsOf(shape));
}

void describeBackward(frontend::graph::Graph &graph, const AttentionShape &shape) {
  Tensors tensors(graph);
  const Layout queries = queriesOf(shape), keys = keysOf(shape);
  const Tensor dO = tensors.operand("do", queries), q = tensors.operand("q", queries), k = tensors.operand("k", keys),
               v = tensors.operand("v", keys), o = tensors.operand("o", queries),
               lse = tensors.operand("lse", statisticsOf(shape));
  frontend::graph::SDPA_backward_attributes attributes;
  attributes.set_name("attention_grad")
      .set_attn_scale(shape.scale)
      .set_causal_mask(shape.causal)
      .set_deterministic_algorithm(true);
  const auto [dq, dk, dv] = graph.sdpa_backward(q, k, v, o, dO, lse, attributes);
  tensors.result(dq, queries);
  tensors.result(dk, keys);
  tensors.result(dv, keys);
}

std::string textOf(CudnnAttention::Pass pass, const AttentionShape &s) {
  return std::string(pass == CudnnAttention::Pass::forward ? "attention" : "the derivative of attention") + " of " +
         std::to_string(s.batch) + " x " + std::to_string(s.heads) + " heads, " + std::to_string(s.queries) +
         " queries, " + std::to_string(s.keys) + " keys, width " + std::to_string(s.queryWidth);
}

} // namespace

struct CudnnAttention::Plan {
  frontend::graph::Graph graph;
  cudnnHandle_t handle = nullptr;

  /// Returns the first error on the way to an executable plan, if any.
  frontend::error_t build(std::int64_t workspaceBytes);
  template <std::size_t count>
  void run(void *(&&pointers)[count], Workspace workspace, const char *what) const;
};

frontend::error_t CudnnAttention::Plan::build(std::int64_t workspaceBytes) {
  graph.deselect_workspace_greater_than(workspaceBytes);
  frontend::error_t error =
      graph.build(handle, {frontend::HeurMode_t::A}, frontend::BuildPlanPolicy_t::HEURISTICS_CHOICE);
  if (error.is_bad())
    return error;
  // The frontend's own part of the scratch is in addition to the plan's.
  std::int64_t needed = 0;
  error = graph.get_workspace_size(needed);
  if (error.is_good() && needed > workspaceBytes)
    return {frontend::error_code_t::GRAPH_NOT_SUPPORTED, "it needs " + std::to_string(needed) + " bytes"};
  return error;
}

template <std::size_t count>
void CudnnAttention::Plan::run(void *(&&pointers)[count], Workspace workspace, const char *what) const {
  frontend::error_t error = graph.execute(handle, pointers, static_cast<int>(count), workspace.data);
  if (error.is_bad())
    throw Failure(ExitCode::internal, std::string(what) + " through cuDNN: " + error.get_message());
}

CudnnAttention::CudnnAttention() = default;
CudnnAttention::~CudnnAttention() = default;

void CudnnAttention::create(const Context &c, Pass pass, const AttentionShape &shape, std::int64_t workspaceBytes) {
  plan = std::make_unique<Plan>();
  plan->handle = cudnnHandleOf(deviceOf(c).compute);
  plan->graph.set_io_data_type(frontend::DataType_t::BFLOAT16)
      .set_intermediate_data_type(frontend::DataType_t::FLOAT)
      .set_compute_data_type(frontend::DataType_t::FLOAT);
  if (pass == Pass::forward)
    describeForward(plan->graph, shape);
  else
    describeBackward(plan->graph, shape);
  frontend::error_t error = plan->build(workspaceBytes);
  if (error.is_bad())
    throw Failure(ExitCode::memory,
                  "cuDNN does not compute " + textOf(pass, shape) + " with the " + std::to_string(workspaceBytes) +
                      " bytes of scratch that are planned: compile with --attention own (" + error.get_message() + ")");
}

namespace {

/// The frontend takes all pointers as one type.
template <class T>
void *pointer(const T *data) {
  return const_cast<T *>(data);
}

} // namespace

void CudnnAttention::operator()(const Bfloat16 *q, const Bfloat16 *k, const Bfloat16 *v, Bfloat16 *o, float *lse,
                                Workspace workspace) const {
  plan->run({pointer(q), pointer(k), pointer(v), pointer(o), pointer(lse)}, workspace, "attention");
}

void CudnnAttention::operator()(const Bfloat16 *dO, const Bfloat16 *q, const Bfloat16 *k, const Bfloat16 *v,
                                const Bfloat16 *o, const float *lse, Bfloat16 *dq, Bfloat16 *dk, Bfloat16 *dv,
                                Workspace workspace) const {
  plan->run({pointer(dO), pointer(q), pointer(k), pointer(v), pointer(o), pointer(lse), pointer(dq), pointer(dk),
             pointer(dv)},
            workspace, "the derivative of attention");
}

} // namespace fsdpc::rt

#endif
