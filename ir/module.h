// A module: parameters, units, states, functions. It has a stage, and verify.h checks the rules of that stage.
#pragma once

#include "ir/facts.h"
#include "ir/node.h"
#include "ir/stage.h"
#include "llvm/ADT/StringMap.h"
#include <deque>
#include <map>
#include <optional>

namespace fsdpc {

class Module;

/// The functions that a module may have. `forward` exists only in the graph stage, the others from the train stage on.
/// A training step calls prologue, micro_step, tap_gradients (only when gradients are to be saved) and update, in this
/// order. prologue and micro_step are called once per micro-step (Module::microSteps). All calls of prologue precede
/// those of micro_step. `start` is called once, before all others: it writes the states of role table.
enum class FunctionKind : uint8_t {
  forward,
  prologue,
  microStep,
  tapGradients,
  update,
  evalStep,
  predict,
  exportWeights,
  exportAverages,
  start
};
constexpr bool runsInEveryStep(FunctionKind kind) {
  return kind == FunctionKind::prologue || kind == FunctionKind::microStep || kind == FunctionKind::update;
}
constexpr bool exportsWeights(FunctionKind kind) {
  return kind == FunctionKind::exportWeights || kind == FunctionKind::exportAverages;
}
constexpr bool runsInEveryMicroStep(FunctionKind kind) {
  return kind == FunctionKind::prologue || kind == FunctionKind::microStep;
}
inline constexpr FunctionKind allFunctionKinds[] = {
    FunctionKind::forward,        FunctionKind::prologue, FunctionKind::microStep, FunctionKind::tapGradients,
    FunctionKind::update,         FunctionKind::evalStep, FunctionKind::predict,   FunctionKind::exportWeights,
    FunctionKind::exportAverages, FunctionKind::start};
/// forward prologue micro_step tap_gradients update eval_step predict export export_averages start
llvm::StringRef nameOf(FunctionKind kind);

enum class ArgumentKind : uint8_t {
  input, ///< a tensor of the batch, named after the graph input (or labels, sample_weight); same place in all functions
  carry, ///< a result of an earlier function of the step, by the result's name
};

struct Argument {
  ArgumentKind kind;
  std::string name;
  std::unique_ptr<Value> value;
};

/// A list of nodes without branches that ends in one `return` node. The operands of `return` are the results, named by
/// its attribute. Results that no later function uses are read by the runtime (loss, count, model outputs).
class Function {
public:
  Function(Module *module, FunctionKind kind) : parent(module), functionKind(kind) {}
  ~Function();
  Module *module() const { return parent; }
  FunctionKind kind() const { return functionKind; }

  Value *addArgument(ArgumentKind kind, llvm::StringRef name, Type type);
  llvm::ArrayRef<Argument> arguments() const { return argumentList; }
  Value *argument(llvm::StringRef name) const; ///< null if there is none
  void eraseArgument(unsigned index);          ///< must be unused

  Node *front() const { return first; }
  Node *back() const { return last; }
  bool empty() const { return !first; }
  size_t size() const { return count; }
  /// The `return` node; null while the function is being built.
  Node *returnNode() const;

  class Iterator {
  public:
    explicit Iterator(Node *node) : node(node), following(node ? node->next() : nullptr) {}
    Node *operator*() const { return node; }
    /// The iterator has already read the next node, so the current one may be erased or moved.
    Iterator &operator++() {
      *this = Iterator(following);
      return *this;
    }
    friend bool operator!=(const Iterator &a, const Iterator &b) { return a.node != b.node; }

