// The problem: activation checkpointing within a budget. Backward reads values that forward computed. A value that is
// kept until then takes memory. A value that is freed takes the time to recompute it. A region is a contiguous range of
// forward nodes of one unit (forward_regions.h). There are up to 2^n ways to recompute some of its n nodes, and all
// regions of a model share one budget. So savedPoints finds a few good choices for each region, and a knapsack
// (saved_budget.h) picks one of them for each region.
//
// The idea. Matmuls, convolutions and attention count as expensive. The search is over sets of expensive nodes that
// must be kept: all sets of up to eight such nodes; if there are more, nine sets from none to all, highest time per
// byte first. A minimum cut (support/min_cut.h) decides about the other nodes. Its source is the available data: nodes
// that must be kept, and values from outside the region. Its sink is backward. Keeping results costs their bytes. Nodes
// on the sink's side are recomputed. Of all minimum cuts, the one nearest to the sink recomputes the fewest nodes. The
// cut only knows bytes, so each choice is then measured: each buffer counts once per region, an elementwise node costs
// the bytes that its loop moves to and from memory, views and broadcasts are free. A region that may offload has each
// choice a second time, with its bytes on the host; the time is then the part of two copies that does not overlap with
// compute. Dominated choices are dropped.
//
// An example, shortened from SavedPoints.KeepEverythingOrTheProductsOrTheInputAlone (tests/unit/saved_budget_test.cpp):
//
//     unit @block1 forward {
//       %h = matmul %x, %w                : f32[4,32]   // %x: the result of @block0
//       %g = gelu %h                      : f32[4,32]
//       %z = matmul %g, %v                : f32[4,8]
//       %y = add %x, %z                   : f32[4,8]    // read by the head, and by its backward
//     }
//     unit @block1 backward {
//       %dv = matmul %g, %dy transpose_a  : f32[32,8]
//       %dh = gelu_grad %h, %dg           : f32[4,32]
//       %dw = matmul %x, %dh transpose_a  : f32[8,32]
//     }
//
// Keeping everything takes 1152 bytes: %h, %g and %y (%x counts in @block0). Where %h must be kept, the cut recomputes
// %g: 640 bytes. Otherwise %h and %g are recomputed from %x: 128 bytes. No node needs %z again.
//
// What is checked. A poor choice costs time or memory, never a value: the checker (check/check_schedule.h) compares the
// plan with the values of the train module, and tests/program/same_bits_recompute.test compares gradients and weights
// with those of a program that keeps everything, byte for byte. min_cut_test compares 300 random graphs with all their
// cuts. saved_budget_test compares the knapsack with all combinations of four regions' choices, and checks for 101
// budgets that a larger budget never takes longer and none is exceeded. No test compares a region's choices with all
// its subsets. The cut may not find the minimum of bytes: two views of one value from outside the region count twice in
// it.
//
// Cost. A region of n nodes with m operands takes at most 256 cuts (nine with more than eight expensive nodes). Each is
// Dinic's algorithm on V vertices and E edges, both O(n + m): O(V^2 E) in the worst case. Measuring is linear in
// operands and uses, except for walks along views and over the uses of values from outside. Equal layers share the
// search: regions with one signatureOf are searched once. The knapsack takes regions x choices x steps: at most 4096
// steps, fewer where regions x steps would exceed 2^25.
#include "passes/train/saved_points.h"

#include "ir/ops/attention.h"
#include "ir/queries.h"
#include "passes/support/min_cut.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

