// The reference evaluator: any stage, in f64, N ranks in one process. A specification, not an engine.
//
// f64 and f32 values are kept in f64, integers exactly (up to 2^53): such a result is what exact arithmetic would give
// up to f64 rounding. Values of 16-bit float types are rounded to them, once per node and per step of a fused body:
// where those types stand in the IR is where programs round visibly.
#pragma once

#include "ir/module.h"
#include "ir/op.h"
#include <functional>
#include <vector>

namespace fsdpc {

struct HostTensor {
  Type type;
  std::vector<double> values; ///< row-major
  HostTensor() = default;
  explicit HostTensor(Type type, double fill = 0) : type(std::move(type)), values(this->type.elements(), fill) {}
};

/// What ops that see more than their operands get from the engine. One per rank.
class EvaluationEnvironment {
public:
  virtual ~EvaluationEnvironment() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t worldSize() const = 0;
  /// Whose samples these are: microStep * worldSize + rank.
  virtual int64_t batchRank() const = 0;
  virtual const HostTensor &readState(llvm::StringRef name) = 0;
  virtual void writeState(llvm::StringRef name, const HostTensor &value) = 0;
  virtual void tap(llvm::StringRef parameter, const HostTensor &value) = 0;
  virtual void stash(llvm::StringRef segment, const HostTensor &value) = 0;
  /// Of the last stash of that name; valid until the next.
  virtual const HostTensor &stashed(llvm::StringRef segment, const Type &type) = 0;
  /// The axis of the module's mesh, which must have it.
  virtual const MeshAxis &axis(llvm::StringRef name) const = 0;
  /// Every rank calls with its tensor and gets all of them in rank order.
  virtual std::vector<HostTensor> exchange(llvm::StringRef collective, const HostTensor &mine) = 0;
};

struct EvaluateContext {
  const AttributesBase *attributes;
  llvm::ArrayRef<const HostTensor *> operands;
  llvm::MutableArrayRef<HostTensor> results;    ///< typed, zero-filled
  EvaluationEnvironment *environment = nullptr; ///< null while folding constants
  template <class T>
  const T &get() const {
    return static_cast<const Attributes<T> *>(attributes)->value;
  }
};

/// Rounds what is of a 16-bit float type to it.
void roundToDType(HostTensor &tensor);

/// Evaluates one pure op on known tensors: what constant folding uses.
std::vector<HostTensor> evaluatePure(Op op, const AttributesBase *attributes,
                                     llvm::ArrayRef<const HostTensor *> operands, llvm::ArrayRef<Type> resultTypes);
HostTensor hostTensorOf(const Dense &dense, const Type &type);
Dense denseOf(const HostTensor &tensor);

/// What a run on all ranks starts from and leaves behind. Names are logical, so they hold for every stage.
struct EvaluationState {
  /// Per rank: state name -> tensor.
  std::vector<std::map<std::string, HostTensor>> states;
};

/// Fills the states of `module` from full parameters (logical names): whole, or cut into shards by their slots;
/// optimizer state starts at its initialValue, scalars at their defaults unless given in `scalars`. As many ranks as
/// the module has; in the train stage once more for every micro-step (Module::microSteps).
EvaluationState makeEvaluationState(const Module &module, const std::map<std::string, HostTensor> &parameters,
                                    const std::map<std::string, double> &scalars = {});
/// The full parameters held in `state`, put together again from shards.
std::map<std::string, HostTensor> fullParameters(const Module &module, const EvaluationState &state);

/// Results of functions by result name, one map per rank.
using RankResults = std::vector<std::map<std::string, HostTensor>>;

/// Runs `kinds` in order on all ranks (threads, one per rank, collectives rendezvous). `inputs[rank]`: by input name.
/// Results carried from one function to the next are found by name; what a step leaves to the next is found so by the
/// second of two steps, and made from the states for the first. Taps land in `taps` (rank 0's), if given.
/// Faults of the program that show while running (collective order differs between ranks, use after free, a wait
/// without start) are returned as errors.
llvm::Expected<RankResults> evaluate(const Module &module, llvm::ArrayRef<FunctionKind> kinds,
                                     const std::vector<std::map<std::string, HostTensor>> &inputs,
                                     EvaluationState &state, std::map<std::string, HostTensor> *taps = nullptr);

/// A whole step as a program runs it, from the sharded stage on: prologue, then micro_step, once for every micro-step;
/// tap_gradients if `taps` is given; update. `inputs[k * worldSize + rank]`: of micro-step k, as the train stage takes
/// them. Of equal result names the last call's count.
llvm::Expected<RankResults> evaluateStep(const Module &module,
                                         const std::vector<std::map<std::string, HostTensor>> &inputs,
                                         EvaluationState &state, std::map<std::string, HostTensor> *taps = nullptr);

} // namespace fsdpc