  private:
    Node *node;
    Node *following;
  };
  Iterator begin() const { return Iterator(first); }
  Iterator end() const { return Iterator(nullptr); }

private:
  friend class Node;
  friend class Builder;
  void insert(Node *node, Node *before); ///< null: at the end
  void unlink(Node *node);
  void renumber() const;
  Module *parent;
  FunctionKind functionKind;
  std::vector<Argument> argumentList;
  Node *first = nullptr;
  Node *last = nullptr;
  size_t count = 0;
  mutable bool orderValid = true;
};

/// A node input of the ONNX file that reads a parameter (seen through Identity and Transpose).
struct ParameterUse {
  std::string node;
  int64_t input = 0;
  friend bool operator==(const ParameterUse &, const ParameterUse &) = default;
};

enum class InitialKind : uint8_t { constant, uniform, normal };
llvm::StringRef nameOf(InitialKind kind);

/// Initial values of a parameter that takes none from a file. The program draws them: element i is a function of the
/// seed, the parameter's name and i only (runtime/common/initial_values.h).
struct InitialValues {
  InitialKind kind = InitialKind::constant;
  double first = 0;   ///< constant: the value; uniform: the lower bound; normal: the mean
  double second = 0;  ///< uniform: the upper bound; normal: the standard deviation
  std::string origin; ///< where this was found, for people
  friend bool operator==(const InitialValues &, const InitialValues &) = default;
};

/// Low-rank adapter (LoRA): where the weight is multiplied, scale * up(down(x)) is added.
struct Adapter {
  std::string down; ///< the parameter [rank, in]
  std::string up;   ///< the parameter [out, rank]
  double scale = 1;
  double dropout = 0;      ///< of x, in training
  bool inputFirst = false; ///< the weight is [in, out], not [out, in]
  friend bool operator==(const Adapter &, const Adapter &) = default;
};

/// One logical parameter of the model, independent of the strategy. `name` is the recovered name.
struct Parameter {
  std::string name;
  Type type;
  bool trainable = true;
  std::string initializer;             ///< its name in OUT/model.onnx
  Shape permutation;                   ///< file dim i is parameter dim permutation[i]; empty: as it is
  Shape fileShape;                     ///< shape in OUT/model.onnx; empty: type.shape permuted
  std::string recovered;               ///< what the import repaired, for people; empty: nothing
  std::vector<std::string> otherNames; ///< in the author's module, if several of its modules share the parameter
  std::vector<ParameterUse> uses;
  std::optional<DType> fileDType;       ///< in OUT/model.onnx, if that is not the type
  bool hasValue = true;                 ///< the file holds its initial values (OUT/weights/model.safetensors has them)
  std::optional<InitialValues> initial; ///< used without a value; set by initializeParameters. Empty: zero
  bool isBuffer = false; ///< running statistics: its state is a buffer, not trained and replicated on every rank
  bool ignored = false;  ///< --ignored_params: replicated on every rank, whatever its unit's strategy
  std::string unit;      ///< set by assignUnits
  std::optional<Adapter> adapter; ///< of a frozen weight; set by insertAdapters
};

enum class StateRole : uint8_t {
  parameter,   ///< an unsharded parameter (graph, train; name = parameter's name)
  segment,     ///< this rank's part of a flat buffer of parameters (from sharded on)
  replica,     ///< another copy of segment `owner`: unsharded, in a 16-bit type, or both; updated with the segment
  optimizer,   ///< optimizer state of `owner` (a parameter or a segment), field e.g. exp_avg
  scalar,      ///< f64[] or i64[]: lr, beta1, ..., step, seed
  buffer,      ///< not trained, persists over steps (running statistics)
  accumulator, ///< the sum over the micro-steps so far, zero between steps: of the gradients of segment
               ///< `owner`, unsharded or split like it; or, without owner, of one scalar
  table,       ///< a function of nothing, the same on every rank: written by `start`, then only read
};
llvm::StringRef nameOf(StateRole role);

/// The position of a parameter in its segment.
struct SegmentSlot {
  std::string parameter;
  int64_t offsetElements = 0;
  int64_t elements = 0;
  friend bool operator==(const SegmentSlot &, const SegmentSlot &) = default;
};

/// Versioned storage that outlives a step. Read and write nodes refer to it by name.
struct State {
  std::string name;
  StateRole role = StateRole::parameter;
  Type type;         ///< of one rank: the full parameter, or shardElements for segments and their optimizer state
  std::string owner; ///< optimizer: the parameter or segment it belongs to; scalar: the scalar whose place it takes
                     ///< in the updates of some parameters
  std::string field; ///< optimizer: exp_avg, exp_avg_sq, momentum_buffer, ...
  double initialValue = 0;      ///< optimizer: value of every element; scalar: the compiled default
  std::optional<double> factor; ///< scalar: it is always this multiple of its owner
  std::string unit;             ///< segments, replicas
  std::string
      over; ///< segments, with their optimizer state, and replicas: the mesh axis they are split over; empty: unsharded
  int64_t paddedElements = 0; ///< segments: shard x size of the axis
  bool trainable = true;
  bool onHost = false;            ///< its place is in host memory
  std::vector<SegmentSlot> slots; ///< segments and replicas: ascending, disjoint, each start aligned to 128 bytes;
                                  ///< buffers: the same from the sharded stage on
  Place place;