namespace fsdpc {

namespace {

constexpr size_t maxInAllSets = 8;
/// For two copies that overlap with compute: enough to prefer keeping what fits.
constexpr double minCopyMicroseconds = 1e-3;

bool isAlias(const Node &node) { return infoOf(node).has(aliasesOperand); }

/// True for a part of a fused loop or of its operand's address.
bool isFused(const Node &node) { return infoOf(node).has(elementwise) || node.op() == Op::randomUniform; }

int64_t bytesOf(const Node &node) {
  int64_t bytes = 0;
  for (unsigned i = 0; i < node.resultCount(); ++i)
    bytes += node.result(i)->type().bytes();
  return bytes;
}

/// Arguments, states and constants are always available.
bool isAlwaysThere(const Value &root) {
  const Node *definer = root.definer();
  return !definer || definer->op() == Op::read || definer->op() == Op::constant;
}

bool isReadInBackward(const Value &value) {
  llvm::SmallVector<const Value *, 4> aliases = {&value};
  while (!aliases.empty())
    for (const Use *use = aliases.pop_back_val()->uses(); use; use = use->next()) {
      if (use->user()->section.phase == Phase::backward)
        return true;
      if (isAlias(*use->user()))
        aliases.push_back(use->user()->result());
    }
  return false;
}

class PointFinder {
public:
  PointFinder(const ForwardRegion &run, const Target &target) : run(run), target(target) {
    for (size_t i = 0; i < run.nodes.size(); ++i) {
      indexOf[run.nodes[i]] = i;
      if (run.mayRecompute[i] && isExpensive(*run.nodes[i]))
        expensive.push_back(i);
    }
    for (size_t i = 0; i < run.nodes.size(); ++i)
      for (Value *operand : run.nodes[i]->operands())
        if (run.mayRecompute[i] && !isInside(*operand) &&
            outside.try_emplace(operand, static_cast<uint32_t>(2 * (run.nodes.size() + outside.size()) + 2)).second)
          outsideCosts.push_back(costToKeep(*operand));
  }

  std::vector<SavedPoint> find() {
    points.push_back(measured(std::vector<bool>(run.nodes.size(), false)));
    if (expensive.size() <= maxInAllSets)
      tryAllSets();
    else
      tryChains();
    if (run.mayOffload)
      offloadAll();
    return undominated();
  }

private:
  void tryAllSets() {
    for (size_t set = 0; set < size_t(1) << expensive.size(); ++set) {
      std::vector<bool> kept(run.nodes.size(), false);
      for (size_t i = 0; i < expensive.size(); ++i)
        kept[expensive[i]] = set >> i & 1;
      points.push_back(measured(cut(kept)));
    }
  }

  /// Nodes that save the most bytes for their time are given up first, an eighth at a time.
  void tryChains() {
    llvm::stable_sort(expensive, [&](size_t a, size_t b) { return bytesPerTime(a) < bytesPerTime(b); });
    for (size_t part = 0; part <= maxInAllSets; ++part) {
      std::vector<bool> kept(run.nodes.size(), false);
      for (size_t i = 0; i < expensive.size() * part / maxInAllSets; ++i)
        kept[expensive[i]] = true;
      points.push_back(measured(cut(kept)));
    }
  }

  void offloadAll() {
    const std::vector<bool> everything(run.nodes.size(), true);
    double forward = 0;
    for (size_t i = 0; i < run.nodes.size(); ++i)
      forward += microsecondsOf(i, everything);
    for (size_t i = 0, count = points.size(); i < count; ++i) {
      SavedPoint point = points[i];
      const double backward = 2 * forward + point.microseconds;
      point.microseconds += minCopyMicroseconds + target.exposedCopyMicroseconds(point.bytes, forward) +
                            target.exposedCopyMicroseconds(point.bytes, backward);
      point.bytes = 0;
      point.isOffloaded = true;
      points.push_back(std::move(point));
    }
  }

  double bytesPerTime(size_t index) const {
    const Node &node = *run.nodes[index];
    return static_cast<double>(bytesOf(node)) / std::max(target.costMicroseconds(node), 1e-9);
  }

