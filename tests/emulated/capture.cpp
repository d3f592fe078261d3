#include "tests/emulated/capture.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <set>

namespace fsdpc::emulated {

namespace {

thread_local std::weak_ptr<Capture> captureOfThread;

cudaError_t voided(Capture &capture, cudaError_t error) {
  capture.isValid = false;
  return error;
}

/// FSDPC_EMULATED_VOID_CAPTURES=N: the first N captures of this process fail, as if a library made a call that cannot
/// be captured.
bool isToBeVoid() {
  static std::atomic<int> left = [] {
    const char *text = std::getenv("FSDPC_EMULATED_VOID_CAPTURES");
    return text ? std::atoi(text) : 0;
  }();
  return left.fetch_sub(1) > 0;
}

std::unique_ptr<ExecutableGraph> executable(const Graph &graph) {
  auto result = std::make_unique<ExecutableGraph>();
  result->graph = graph;
  result->isAwaited.resize(graph.nodes.size());
  for (const GraphNode &node : graph.nodes)
    for (std::size_t before : node.after)
      if (graph.nodes[before].lane != node.lane)
        result->isAwaited[before] = true;
  for (std::size_t lane = 0; lane < graph.lanes; ++lane)
    Device::instance().add(*result->lanes.emplace_back(std::make_unique<Stream>()));
  return result;
}

} // namespace

std::size_t Capture::laneOf(const Stream &stream) const {
  return static_cast<std::size_t>(std::find(streams.begin(), streams.end(), &stream) - streams.begin());
}

void Capture::add(Stream &stream, Operation operation, Event *recorded) {
  graph.nodes.push_back({laneOf(stream), std::move(operation), stream.captured.nodes, recorded});
  stream.captured.nodes = {graph.nodes.size() - 1};
}

void Capture::joinedBy(Stream &stream, const Frontier &behind) {
  stream.captured = behind;
  if (laneOf(stream) == streams.size())
    streams.push_back(&stream);
}

bool Capture::end() {
  std::set<std::size_t> joined;
  std::vector<std::size_t> next = origin->captured.nodes;
  while (!next.empty()) {
    const std::size_t node = next.back();
    next.pop_back();
    if (joined.insert(node).second)
      next.insert(next.end(), graph.nodes[node].after.begin(), graph.nodes[node].after.end());
  }
  for (Stream *stream : streams)
    stream->captured = {};
  graph.lanes = streams.size();
  isActive = false;
  return joined.size() == graph.nodes.size();
}

cudaError_t unlessCapturing() {
  const std::shared_ptr<Capture> capture = captureOfThread.lock();
  return capture && capture->isActive ? voided(*capture, cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

cudaError_t Device::recordCaptured(Event &event, Stream &stream, bool isExternal) {
  Capture &capture = *stream.captured.capture;
  if (!capture.isValid)
    return cudaErrorStreamCaptureInvalidated;
  event.captured = {};
  if (isExternal)
    capture.add(stream, {}, &event);
  else
    event.captured = stream.captured;
  return cudaSuccess;
}

/// Called only if at least one of them takes part in a capture.
cudaError_t Device::waitCaptured(Stream &stream, Event &event) {
  Frontier &mine = stream.captured;
  const Frontier &theirs = event.captured;
  if (mine.capture && !mine.capture->isValid)
    return cudaErrorStreamCaptureInvalidated;
  if (!theirs.capture) // recorded outside, or never
    return event.isRecorded ? voided(*mine.capture, cudaErrorStreamCaptureIsolation) : cudaSuccess;
  if (!theirs.capture->isActive)
    return mine.capture ? voided(*mine.capture, cudaErrorStreamCaptureIsolation) : cudaErrorCapturedEvent;
  if (!mine.capture) {
    theirs.capture->joinedBy(stream, theirs);
    return cudaSuccess;
  }
  if (mine.capture != theirs.capture) {
    theirs.capture->isValid = false;
    return voided(*mine.capture, cudaErrorStreamCaptureMerge);
  }
  for (std::size_t node : theirs.nodes)
    if (std::find(mine.nodes.begin(), mine.nodes.end(), node) == mine.nodes.end())
      mine.nodes.push_back(node);
  return cudaSuccess;
}

cudaError_t Device::beginCapture(Stream &stream) {
  std::lock_guard lock(mutex);
  if (stream.captured.capture)
    return cudaErrorIllegalState;
  stream.captured = {std::make_shared<Capture>(stream), {}};
  stream.captured.capture->isValid = !isToBeVoid();
  captureOfThread = stream.captured.capture;
  return cudaSuccess;
}

cudaError_t Device::endCapture(Stream &stream, Graph *&graph) {
  std::lock_guard lock(mutex);
  graph = nullptr;
  const std::shared_ptr<Capture> capture = stream.captured.capture;
  if (!capture)
    return cudaErrorIllegalState;
  if (capture->origin != &stream)
    return voided(*capture, cudaErrorStreamCaptureUnmatched);
  if (capture->thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  const bool isJoined = capture->end();
  if (!capture->isValid)
    return cudaErrorStreamCaptureInvalidated;
  if (!isJoined)
    return cudaErrorStreamCaptureUnjoined;
  graph = new Graph(std::move(capture->graph));
  return cudaSuccess;
}

/// The records of events are renewed when the graph is launched, not when it reaches them.
void Device::launch(ExecutableGraph &executable, Stream &stream) {
  std::lock_guard lock(mutex);
  const std::vector<GraphNode> &nodes = executable.graph.nodes;
  const auto begun = std::make_shared<Record>();
  stream.queue.push_back(completing(begun));
  for (const auto &lane : executable.lanes)
    lane->queue.push_back({.awaited = begun});
  std::vector<std::shared_ptr<Record>> ends(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const GraphNode &node = nodes[i];
    Stream &lane = *executable.lanes[node.lane];
    for (std::size_t before : node.after)
      if (nodes[before].lane != node.lane)
        lane.queue.push_back({.awaited = ends[before]});
    lane.queue.push_back(begunOn(lane, node.operation));
    if (!node.recorded && !executable.isAwaited[i])
      continue;
    ends[i] = std::make_shared<Record>();
    if (node.recorded) {
      node.recorded->last = ends[i];
      node.recorded->isRecorded = true;
    }
    lane.queue.push_back(completing(ends[i]));
  }
  for (const auto &lane : executable.lanes) {
    const auto end = std::make_shared<Record>();
    lane->queue.push_back(completing(end));
    stream.queue.push_back({.awaited = end});
  }
  goOn();
}

cudaError_t Device::queryCaptured(const Event &event) {
  std::lock_guard lock(mutex);
  if (!event.captured.capture)
    return cudaSuccess;
  return voided(*event.captured.capture, cudaErrorCapturedEvent);
}

cudaError_t Device::queryCaptured(const Stream &stream) {
  std::lock_guard lock(mutex);
  if (!stream.captured.capture)
    return cudaSuccess;
  return voided(*stream.captured.capture, cudaErrorStreamCaptureUnsupported);
}

} // namespace fsdpc::emulated

using namespace fsdpc::emulated;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return mode == cudaStreamCaptureModeThreadLocal ? Device::instance().beginCapture(*stream) : cudaErrorInvalidValue;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  return Device::instance().endCapture(*stream, *graph);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  const auto &capture = stream->captured.capture;
  *status = !capture           ? cudaStreamCaptureStatusNone
            : capture->isValid ? cudaStreamCaptureStatusActive
                               : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executableGraph, cudaGraph_t graph, unsigned long long) {
  if (const cudaError_t error = unlessCapturing())
    return error;
  *executableGraph = executable(*graph).release();
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executableGraph, cudaStream_t stream) {
  if (stream->captured.capture)
    return cudaErrorStreamCaptureUnsupported;
  Device::instance().launch(*executableGraph, *stream);
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *, std::size_t *count) {
  *count = graph->nodes.size();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
/// Launched work still runs to its end.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executableGraph) {
  Device::instance().runUntil([&] {
    return std::all_of(executableGraph->lanes.begin(), executableGraph->lanes.end(),
                       [](const auto &lane) { return lane->queue.empty(); });
  });
  for (const auto &lane : executableGraph->lanes)
    Device::instance().remove(*lane);
  delete executableGraph;
  return cudaSuccess;
}
