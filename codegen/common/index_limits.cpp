#include "codegen/common/index_limits.h"

#include "ir/moved_elements.h"
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "ir/ops/loss.h"
#include "llvm/ADT/DenseSet.h"

namespace fsdpc {

namespace {

/// Inputs with more elements are followed only through nodes that keep the order of elements. Uses of parts of them are
/// not checked.
constexpr int64_t maxElements = int64_t(1) << 24;
constexpr size_t maxRanges = 4096;

/// A chain of nothing but casts.
bool isCastChain(const Node &node) {
  if (node.op() != Op::fused)
    return false;
  const Expression &body = node.get<FusedAttributes>().body;
  return body.operandCount == 1 && node.resultCount() == 1 &&
         llvm::all_of(body.steps, [](const Expression::Step &step) { return step.op == Op::cast; });
}

/// The result has the operand's elements in the same order. Of a gather, only this rank's part is followed: other ranks
/// follow theirs.
bool keepsOrder(const Node &node) {
  if (node.op() == Op::allGather || node.op() == Op::allGatherStart || node.op() == Op::wait)
    return true;
  return node.op() == Op::reshape || node.op() == Op::copy || node.op() == Op::cast || isCastChain(node);
}

struct Limit {
  int64_t limit = 0;
  std::optional<int64_t> ignored;
  friend bool operator==(const Limit &, const Limit &) = default;
};

std::optional<Limit> limitAt(const Node &node, unsigned operand) {
  switch (node.op()) {
  case Op::gather:
    if (operand == 1)
      return Limit{node.operand(0)->type().dim(node.get<AxisAttributes>().axis), std::nullopt};
    return std::nullopt;
  case Op::gatherRows:
    if (operand == 1)
      return Limit{node.get<RowsAttributes>().rows, std::nullopt};
    return std::nullopt;
  case Op::linearCrossEntropy:
  case Op::linearCrossEntropyGrad:
    if (operand == (node.op() == Op::linearCrossEntropy ? 2u : 3u))
      return Limit{classesOf(node), node.get<LinearLossAttributes>().loss.ignoreIndex};
    return std::nullopt;
  case Op::crossEntropy:
  case Op::nll:
    if (operand == 1)
      return Limit{node.operand(0)->type().dim(-1), node.get<LossAttributes>().ignoreIndex};
    return std::nullopt;
  default: return std::nullopt;
  }
}

/// A value that holds elements of the input: all of them in their order, or those that `sources` lists.
struct Part {
  const Value *value;
  std::optional<ElementSources> sources;
};

class InputRanges {
public:
  explicit InputRanges(const Type &type) : rowElements(type.elements() / std::max<int64_t>(1, type.dim(0))) {}

  void follow(const Value &input) {
    std::vector<Part> pending = {{&input, std::nullopt}};
    llvm::DenseSet<const Value *> seen;
    while (!pending.empty()) {
      Part part = std::move(pending.back());
      pending.pop_back();
      if (!seen.insert(part.value).second)
        continue;
      for (const Use *use = part.value->uses(); use; use = use->next()) {
        if (std::optional<Limit> limit = limitAt(*use->user(), use->index()))
          restrict(part, *limit);
        if (use->index() == 0)
          if (std::optional<Part> next = resultOf(*use->user(), part, input))
            pending.push_back(std::move(*next));
      }
    }
  }

  std::vector<IndexRange> ranges() const {
    if (limits.empty())
      return whole ? std::vector<IndexRange>{{0, rowElements, whole->limit, whole->ignored}}
                   : std::vector<IndexRange>();
    std::vector<IndexRange> result;
    for (int64_t i = 0; i < rowElements; ++i) {
      const std::optional<Limit> limit = met(whole, limits[static_cast<size_t>(i)]);
      if (!limit)
        continue;
      bool goesOn = !result.empty() && result.back().first + result.back().count == i &&
                    result.back().limit == limit->limit && result.back().ignored == limit->ignored;
      if (!goesOn)
        result.push_back({i, 0, limit->limit, limit->ignored});
      ++result.back().count;
    }
    return result.size() <= maxRanges ? result : std::vector<IndexRange>();
  }

private:
  static std::optional<Limit> met(const std::optional<Limit> &a, const std::optional<Limit> &b) {
    if (!a || !b)
      return a ? a : b;
    return Limit{std::min(a->limit, b->limit), a->ignored == b->ignored ? a->ignored : std::nullopt};
  }

  /// The node's result as a part, if the node only moves elements.
  static std::optional<Part> resultOf(const Node &node, const Part &part, const Value &input) {
    if (keepsOrder(node))
      return Part{node.result(), part.sources};
    bool isFollowed = node.resultCount() == 1 && node.result()->type().isTensor() &&
                      node.result()->type().elements() <= maxElements && input.type().elements() <= maxElements;
    isFollowed &= !part.sources || static_cast<int64_t>(part.sources->size()) == node.operand(0)->type().elements();
    std::optional<ElementSources> moved = isFollowed ? movedElements(node) : std::nullopt;
    if (!moved)
      return std::nullopt;
    return Part{node.result(), part.sources ? composed(*moved, *part.sources) : std::move(moved)};
  }

  void restrict(const Part &part, const Limit &limit) {
    if (!part.sources) {
      whole = met(whole, limit);
      return;
    }
    limits.resize(static_cast<size_t>(rowElements));
    for (int64_t source : *part.sources)
      if (source >= 0) {
        std::optional<Limit> &known = limits[static_cast<size_t>(source % rowElements)];
        known = met(known, limit);
      }
  }

  int64_t rowElements;
  std::optional<Limit> whole;               ///< of uses of the entire input
  std::vector<std::optional<Limit>> limits; ///< of uses of parts, per element of a sample; empty: none
};

} // namespace

llvm::StringMap<std::vector<IndexRange>> indexRanges(const Module &module) {
  llvm::StringMap<InputRanges> inputs;
  for (const std::unique_ptr<Function> &function : module.functions)
    for (const Argument &argument : function->arguments()) {
      const Type &type = argument.value->type();
      if (argument.kind == ArgumentKind::input && isInteger(type.dtype()) && type.rank() > 0 && type.elements() > 0)
        inputs.try_emplace(argument.name, type).first->second.follow(*argument.value);
    }
  llvm::StringMap<std::vector<IndexRange>> ranges;
  for (const auto &input : inputs)
    ranges[input.getKey()] = input.getValue().ranges();
  return ranges;
}

} // namespace fsdpc