  /// Node i has an entry 2i + 2 and an exit 2i + 3. Keeping its results cuts the edge between them. Values from outside
  /// the region follow in the same way. 0 is the available data, 1 is backward.
  std::vector<bool> cut(const std::vector<bool> &kept) const {
    MinCut graph(static_cast<uint32_t>(2 * (run.nodes.size() + outside.size()) + 2));
    for (size_t i = 0; i < outsideCosts.size(); ++i) {
      auto entry = static_cast<uint32_t>(2 * (run.nodes.size() + i) + 2);
      graph.addEdge(0, entry, MinCut::unlimited);
      graph.addEdge(entry, entry + 1, outsideCosts[i]);
    }
    for (size_t i = 0; i < run.nodes.size(); ++i)
      addNode(graph, i, kept[i]);
    std::vector<bool> sinkSide = graph.sinkSide(0, 1), recomputed(run.nodes.size(), false);
    for (size_t i = 0; i < run.nodes.size(); ++i)
      recomputed[i] = run.mayRecompute[i] && !kept[i] && sinkSide[2 * i + 2];
    return recomputed;
  }

  void addNode(MinCut &graph, size_t i, bool isKept) const {
    const Node &node = *run.nodes[i];
    uint32_t entry = static_cast<uint32_t>(2 * i + 2);
    bool isFixed = isKept || !run.mayRecompute[i];
    // An alias has no memory of its own.
    graph.addEdge(entry, entry + 1, isAlias(node) && !isFixed ? MinCut::unlimited : bytesToKeep(node));
    if (run.readByBackward[i])
      graph.addEdge(entry + 1, 1, MinCut::unlimited);
    if (isFixed)
      return graph.addEdge(0, entry, MinCut::unlimited);
    for (Value *operand : node.operands()) {
      uint32_t from = isInside(*operand) ? static_cast<uint32_t>(2 * indexOf.lookup(operand->definer()) + 2)
                                         : outside.lookup(operand);
      graph.addEdge(from + 1, entry, MinCut::unlimited);
    }
  }

  bool isInside(const Value &value) const { return value.definer() && indexOf.contains(value.definer()); }

  static int64_t costToKeep(Value &value) {
    Value &root = *aliasRoot(&value);
    return isAlwaysThere(root) || isReadInBackward(root) ? 0 : root.type().bytes();
  }

  static int64_t bytesToKeep(const Node &node) {
    if (node.op() == Op::read || node.op() == Op::constant)
      return 0;
    return isAlias(node) ? costToKeep(*node.operand(0)) : bytesOf(node);
  }

  SavedPoint measured(std::vector<bool> recomputed) const {
    SavedPoint point{dropUnread(std::move(recomputed))};
    llvm::DenseSet<Value *> kept;
    // A value that another region keeps for its own backward is free for this one.
    auto keep = [&](Value *value) {
      Value *root = aliasRoot(value);
      bool isThere = isInside(*root) ? point.recomputed[indexOf.lookup(root->definer())] : costToKeep(*root) == 0;
      if (!isThere && !isAlwaysThere(*root) && kept.insert(root).second)
        point.bytes += root->type().bytes();
    };
    for (size_t i = 0; i < run.nodes.size(); ++i) {
      Node &node = *run.nodes[i];
      if (point.recomputed[i]) {
        llvm::for_each(node.operands(), keep);
        point.microseconds += microsecondsOf(i, point.recomputed);
        continue;
      }
      for (unsigned k = 0; k < node.resultCount(); ++k)
        if (isReadInBackward(*node.result(k)) && !isAlias(node))
          keep(node.result(k));
    }
    return point;
  }

  /// Keeps only the recomputed nodes that backward or another recomputed node reads.
  std::vector<bool> dropUnread(std::vector<bool> recomputed) const {
    for (size_t i = run.nodes.size(); i-- > 0;)
      recomputed[i] = recomputed[i] && (run.readByBackward[i] || isReadAgain(*run.nodes[i], recomputed));
    return recomputed;
  }

