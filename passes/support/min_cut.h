// Minimum cut between a source and a sink.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdpc {

/// A directed graph with capacities, and its minimum cut by Dinic's algorithm (Dinitz, 1970: at most n^2 m steps, near
/// linear on the shallow graphs it is used for). Capacities are sums of bytes; `unlimited` edges are never cut where a
/// finite cut exists.
class MinCut {
public:
  static constexpr int64_t unlimited = int64_t(1) << 60;

  explicit MinCut(uint32_t nodes) : edgesOf(nodes) {}
  void addEdge(uint32_t from, uint32_t to, int64_t capacity);

  /// The nodes on the sink's side of the minimum cut that is nearest to the sink.
  std::vector<bool> sinkSide(uint32_t source, uint32_t sink);

private:
  struct Edge {
    uint32_t to;
    int64_t left;
  };
  bool findLevels(uint32_t source, uint32_t sink);
  bool augment(uint32_t source, uint32_t sink);

  std::vector<Edge> edges; ///< edge i and its reverse i ^ 1 are adjacent
  std::vector<std::vector<uint32_t>> edgesOf;
  std::vector<int32_t> level;
  std::vector<std::size_t> tried; ///< per node, edges that are dead ends on this level graph
};

} // namespace fsdpc
