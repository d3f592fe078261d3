#include "passes/support/min_cut.h"

#include <algorithm>

namespace fsdpc {

void MinCut::addEdge(uint32_t from, uint32_t to, int64_t capacity) {
  edgesOf[from].push_back(static_cast<uint32_t>(edges.size()));
  edges.push_back({to, capacity});
  edgesOf[to].push_back(static_cast<uint32_t>(edges.size()));
  edges.push_back({from, 0});
}

bool MinCut::findLevels(uint32_t source, uint32_t sink) {
  level.assign(edgesOf.size(), -1);
  std::vector<uint32_t> queue = {source};
  level[source] = 0;
  for (size_t i = 0; i < queue.size(); ++i)
    for (uint32_t edge : edgesOf[queue[i]])
      if (edges[edge].left > 0 && level[edges[edge].to] < 0) {
        level[edges[edge].to] = level[queue[i]] + 1;
        queue.push_back(edges[edge].to);
      }
  return level[sink] >= 0;
}

/// One more path of the level graph; false if there is none.
bool MinCut::augment(uint32_t source, uint32_t sink) {
  std::vector<uint32_t> path;
  for (uint32_t node = source; node != sink;) {
    if (tried[node] == edgesOf[node].size()) {
      if (path.empty())
        return false;
      node = edges[path.back() ^ 1].to;
      path.pop_back();
      ++tried[node];
      continue;
    }
    uint32_t edge = edgesOf[node][tried[node]];
    if (edges[edge].left > 0 && level[edges[edge].to] == level[node] + 1) {
      path.push_back(edge);
      node = edges[edge].to;
    } else {
      ++tried[node];
    }
  }
  int64_t flow = unlimited;
  for (uint32_t edge : path)
    flow = std::min(flow, edges[edge].left);
  for (uint32_t edge : path) {
    edges[edge].left -= flow;
    edges[edge ^ 1].left += flow;
  }
  return true;
}

std::vector<bool> MinCut::sinkSide(uint32_t source, uint32_t sink) {
  while (findLevels(source, sink)) {
    tried.assign(edgesOf.size(), 0);
    while (augment(source, sink)) {
    }
  }
  std::vector<bool> reaches(edgesOf.size(), false);
  std::vector<uint32_t> queue = {sink};
  reaches[sink] = true;
  for (size_t i = 0; i < queue.size(); ++i)
    for (uint32_t edge : edgesOf[queue[i]])
      if (uint32_t from = edges[edge].to; edges[edge ^ 1].left > 0 && !reaches[from]) {
        reaches[from] = true;
        queue.push_back(from);
      }
  return reaches;
}

} // namespace fsdpc