  bool isReadAgain(const Node &node, const std::vector<bool> &recomputed) const {
    for (unsigned i = 0; i < node.resultCount(); ++i)
      for (const Use *use = node.result(i)->uses(); use; use = use->next())
        if (auto found = indexOf.find(use->user()); found != indexOf.end() && recomputed[found->second])
          return true;
    return false;
  }

  double microsecondsOf(size_t i, const std::vector<bool> &recomputed) const {
    const Node &node = *run.nodes[i];
    if (isAlias(node) || node.op() == Op::broadcast)
      return 0;
    double microseconds = target.costMicroseconds(node);
    return isFused(node) ? microseconds * movedShare(node, recomputed) : microseconds;
  }

  bool isInLoop(const Node *node, const std::vector<bool> &recomputed) const {
    auto found = node ? indexOf.find(node) : indexOf.end();
    return found != indexOf.end() && recomputed[found->second] && isFused(*node);
  }

  /// The share of an elementwise node's bytes that its loop moves to or from memory.
  double movedShare(const Node &node, const std::vector<bool> &recomputed) const {
    int64_t all = 0, moved = 0;
    for (const Value *operand : node.operands()) {
      all += operand->type().bytes();
      moved += isInLoop(operand->definer(), recomputed) ? 0 : operand->type().bytes();
    }
    all += node.result()->type().bytes();
    for (const Use *use = node.result()->uses(); use; use = use->next())
      if (!isInLoop(use->user(), recomputed)) {
        moved += node.result()->type().bytes();
        break;
      }
    return all == 0 ? 0 : static_cast<double>(moved) / static_cast<double>(all);
  }

  std::vector<SavedPoint> undominated() {
    llvm::stable_sort(points, [](const SavedPoint &a, const SavedPoint &b) {
      return std::pair(a.microseconds, a.bytes) < std::pair(b.microseconds, b.bytes);
    });
    std::vector<SavedPoint> best;
    for (SavedPoint &point : points)
      if (best.empty() || point.bytes < best.back().bytes)
        best.push_back(std::move(point));
    return best;
  }

  const ForwardRegion &run;
  const Target &target;
  llvm::DenseMap<const Node *, size_t> indexOf;
  llvm::DenseMap<Value *, uint32_t> outside; ///< values from outside the region -> their entry in the cut's graph
  std::vector<int64_t> outsideCosts;         ///< in the order of the entries
  std::vector<size_t> expensive;
  std::vector<SavedPoint> points;
};

} // namespace

bool isExpensive(const Node &node) {
  switch (node.op()) {
  case Op::matmul:
  case Op::convolution:
  case Op::convolutionGradInput: return true;
  default: return isAttention(node);
  }
}

std::vector<SavedPoint> savedPoints(const ForwardRegion &run, const Target &target) {
  return PointFinder(run, target).find();
}

std::string signatureOf(const ForwardRegion &run, const Target &target) {
  std::string text;
  llvm::raw_string_ostream out(text);
  llvm::DenseMap<const Value *, size_t> numbers;
  out << (run.mayOffload ? "offload\n" : "");
  for (size_t i = 0; i < run.nodes.size(); ++i) {
    const Node &node = *run.nodes[i];
    out << infoOf(node).name << (run.mayRecompute[i] ? '+' : '-') << (run.readByBackward[i] ? '+' : '-')
        << llvm::format("%a", target.costMicroseconds(node));
    for (const Value *operand : node.operands()) {
      auto [number, isNew] = numbers.try_emplace(operand, numbers.size());
      out << ' ' << number->second;
      if (isNew)
        out << operand->type() << isAlwaysThere(*aliasRoot(const_cast<Value *>(operand))) << isReadInBackward(*operand);
    }
    for (unsigned k = 0; k < node.resultCount(); ++k) {
      numbers.try_emplace(node.result(k), numbers.size());
      out << ' ' << node.result(k)->type() << isReadInBackward(*node.result(k));
    }
    out << '\n';
  }
  return text;
}

} // namespace fsdpc