  /// A flat buffer of the parameters, or model buffers, that its slots name.
  bool isFlat() const {
    return role == StateRole::segment || role == StateRole::replica || (role == StateRole::buffer && !slots.empty());
  }
};

/// A part of the model whose parameters are gathered, reduced and freed together.
struct Unit {
  std::string name = {};
  std::string source = {}; ///< how it was found: "name_scopes", "names", "size", "all"
  UnitChoices choices = {};
};

/// One partition of the ranks into groups of equal size. The members of a group are `stride` apart. With 4 ranks and
/// size 2, stride 1 gives the groups {0, 1} and {2, 3}, stride 2 gives {0, 2} and {1, 3}. Axes may overlap: `world`
/// spans the ranks of both `shard` and `replicate`.
struct MeshAxis {
  std::string name; ///< shard, replicate, reshard, world
  int64_t size = 1;
  int64_t stride = 1;

  /// The index of a rank within its group.
  int64_t memberOf(int64_t rank) const { return rank / stride % size; }
  /// The rank with index `member` in the group of `rank`.
  int64_t rankOf(int64_t rank, int64_t member) const { return rank + (member - memberOf(rank)) * stride; }
};

class Module {
public:
  std::string name = "model";
  Stage stage = Stage::graph;
  std::vector<MeshAxis> mesh;
  /// Number of micro-steps of a step. In the train stage a module with several is evaluated on that many times more
  /// ranks. Rank k * worldSize + r has the samples of micro-step k on rank r, and batch_sum is over all of them.
  /// eval_step is not part of a step, so a batch_sum in it is over the ranks only.
  int64_t microSteps = 1;
  Decisions decisions;
  std::vector<Unit> units;
  std::vector<std::string> outlines; ///< names of section bodies that are printed once
  /// Module path ("h.0.attn") -> name of its class, where the file states it. From the import until assignUnits.
  std::map<std::string, std::string> classes;
  Facts facts;

  std::vector<Parameter> parameters;
  Parameter *parameter(llvm::StringRef name);
  const Parameter *parameter(llvm::StringRef name) const;

  /// States in declaration order; references stay valid when states are added.
  std::deque<State> states;
  State *state(llvm::StringRef name);
  const State *state(llvm::StringRef name) const;
  State &addState(State state); ///< the name must be new
  void replaceStates(std::deque<State> all);

  std::vector<std::unique_ptr<Function>> functions;
  Function *function(FunctionKind kind) const; ///< null if there is none
  Function *addFunction(FunctionKind kind);

  int64_t worldSize() const; ///< ranks that the mesh spans
  /// Number of calls of the function in a step that saves no gradients. 0: the function is not part of such a step.
  int64_t callsPerStep(FunctionKind kind) const {
    return runsInEveryMicroStep(kind) ? microSteps : runsInEveryStep(kind) ? 1 : 0;
  }
  const MeshAxis *axis(llvm::StringRef name) const; ///< null if there is none
  int32_t unitIndex(llvm::StringRef name) const;    ///< -1 if there is none
  int32_t addUnit(Unit unit);

  /// The unit's own choice, or else the module's. A unit of -1 means no unit.
  bool prefetchesForward(int32_t unit) const;
  BackwardPrefetch backwardPrefetch(int32_t unit) const;

private:
  llvm::StringMap<State *> stateByName;
  mutable llvm::StringMap<size_t> parameterByName;
  mutable llvm::StringMap<int32_t> unitsByName; ///< entries may be stale
};

} // namespace fsdpc
