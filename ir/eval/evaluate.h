// The reference evaluator: any stage, in f64, N ranks in one process. It is a specification, not an engine.
//
// f64 and f32 values are kept in f64, integers exactly (up to 2^53). So results match exact arithmetic up to f64
// rounding. Values of 16-bit float types are rounded to their type, once per node and per step of a fused body. These
// types mark where programs round visibly.
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

struct TapAttributes;

/// The interface through which ops access more than their operands. One per rank.
class EvaluationEnvironment {
public:
  virtual ~EvaluationEnvironment() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t worldSize() const = 0;
  /// Identifies the samples: microStep * worldSize + rank.
  virtual int64_t batchRank() const = 0;
  virtual const HostTensor &readState(llvm::StringRef name) = 0;
  virtual void writeState(llvm::StringRef name, const HostTensor &value) = 0;
  virtual void tap(const TapAttributes &tap, const HostTensor &value) = 0;
  virtual void stash(llvm::StringRef segment, const HostTensor &value) = 0;
  /// The value of the last stash of that name, valid until the next stash.
  virtual const HostTensor &stashed(llvm::StringRef segment, const Type &type) = 0;
  /// The axis of the module's mesh. It must exist.
  virtual const MeshAxis &axis(llvm::StringRef name) const = 0;
  /// Every rank calls it with its tensor and receives all tensors in rank order.
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

/// Rounds values of 16-bit float types to their type.
void roundToDType(HostTensor &tensor);

/// Evaluates one pure op on known tensors, for constant folding.
std::vector<HostTensor> evaluatePure(Op op, const AttributesBase *attributes,
                                     llvm::ArrayRef<const HostTensor *> operands, llvm::ArrayRef<Type> resultTypes);
HostTensor hostTensorOf(const Dense &dense, const Type &type);
Dense denseOf(const HostTensor &tensor);

/// The states of all ranks before and after a run. Names are logical, so they are valid in every stage.
struct EvaluationState {
  /// Per rank: state name -> tensor.
  std::vector<std::map<std::string, HostTensor>> states;
};

/// Fills the states of `module` from full parameters (logical names), unsharded or cut into shards by their slots.
/// Optimizer state starts at its initialValue, scalars at their defaults unless given in `scalars`. The number of ranks
/// is the module's, in the train stage multiplied by the number of micro-steps (Module::microSteps).
EvaluationState makeEvaluationState(const Module &module, const std::map<std::string, HostTensor> &parameters,
                                    const std::map<std::string, double> &scalars = {});
/// The full parameters stored in `state`, reassembled from shards.
std::map<std::string, HostTensor> fullParameters(const Module &module, const EvaluationState &state);

/// Results of functions by result name, one map per rank.
using RankResults = std::vector<std::map<std::string, HostTensor>>;

/// Runs `start`, if there is one, then `kinds` in order on all ranks (one thread per rank, collectives rendezvous).
/// `inputs[rank]` maps input names to tensors. Results carried from one function to the next are found by name. A value
/// that one step carries over to the next is found the same way in the second of two steps, and computed from the
/// states in the first. Taps of rank 0 are stored in `taps`, if given. Errors that show only at run time (ranks issue
/// collectives in different order, use after free, a wait without start) are returned.
llvm::Expected<RankResults> evaluate(const Module &module, llvm::ArrayRef<FunctionKind> kinds,
                                     const std::vector<std::map<std::string, HostTensor>> &inputs,
                                     EvaluationState &state, std::map<std::string, HostTensor> *taps = nullptr);

/// An entire step as a program runs it, from the sharded stage on: prologue for every micro-step, then micro_step for
/// every micro-step, then tap_gradients if `taps` is given, then update. `inputs[k * worldSize + rank]` are those of
/// micro-step k, as in the train stage. Of results with equal names, those of the last call are returned.
llvm::Expected<RankResults> evaluateStep(const Module &module,
                                         const std::vector<std::map<std::string, HostTensor>> &inputs,
                                         EvaluationState &state, std::map<std::string, HostTensor> *taps = nullptr);

} // namespace fsdpc
