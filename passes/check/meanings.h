// What one function of a train or planned module computes, as terms over logical parameters.
#pragma once

#include "passes/check/terms.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include <map>

namespace fsdpc::check {

/// One parameter's elements (or the like: gradient, moment) in a flat run of them; the term has the parameter's shape,
/// or any other of as many elements.
struct Slot {
  int64_t offset = 0;
  int64_t elements = 0;
  TermId term = -1;
};

/// A flat run of logical tensors by ascending offset: whole, or this rank's shard of it. What no slot covers means
/// nothing.
struct Segment {
  bool isShard = false;
  int64_t elements = 0; ///< of the whole
  std::vector<Slot> slots = {};
};

/// What a value is: a tensor, or a segment. Neither: a token, or the result of a free.
struct Meaning {
  TermId term = -1;
  int32_t segment = -1; ///< index into FunctionMeaning::segments
};

/// A state in logical terms: a parameter or scalar by its name, optimizer state by its owner and field.
struct LogicalName {
  std::string owner, field;
  friend auto operator<=>(const LogicalName &, const LogicalName &) = default;
  std::string text() const { return field.empty() ? owner : owner + "\n" + field; }
};

/// Interprets a function with its states and arguments as symbols. Results, taps and states are read off afterwards.
class FunctionMeaning {
public:
  /// `train` is the train module whose parameters and gradients give segments their meaning; it may be `module` itself.
  FunctionMeaning(const Module &module, const Module &train, Terms &terms);
  llvm::Error read(const Function &function);

  struct Result {
    std::string name;
    Meaning meaning;
  };
  struct Tap {
    std::string parameter;
    TermId term;
    const Node *node;
  };
  const Segment &segment(Meaning meaning) const { return segments[meaning.segment]; }

  std::vector<Result> results;
  std::vector<Tap> taps;
  /// Every state that was written, by logical name; parameters of a segment each on their own.
  std::map<LogicalName, TermId> written;

private:
  llvm::Error readArgument(const Function &function, const Argument &argument);
  llvm::Error readNode(const Node &node);
  llvm::Error readTensorNode(const Node &node);
  llvm::Error readView(const Node &node);
  llvm::Error readPack(const Node &node);
  llvm::Error readGather(const Node &node);
  llvm::Error readReduction(const Node &node);
  llvm::Error readOptimizer(const Node &node);
  llvm::Expected<llvm::SmallVector<TermId, 8>> operandsOfSlot(const Node &node, const Slot &slot);
  llvm::Error readWrite(const Node &node);
  llvm::Error recordSegment(const Node &node, const State &state, const Segment &segment);
  llvm::Error readTap(const Node &node);
  llvm::Error checkSpansAllRanks(const Node &node) const;

  Meaning entryOf(const State &state);
  Meaning stateSegment(const State &layout, llvm::StringRef field, DType dtype);
  Meaning carriedSegment(const State &layout);
  /// The segment whose slots a state has: itself, or the owner of optimizer state; null for others.
  const State *layoutOf(const State &state) const;
  bool splits() const { return module.worldSize() > 1; }
  Meaning add(Segment segment);
  Meaning of(const Value *value) const { return meanings.lookup(value); }
  void set(const Node &node, Meaning meaning) { meanings[node.result()] = meaning; }

  const Module &module;
  const Module &train;
  Terms &terms;
  const llvm::StringMap<Type> gradients; ///< of the train module, by parameter
  std::deque<Segment> segments;
  llvm::DenseMap<const Value *, Meaning> meanings;
  llvm::DenseMap<const State *, Meaning> current; ///< version of each state
};

/// Gradients that the train module's micro_step returns, by parameter.
llvm::StringMap<Type> gradientsOf(const Module &train);
/// `p` of a result or argument called grad.p, if p is a state of this role; else null.
const State *ownerOfGradient(const Module &module, llvm::StringRef name, StateRole role);

} // namespace fsdpc::check
