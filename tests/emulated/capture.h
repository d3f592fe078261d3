// Stream capture of the emulated device: what streams are given becomes the nodes of a graph instead of running.
//
// A node comes behind what its stream was given before it and behind the events that the stream waited for. A launch
// gives each captured stream a queue of its own, a lane, in which its nodes stand in their order; lanes wait for each
// other where the graph says so. So the device runs the nodes in any order that the graph allows, as the seed chooses,
// and beside whatever else it has to do.
#pragma once

#include "tests/emulated/device.h"

#include <thread>

namespace fsdpc::emulated {

struct GraphNode {
  std::size_t lane = 0;
  Operation operation;
  std::vector<std::size_t> after; ///< nodes before it; all of lower numbers
  Event *recorded = nullptr;      ///< each launch records it here (cudaEventRecordExternal)
};

struct Graph {
  std::vector<GraphNode> nodes;
  std::size_t lanes = 0;
};

/// Launches of one run one after the other.
struct ExecutableGraph {
  Graph graph;
  std::vector<bool> isAwaited; ///< by node: another lane waits for it
  std::vector<std::unique_ptr<Stream>> lanes;
};

/// One sequence of capture, which began on one stream and has spread to those that waited for its events.
class Capture {
public:
  explicit Capture(Stream &origin) : origin(&origin), streams{&origin} {}

  void add(Stream &stream, Operation operation, Event *recorded = nullptr);
  void joinedBy(Stream &stream, const Frontier &behind);
  /// Every stream runs again what it is given; false if work of some stream was not joined to the origin.
  bool end();

  Stream *const origin;
  const std::thread::id thread = std::this_thread::get_id();
  bool isValid = true, isActive = true;
  Graph graph;

private:
  std::size_t laneOf(const Stream &stream) const;
  std::vector<Stream *> streams;
};

/// cudaErrorStreamCaptureUnsupported, and the capture is void, where this thread captures: for calls that no graph can
/// hold and that a capture forbids (cudaStreamCaptureModeThreadLocal).
cudaError_t unlessCapturing();

} // namespace fsdpc::emulated
