// Stream capture of the emulated device: work enqueued on streams becomes the nodes of a graph instead of running.
//
// A node depends on the work that its stream was given before it and on the events that the stream waited for. A launch
// gives each captured stream a separate queue, a lane, that holds its nodes in order. Lanes wait for each other where
// the graph requires it. So the device runs the nodes in any order that the graph allows, chosen by the seed, and
// concurrently with its other work.
#pragma once

#include "tests/emulated/device.h"

#include <thread>

namespace fsdpc::emulated {

struct GraphNode {
  std::size_t lane = 0;
  Operation operation;
  std::vector<std::size_t> after; ///< its predecessors, which have lower numbers
  Event *recorded = nullptr;      ///< each launch records it here (cudaEventRecordExternal)
};

struct Graph {
  std::vector<GraphNode> nodes;
  std::size_t lanes = 0;
};

/// Launches of one graph run one after another.
struct ExecutableGraph {
  Graph graph;
  std::vector<bool> isAwaited; ///< by node: another lane waits for it
  std::vector<std::unique_ptr<Stream>> lanes;
};

/// One capture, which began on one stream and has spread to the streams that waited for its events.
class Capture {
public:
  explicit Capture(Stream &origin) : origin(&origin), streams{&origin} {}

  void add(Stream &stream, Operation operation, Event *recorded = nullptr);
  void joinedBy(Stream &stream, const Frontier &behind);
  /// Every stream executes its work again. False if some stream's work was not joined to the origin.
  bool end();

  Stream *const origin;
  const std::thread::id thread = std::this_thread::get_id();
  bool isValid = true, isActive = true;
  Graph graph;

private:
  std::size_t laneOf(const Stream &stream) const;
  std::vector<Stream *> streams;
};

/// Returns cudaErrorStreamCaptureUnsupported and voids the capture if this thread captures. For calls that no graph can
/// hold and that a capture forbids (cudaStreamCaptureModeThreadLocal).
cudaError_t unlessCapturing();

} // namespace fsdpc::emulated
