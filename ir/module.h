// A module: parameters, units, state, functions. It carries its stage; verify.h checks the rules of that stage.
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

/// The functions a module may have. `forward` exists in the graph stage only; the others from train on.
/// A training step calls prologue, micro_step, tap_gradients (when gradients are to be saved), update, in this order;
/// the first two once for every micro-step (Module::microSteps): all calls of prologue come before those of micro_step.
enum class FunctionKind : uint8_t { forward, prologue, microStep, tapGradients, update, evalStep, exportWeights };
constexpr bool runsInEveryStep(FunctionKind kind) {
  return kind == FunctionKind::prologue || kind == FunctionKind::microStep || kind == FunctionKind::update;
}
constexpr bool runsInEveryMicroStep(FunctionKind kind) {
  return kind == FunctionKind::prologue || kind == FunctionKind::microStep;
}
llvm::StringRef nameOf(FunctionKind kind); // forward prologue micro_step tap_gradients update eval_step export

enum class ArgumentKind : uint8_t {
  input, ///< a tensor of the batch, by graph input's name (or labels, sample_weight); same place in all functions
  carry, ///< a result of an earlier function of the step, by the result's name
};

struct Argument {
  ArgumentKind kind;
  std::string name;
  std::unique_ptr<Value> value;
};

/// A straight line of nodes ending in one `return` node whose operands are the results, named by its attribute.
/// Results that no later function takes are read by the runtime (loss, count, model outputs).
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
    /// The next node was read on arrival, so the current one may be erased or moved.
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

/// How the elements of a parameter start that takes no values from a file. The program draws them: element i is a
/// function of seed, parameter's name and i alone (runtime/common/initial_values.h).
struct InitialValues {
  InitialKind kind = InitialKind::constant;
  double first = 0;   ///< constant: the value; uniform: the lower bound; normal: the mean
  double second = 0;  ///< uniform: the upper bound; normal: the standard deviation
  std::string origin; ///< what says so, for people
  friend bool operator==(const InitialValues &, const InitialValues &) = default;
};

/// One logical parameter of the model, whatever the strategy does with it. `name` is the recovered name.
struct Parameter {
  std::string name;
  Type type;
  bool trainable = true;
  std::string initializer; ///< its name in OUT/model.onnx
  Shape permutation;       ///< file dim i is parameter dim permutation[i]; empty: as it is
  Shape fileShape;         ///< shape in OUT/model.onnx; empty: type.shape permuted
  std::string recovered;   ///< what the import repaired, for people; empty: nothing
  std::vector<ParameterUse> uses;
  bool hasValue = true;                 ///< the file holds its initial values (OUT/weights/model.safetensors has them)
  std::optional<InitialValues> initial; ///< where it has no value; from initializeParameters on. None: zero
  bool isBuffer = false; ///< running statistics: its state is a buffer, never trained and whole on every rank
  bool ignored = false;  ///< --ignored_params: whole on every rank, whatever its unit's strategy
  std::string unit;      ///< from assignUnits on
};

enum class StateRole : uint8_t {
  parameter,   ///< a whole parameter (graph, train; name = parameter's name)
  segment,     ///< this rank's part of a flat run of parameters (sharded on)
  replica,     ///< another copy of segment `owner`: of all of it, in a 16-bit type, or both; refreshed with the segment
  optimizer,   ///< optimizer state of `owner` (a parameter or a segment), field e.g. exp_avg
  scalar,      ///< f64[] or i64[]: lr, beta1, ..., step, seed
  buffer,      ///< not trained, carried over steps (running statistics)
  accumulator, ///< what the micro-steps of a step have summed so far, zero between steps: the gradients of segment
               ///< `owner`, whole or split like it; or, without owner, one number
};
llvm::StringRef nameOf(StateRole role);

/// Where a parameter lies in its segment.
struct SegmentSlot {
  std::string parameter;
  int64_t offsetElements = 0;
  int64_t elements = 0;
  friend bool operator==(const SegmentSlot &, const SegmentSlot &) = default;
};

/// Versioned storage that outlives a step: read and write nodes name it.
struct State {
  std::string name;
  StateRole role = StateRole::parameter;
  Type type;         ///< of one rank: the whole parameter, or shardElements for segments and their optimizer state
  std::string owner; ///< optimizer: the parameter or segment it belongs to
  std::string field; ///< optimizer: exp_avg, exp_avg_sq, momentum_buffer, ...
  double initialValue = 0; ///< optimizer: of every element; scalar: the compiled default
  std::string unit;        ///< segments, replicas
  std::string
      over; ///< segments, with their optimizer state, and replicas: the mesh axis they are split over; empty: whole
  int64_t paddedElements = 0; ///< segments: shard x size of the axis
  bool trainable = true;
  bool onHost = false;            ///< its place is in the host's memory
  std::vector<SegmentSlot> slots; ///< segments and replicas: ascending, disjoint, each start aligned to 128 bytes;
                                  ///< buffers: the same from the sharded stage on
  Place place;

  /// A flat run of the parameters, or buffers of the model, that its slots name.
  bool isRun() const {
    return role == StateRole::segment || role == StateRole::replica || (role == StateRole::buffer && !slots.empty());
  }
};

/// A part of the model that is gathered, reduced and freed at once.
struct Unit {
  std::string name = {};
  std::string source = {}; ///< how it was found: "name_scopes", "names", "size", "all"
  UnitChoices choices = {};
};

/// One way to cut the ranks into groups of equal size. The members of a group are `stride` apart: with 4 ranks, size 2
/// and stride 1 the groups are {0, 1} and {2, 3}; with stride 2 they are {0, 2} and {1, 3}. Axes may overlap: `world`
/// spans what `shard` and `replicate` cut.
struct MeshAxis {
  std::string name; ///< shard, replicate, reshard, world
  int64_t size = 1;
  int64_t stride = 1;

  /// Which member of its group a rank is.
  int64_t memberOf(int64_t rank) const { return rank / stride % size; }
  /// The rank that is member `member` of the group of `rank`.
  int64_t rankOf(int64_t rank, int64_t member) const { return rank + (member - memberOf(rank)) * stride; }
};

class Module {
public:
  std::string name = "model";
  Stage stage = Stage::graph;
  std::vector<MeshAxis> mesh;
  /// Micro-steps of a step. In the train stage a module of several is evaluated on as many times more ranks: rank
  /// k * worldSize + r has the samples of micro-step k on rank r, and batch_sum is over all of them. eval_step is not
  /// part of a step: a batch_sum in it is over the ranks.
  int64_t microSteps = 1;
  Decisions decisions;
  std::vector<Unit> units;
  std::vector<std::string> outlines; ///< names of section bodies that are printed once
  /// Module path ("h.0.attn") -> name of its class, where the file says so. From the import to assignUnits.
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
  /// How often a step calls the function; 0: it is not part of a step that saves nothing.
  int64_t callsPerStep(FunctionKind kind) const {
    return runsInEveryMicroStep(kind) ? microSteps : runsInEveryStep(kind) ? 1 : 0;
  }
  const MeshAxis *axis(llvm::StringRef name) const; ///< null if there is none
  int32_t unitIndex(llvm::StringRef name) const;    ///< -1 if there is none
  int32_t addUnit(Unit unit);

  /// The unit's own choice, else that of all. -1: of no unit.
  bool prefetchesForward(int32_t unit) const;
  BackwardPrefetch backwardPrefetch(int32_t unit) const;

private:
  llvm::StringMap<State *> stateByName;
  mutable llvm::StringMap<size_t> parameterByName;
};

} // namespace fsdpc
