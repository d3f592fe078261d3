// The values that the functions of a train or planned module compute, as terms over logical parameters.
#pragma once

#include "ir/carried.h"
#include "passes/check/rank_group.h"
#include "passes/check/terms.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include <map>

namespace fsdpc::check {

/// The elements of one parameter (or gradient, moment, ...) in a flat region. The term has the parameter's shape, or
/// any other shape with as many elements.
struct Slot {
  int64_t offset = 0;
  int64_t elements = 0;
  TermId term = -1;
};

/// A flat sequence of logical tensors by ascending offset: unsharded, or the part that this rank holds as a member of
/// its group of `split`. Elements outside of slots have no meaning.
struct Segment {
  RankGroup split = {};
  int64_t elements = 0; ///< when unsharded
  std::vector<Slot> slots = {};

  bool isUnsharded() const { return split.isOneRank(); }
};

/// Elements [from, from + elements) of each rank's part of a segment: of this rank's, or of all ranks', one after the
/// other.
struct Piece {
  int32_t segment = -1; ///< index into StepMeaning::segments
  int64_t from = 0, elements = 0;
  bool isOfAllRanks = false;
};

/// The meaning of a value: a tensor, a segment, or a piece, which can only be gathered and tapped. None of them: a
/// token, or the result of a free.
struct Meaning {
  TermId term = -1;
  int32_t segment = -1; ///< index into StepMeaning::segments
  int32_t piece = -1;   ///< index into StepMeaning::pieces
};

/// The logical name of a state: a parameter or scalar by its name, optimizer state by its owner and field.
struct LogicalName {
  std::string owner, field;
  friend auto operator<=>(const LogicalName &, const LogicalName &) = default;
  std::string text() const { return field.empty() ? owner : owner + "\n" + field; }
};

/// Interprets consecutive functions. The states before the first and the inputs are symbols. A value that is carried
/// from one function to the next keeps its term, and a state has the term last written to it. Results, taps and new
/// states of the last function are available afterwards.
///
/// Where a step has several micro-steps, prologue and micro_step of a planned module are interpreted once for all their
/// calls, by induction (accumulation.cpp): an accumulator holds the sum of the earlier calls, and each call adds a term
/// of its own micro-step to it and writes nothing else. So after the last call it is the sum of that term over the
/// micro-steps.
class StepMeaning {
public:
  /// `train` is the train module whose parameters define the meaning of segments; it may be `module` itself.
  StepMeaning(const Module &module, const Module &train, Terms &terms)
      : module(module), train(train), terms(terms), carriedOver(carriedOverSteps(module)) {}
  llvm::Error read(const Function &function);
  /// Called after the last function of a step: checks that the values passed to the next step are the ones that it
  /// assumes.
  llvm::Error checkCarriedOver();

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
  /// The current value of an accumulator of gradients.
  const Segment &accumulated(const State &accumulator) { return segment(versionOf(accumulator)); }
  /// Called after the last function of a step: checks that every accumulator is zero again.
  llvm::Error checkAccumulatorsAreZero();

  std::vector<Result> results;
  std::vector<Tap> taps;
  /// Every written state, by logical name; each parameter of a segment separately.
  std::map<LogicalName, TermId> written;

private:
  llvm::Error readArgument(const Argument &argument);
  llvm::Expected<Meaning> gatherOf(const Node &gather, Meaning shard);
  llvm::Error readNode(const Node &node);
  llvm::Error readTensorNode(const Node &node);
  void readCast(const Node &node, DType dtype);
  void readState(const Node &node);
  llvm::Error readView(const Node &node);
  llvm::Error readPack(const Node &node);
  llvm::Error readTakeShard(const Node &node);
  llvm::Error readGather(const Node &node);
  llvm::Error readReduction(const Node &node);
  llvm::Error readGatherRows(const Node &node);
  llvm::Error readScatterRows(const Node &node);
  llvm::Error readLoop(const Node &node);
  llvm::Error readOptimizer(const Node &node);
  llvm::Error readSquareSum(const Node &node);
  llvm::Expected<llvm::SmallVector<TermId, 8>> operandsOfSlot(const Node &node, const Segment &first, size_t slot);
  void readReturn(const Node &node);
  llvm::Error readWrite(const Node &node);
  llvm::Error recordSegment(const Node &node, const State &state, const Segment &segment);
  llvm::Error checkReplicas(const Function &function);
  llvm::Error readTap(const Node &node);
  llvm::Error readTapOfParts(const Node &node);
  llvm::Error readPiece(const Node &node, Meaning shard);
  llvm::Error gatherPiece(const Node &node, Piece piece);
  void readStash(const Node &node);
  llvm::Error readUnstash(const Node &node);

  llvm::Error beginRepeated(const Function &function);
  llvm::Error finishRepeated();
  Meaning partialOf(const State &accumulator);
  bool isZero(Meaning meaning) const;
  const State *addsToAccumulator(const Node &node) const;
  llvm::Error readAccumulation(const Node &node);
  llvm::Error writeStatistics(const Node &node, const State &run, Meaning meaning);
  llvm::Error writeAccumulator(const Node &node, const State &accumulator, Meaning meaning);
  llvm::Expected<TermId> summandOf(const Node &node, TermId sum, TermId accumulator) const;
  bool isLaidOut(const Segment &segment, const State &state) const;

  Meaning entryOf(const State &state);
  Meaning versionOf(const State &state);
  /// The segment, or region of buffers, whose slots a state has: itself, or the owner of optimizer state or a replica;
  /// null for others.
  const State *layoutOf(const State &state) const;
  /// How a segment-shaped state is split.
  RankGroup splitOf(const State &state) const;
  RankGroup groupOf(const Node &node) const;
  Meaning add(Segment segment);
  Meaning of(const Value *value) const { return meanings.lookup(value); }
  void set(const Node &node, Meaning meaning) { meanings[node.result()] = meaning; }

  const Module &module;
  const Module &train;
  Terms &terms;
  const std::vector<CarriedOver> carriedOver;
  std::deque<Segment> segments;
  std::vector<Piece> pieces;
  struct Tapped {
    int64_t elements = 0; ///< of each rank's part
    TermId term = -1;
  };
  llvm::StringMap<Tapped> tapped; ///< by parameter: what taps of parts have passed on
  llvm::DenseMap<const Value *, Meaning> meanings;
  llvm::DenseMap<const State *, Meaning> current; ///< version of each state
  llvm::DenseMap<const State *, const Node *> writers;
  llvm::StringMap<Meaning> carried; ///< results of earlier functions
  llvm::StringMap<Meaning> stashes; ///< by segment
  /// True while interpreting a function that represents several calls. Below: its accumulators before each call, and
  /// after the last.
  bool isRepeated = false;
  llvm::DenseMap<const State *, Meaning> partial, complete;
};

/// `p` of a result or argument called grad.p, if p is a state of this role; else null.
const State *ownerOfGradient(const Module &module, llvm::StringRef name, StateRole role);

} // namespace fsdpc::check
