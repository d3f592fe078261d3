// One rank of an evaluation: its states, its values, and the rules that are checked at run time.
#pragma once

#include "ir/carried.h"
#include "ir/eval/function_plan.h"
#include "ir/eval/ranks.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc {

/// Runs functions one after the other, on its rank's thread. Shares only the rendezvous and the plans.
///
/// Detects these errors, in addition to those of the rendezvous:
///   - a value that is read after the `free` of its memory, or freed twice;
///   - a future that is used by anything but its one `wait`, or neither waited for nor returned;
///   - the operand of a collective that is freed, or whose state is written, before the wait (other ranks may still
///     read it);
///   - inputs, carried values and states that are missing or have another shape.
class RankRun final : private EvaluationEnvironment {
public:
  /// `taps` may be null. `carriedOver` is that of the module.
  RankRun(int64_t rank, Rendezvous &rendezvous, llvm::ArrayRef<CarriedOver> carriedOver,
          std::map<std::string, HostTensor> &states, std::map<std::string, HostTensor> *taps)
      : ownRank(rank), rendezvous(rendezvous), carriedOver(carriedOver), states(states), taps(taps) {}

  /// `batch` has the inputs of this micro-step. Returns early once any rank has failed.
  void run(const FunctionPlan &plan, int64_t microStep, const std::map<std::string, HostTensor> &batch);
  /// Results of all functions so far, by name. Of equal names the last one counts. The stash of segment S is the result
  /// grad.S.
  std::map<std::string, HostTensor> takeResults() &&;

private:
  using TensorPointer = std::shared_ptr<const HostTensor>;

  int64_t rank() const override { return ownRank; }
  int64_t worldSize() const override { return rendezvous.rankCount(); }
  int64_t batchRank() const override { return currentMicroStep * worldSize() + ownRank; }
  const MeshAxis &axis(llvm::StringRef name) const override { return *current->function.module()->axis(name); }
  const HostTensor &readState(llvm::StringRef name) override;
  void writeState(llvm::StringRef name, const HostTensor &value) override;
  void tap(const TapAttributes &tap, const HostTensor &value) override;
  void stash(llvm::StringRef segment, const HostTensor &value) override;
  const HostTensor &stashed(llvm::StringRef segment, const Type &type) override;
  std::vector<HostTensor> exchange(llvm::StringRef collective, const HostTensor &mine) override;

  TensorPointer argumentValue(const Argument &argument);
  TensorPointer gathered(const CarriedOver &over);
  void execute(const NodePlan &plan);
  void checkReads(const NodePlan &plan);
  void trackFutures(const NodePlan &plan);
  void freeMemory(const NodePlan &plan);
  void checkWrite(const NodePlan &plan);
  void returnResults(const NodePlan &plan);
  void finish();
  void fault(const llvm::Twine &message);
  std::string describe(const Node &node) const;

  const int64_t ownRank;
  Rendezvous &rendezvous;
  llvm::ArrayRef<CarriedOver> carriedOver;
  std::map<std::string, HostTensor> &states;
  std::map<std::string, HostTensor> *taps;
  std::map<std::string, TensorPointer> carried;
  std::map<std::string, TensorPointer> results;
  std::map<std::string, TensorPointer> stashes; ///< by segment
  llvm::StringMap<std::string> freedCarries;    ///< name of a carried value -> function that freed it

  // State of the current function.
  const FunctionPlan *current = nullptr;
  int64_t currentMicroStep = 0;
  const std::map<std::string, HostTensor> *inputs = nullptr;
  const Node *node = nullptr;
  std::vector<TensorPointer> slots;
  std::vector<const Node *> freedBy;           ///< per root slot; null: alive
  std::map<int32_t, const NodePlan *> started; ///< future's slot -> its start, until waited for
  HostTensor absent;                           ///< placeholder for a missing state
};

} // namespace fsdpc
