// The minimum cut, against every cut of small random graphs.
#include "passes/support/min_cut.h"
#include "gtest/gtest.h"
#include <algorithm>
#include <random>

namespace fsdpc {
namespace {

struct Edge {
  uint32_t from, to;
  int64_t capacity;
};

int64_t valueOf(const std::vector<Edge> &edges, const std::vector<bool> &sinkSide) {
  int64_t value = 0;
  for (const Edge &edge : edges)
    value += !sinkSide[edge.from] && sinkSide[edge.to] ? edge.capacity : 0;
  return value;
}

/// Source 0, sink 1. Returns the minimum cut with the fewest nodes on the sink side.
std::vector<bool> minCut(uint32_t nodes, const std::vector<Edge> &edges) {
  std::vector<bool> best;
  for (uint32_t set = 0; set < 1u << nodes; ++set) {
    if ((set & 3) != 2)
      continue;
    std::vector<bool> sinkSide(nodes);
    for (uint32_t node = 0; node < nodes; ++node)
      sinkSide[node] = set >> node & 1;
    auto key = [&](const std::vector<bool> &side) {
      return std::pair(valueOf(edges, side), std::count(side.begin(), side.end(), true));
    };
    if (best.empty() || key(sinkSide) < key(best))
      best = sinkSide;
  }
  return best;
}

TEST(MinCut, IsTheLeastOfAllCutsAndTheNearestToTheSink) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    uint32_t nodes = 3 + random() % 6;
    std::vector<Edge> edges;
    MinCut graph(nodes);
    for (uint32_t i = 0, count = random() % 16; i < count; ++i) {
      edges.push_back({static_cast<uint32_t>(random() % nodes), static_cast<uint32_t>(random() % nodes),
                       static_cast<int64_t>(random() % 5)});
      graph.addEdge(edges.back().from, edges.back().to, edges.back().capacity);
    }
    EXPECT_EQ(graph.sinkSide(0, 1), minCut(nodes, edges)) << "round " << round;
  }
}

TEST(MinCut, LeavesUnlimitedEdgesWhole) {
  MinCut graph(4);
  graph.addEdge(0, 2, MinCut::unlimited);
  graph.addEdge(2, 3, 1000);
  graph.addEdge(3, 1, MinCut::unlimited);
  EXPECT_EQ(graph.sinkSide(0, 1), (std::vector<bool>{false, true, false, true}));
}

} // namespace
} // namespace fsdpc
