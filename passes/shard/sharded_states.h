// The states of a sharded program: which segments replace which parameters, and the states that belong to a segment.
#pragma once

#include "passes/options.h"
#include "passes/shard/accumulators.h"
#include "passes/shard/row_tables.h"
#include "passes/shard/running_statistics.h"
#include "passes/support/optimizer_layout.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

struct SlotOf {
  const State *segment = nullptr; ///< or region of buffers; null: the state is neither parameter nor buffer
  const SegmentSlot *slot = nullptr;
};

inline bool isTrainedSegment(const State &state) { return state.role == StateRole::segment && state.trainable; }

class ShardedStates {
public:
  /// Requires: the module is in the train stage and has its mesh.
  ShardedStates(Module &module, const RowTables &tables, const PipelineOptions &options)
      : module(module), tables(tables), options(options), scalars(updateScalars(module)) {}

  /// Adds regions of buffers; segments and, for each, the optimizer's fields, the accumulator of its gradients and its
  /// replica, where it has one. Requires: reads of parameters still exist. They show which parameters are rounded and
  /// which backward reads.
  void add(const OptimizerLayout &layout, Accumulators &accumulators, RunningStatistics &statistics);
  /// Removes the states that the added ones replace.
  void dropParameterStates();

  SlotOf find(llvm::StringRef parameter) const { return slots.lookup(parameter); }
  const Unit &unitOf(const State &segment) const { return module.units[module.unitIndex(segment.unit)]; }
  /// The state that is gathered or read instead of the segment: its unsharded copy, or its rounded copy. May be null.
  const State *replicaOf(const State &segment) const { return replicas.lookup(segment.name); }
  /// The state that a read of one of the segment's parameters reads: the replica, unless it is rounded and this use is
  /// not.
  const State &sourceOf(const Node &read, const State &segment) const;
  /// The type that the gradients of a trained segment are sent in.
  DType reducedType(const State &segment) const { return reducedIn.lookup(segment.slots.front().parameter); }
  /// The scalar states that the update of a trained segment reads, in operand order.
  const std::vector<std::string> &scalarsOf(const State &segment) const {
    return scalars.find(segment.slots.front().parameter)->second;
  }
  /// True for the segment of a row table.
  bool isRowTable(const State &segment) const { return tables.contains(segment.slots.front().parameter); }
  bool exchangesGradient(const State &segment) const {
    return tables.exchangesGradient(segment.slots.front().parameter);
  }

private:
  void collectRounded();
  void collectReduced();
  llvm::StringSet<> readInBackward() const;
  void addOptimizerStates(const State &segment, const OptimizerLayout &layout);
  void addReplica(const State &segment);

  Module &module;
  const RowTables &tables;
  const PipelineOptions &options;
  const llvm::StringMap<std::vector<std::string>> scalars; ///< by trained parameter
  llvm::StringMap<DType> rounded;                          ///< parameters that steps use only in this 16-bit type
  llvm::StringMap<DType> reducedIn;                        ///< by trained parameter
  llvm::StringMap<const State *> replicas;                 ///< by the segment that they copy
  llvm::StringMap<SlotOf> slots;                           ///< by parameter
};

} // namespace fsdpc
