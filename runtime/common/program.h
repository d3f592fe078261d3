// What an emitted program tells the runtime about itself, and what the runtime hands to the program's functions.
//
// An emitted program is five or six functions and one table. The functions (`Functions`) are straight-line code over
// fixed addresses; the table (`ProgramInfo`) says what lies at those addresses: inputs, parameter shards, optimizer
// state, scalars, results. The runtime owns everything around a step: arguments, data, logging, files, arenas,
// communication, time-outs.
//
// Every model string (names of parameters, units, inputs) lives in the table as an escaped literal, and nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fsdpc::rt {

class GradientStash; // runtime/common/gradient_stash.h
class Profile;       // runtime/common/profile.h

enum class DType : std::uint8_t { f64, f32, bf16, f16, i64, i32, u8, boolean };

/// Bytes of one element.
constexpr std::int64_t byteSize(DType dtype) {
  switch (dtype) {
  case DType::f64:
  case DType::i64: return 8;
  case DType::f32:
  case DType::i32: return 4;
  case DType::bf16:
  case DType::f16: return 2;
  case DType::u8:
  case DType::boolean: return 1;
  }
  return 0;
}

/// The memory spaces of the plan. Offsets in `window` are the same on every rank, and peers may read there. `host` is
/// the host's memory: on the cpu target an arena of its own, for what a device would not hold.
enum class Space : std::uint8_t { privateSpace, window, host };

struct Place {
  Space space = Space::privateSpace;
  std::int64_t offsetBytes = 0;
};

inline constexpr int maxRank = 8;

struct Shape {
  int rank = 0;
  std::int64_t dims[maxRank] = {};
  constexpr std::int64_t elements() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i)
      n *= dims[i];
    return n;
  }
};

enum class InputKind : std::uint8_t {
  data,         ///< a graph input, filled from the data set, `--map` or `--fill`
  labels,       ///< what the loss compares with
  sampleWeight, ///< f32[B]: 1 for a real sample, 0 for padding of the last evaluation batch; filled by the runtime
};

/// The integers of elements [first, first + count) of a sample must lie in [0, limit), or be `ignoreIndex`.
struct IndexRangeInfo {
  std::int64_t first, count, limit;
  std::int64_t ignoreIndex = 0;
  bool hasIgnoreIndex = false;
};

/// A batch input of one rank and one micro-step; dim 0 is the sample.
struct InputInfo {
  const char *name;
  InputKind kind;
  DType dtype;
  Shape shape;
  Place place;
  /// Integer inputs that index something must lie in [0, indexLimit); 0: not checked.
  std::int64_t indexLimit = 0;
  /// This value is allowed too: a label that does not count. Meaningful when `hasIgnoreIndex`.
  std::int64_t ignoreIndex = 0;
  bool hasIgnoreIndex = false;
  bool isInPrologue = true; ///< what counts is counted in it
  /// Where elements of a sample have ranges of their own, as columns that index different tables; then indexLimit is 0.
  std::span<const IndexRangeInfo> ranges = {};
  /// Labels that the graph compares with what it predicts one position before: of a token file they are the tokens of
  /// the sample themselves, not the ones that follow.
  bool shiftsItself = false;
};

/// One way to cut the ranks into groups of equal size. The members of a group are `stride` ranks apart: with 4 ranks,
/// size 2 and stride 1 the groups are {0, 1} and {2, 3}; with stride 2 they are {0, 2} and {1, 3}.
struct MeshAxisInfo {
  const char *name; ///< shard, replicate, reshard, world
  int size;         ///< members of a group
  int stride;

  /// Which member of its group a rank is, and the rank that is member `member` of the group of `rank`.
  constexpr int memberOf(int rank) const { return rank / stride % size; }
  constexpr int rankOf(int rank, int member) const { return rank + (member - memberOf(rank)) * stride; }
};

/// One flat, padded run of parameters, split evenly over the groups of a mesh axis or whole on every rank (design:
/// "Units, segments, placement").
struct SegmentInfo {
  const char *unit;
  DType dtype;
  std::int64_t paddedElements; ///< of all members together
  std::int64_t shardElements;  ///< of one member: member m of a group holds [m, m + 1) x shardElements
  Place place;                 ///< the shard of this rank
  int axis = -1;               ///< index into ProgramInfo::axes; -1: whole on every rank
  int replicaOf = -1;          ///< index of the segment that this one repeats, whole or rounded; -1: it is none
};

enum class InitialKind : std::uint8_t { constant, uniform, normal };

/// How a parameter starts that has no values in a file; initial_values.h draws them.
struct InitialValues {
  InitialKind kind = InitialKind::constant;
  double first = 0;  ///< constant: the value; uniform: the lower bound; normal: the mean
  double second = 0; ///< uniform: the upper bound; normal: the standard deviation
};

struct ParameterInfo {
  const char *name;
  DType dtype;
  Shape shape;
  int segment;                 ///< index into ProgramInfo::segments; never that of a replica
  std::int64_t offsetElements; ///< where the parameter starts in the padded segment
  bool trainable;
  const char *onnxInitializer; ///< its name in OUT/model.onnx
  /// OUT/model.onnx holds the initializer with the dims permuted by this: file dim i is parameter dim
  /// onnxPermutation[i].
  int onnxPermutation[maxRank];
  Shape onnxShape;              ///< as the file has it (same elements; may be a reshape of the permuted shape)
  std::int64_t onnxOffsetBytes; ///< where its bytes start in the external data file of OUT/model.onnx
  bool inWeightsFile;           ///< OUT/weights/model.safetensors has its initial values
  InitialValues initial = {};   ///< otherwise
};

/// Optimizer state of one segment, laid out and sharded like the segment.
struct OptimizerStateInfo {
  const char *name; ///< the field, e.g. "exp_avg"; a checkpoint calls it optimizer.<name>.<parameter>
  int segment;
  DType dtype;
  Place place;
  double initialValue; ///< every element starts at this (Adagrad's accumulator; else 0)
};

/// What micro-steps have summed so far; zero between steps, which the program sees to after start-up.
struct AccumulatorInfo {
  Place place;
  std::int64_t bytes;
};

/// A run-time scalar (f64 unless `isInteger`, then i64): learning rate, betas, the step number ...
/// "step" (1 in the first step), "seed", "rank" and "lr" are set by the runtime before each step; "optimizer_step" and
/// what begins with "loss_scale" are the program's own, and only start at their defaults; the others are set once at
/// start from options of the same name.
struct ScalarInfo {
  const char *name;
  bool isInteger;
  double defaultValue;
  Place place;
};

/// A result that the runtime reads after a function ran.
struct ResultInfo {
  /// "loss", "loss_sum", "count", "correct", "total", "grad_norm", "next_loss_scale" (f64 or f32 scalars), "applied",
  /// "loss_scale_exhausted" (booleans); or output.<name of a model output>
  const char *name;
  DType dtype;
  Shape shape;
  Place place;
};

struct ArenaInfo {
  Space space;
  std::int64_t bytes;     ///< a multiple of 4096; the sum over arenas but `host` is the plan's total_bytes
  std::int64_t usedBytes; ///< the highest byte that the plan gives to a value, <= bytes
};

struct MemoryClassBytes {
  const char *name; ///< as in plan.json `by_class`
  std::int64_t bytes;
};

/// A run of nodes of one unit and phase: one call of the program's functions, one bar of a timeline.
struct SectionInfo {
  const char *function;              ///< as in the stages: "micro_step"
  const char *unit;                  ///< "": outside units
  const char *phase;                 ///< "forward", "recompute", "backward", "update"; "": none
  std::int64_t firstNode;            ///< the number of its first node in its function
  double predictedBeginMicroseconds; ///< from the start of the step; negative: not part of a training step
  double predictedMicroseconds;
};

/// With --node_ranges, what the program calls one by one: the k-th entry of a section is its beginNode(c, k).
struct NodeInfo {
  int section;      ///< index of ProgramInfo::sections
  const char *name; ///< "matmul addmm_6"
};

/// What runs one after the other: each channel has a stream of its own and, on the plain MPI path, handles of its own.
enum class Channel : std::uint8_t {
  comm,   ///< everything, unless reductions have a communicator of their own
  reduce, ///< reductions, with `--reduce_communicator own`
  copy,   ///< no collectives: copies between the device and its host
};
inline constexpr int channelCount = 3;

/// One entry per collective of the program, in the side table: among whom and where it runs, and what a time-out or a
/// trace names.
struct CollectiveInfo {
  const char *op;     ///< "all_gather", "reduce_scatter", "all_reduce"
  const char *unit;   ///< "" for scalars
  const char *name;   ///< id as in plan.json
  std::int64_t bytes; ///< of the full buffer
  int axis = -1;      ///< index into ProgramInfo::axes; -1: all ranks are one group
  Channel channel = Channel::comm;
  double predictedBeginMicroseconds = -1; ///< from the start of the step; negative: not part of a training step
  double predictedMicroseconds = 0;
};

/// The side table; the `collective` arguments of collectives.h are indices of it. Defined by the emitted program;
/// without that (weak) definition, as in tests, collectives 0 to 15 run among all ranks and messages name no unit.
std::span<const CollectiveInfo> programCollectives();

/// Of a node that addresses elements by indices, which the `node` of its kernel's shape numbers: what a message names.
struct IndexNodeInfo {
  const char *name; ///< of the ONNX node
  Shape axes;       ///< the elements of the axes that an index tuple is for
};

/// The side table of them. Defined by the emitted program; without that (weak) definition, as in tests, messages name
/// no node.
std::span<const IndexNodeInfo> programIndexNodes();

struct Context;

struct Functions {
  void (*start)(
      Context &); ///< once, after the arenas exist: creates library primitives; the only place that may allocate
  void (*prologue)(Context &);     ///< count of the labels that count; once for every micro-step
  void (*microStep)(Context &);    ///< forward, loss, backward, reductions; the last call of a step has its loss
  void (*tapGradients)(Context &); ///< gathers each gradient and hands it to Context::tap; between microStep and update
  void (*update)(Context &);       ///< optimizer
  void (*evalStep)(Context &);     ///< forward only, dropout off
  void (*exportWeights)(Context &); ///< gathers each parameter and hands it to Context::tap
};

struct ProgramInfo {
  const char *modelName;
  const char *planHash;       ///< hex digest of the planned module
  const char *compileCommand; ///< the options of the compile as a shell takes them: recompile_line.h
  const char *settingsJson;   ///< the resolved compile options as one JSON object
  int worldSize;
  std::int64_t microBatchSize;
  int gradientAccumulationSteps;
  std::uint64_t seed;
  const char *optimizer;
  const char *loss; ///< cross_entropy, nll, mse, ...
  bool lossIsMean;
  bool isClassification; ///< evalStep counts correct/total
  bool plainMpi; ///< planned for the MPI path: reduce-scatter has staging; otherwise ranks share one host's memory
  std::span<const ArenaInfo> arenas;
  std::span<const MemoryClassBytes> memoryClasses;
  std::span<const InputInfo> inputs;
  std::span<const MeshAxisInfo> axes;
  std::span<const SegmentInfo> segments;
  std::span<const ParameterInfo> parameters;
  std::span<const OptimizerStateInfo> optimizerStates;
  std::span<const AccumulatorInfo> accumulators;
  std::span<const ScalarInfo> scalars;
  std::span<const SectionInfo> sections;   ///< in the order of the functions
  std::span<const NodeInfo> nodes;         ///< by section; empty without --node_ranges
  std::span<const ResultInfo> stepResults; ///< of prologue, microStep and update
  std::span<const ResultInfo> evalResults;
  std::int64_t onnxDataBytes; ///< size of the external data file that --save_onnx writes
  const char *onnxDataFile;   ///< the file name OUT/model.onnx refers to
  double predictedStepMicroseconds;
  double predictedExposedMicroseconds;
  Functions functions;
  std::int64_t threads = 0; ///< compute threads of a rank unless --threads says otherwise; 0: cores / ranks
  const char *streams =
      "auto"; ///< "auto", "inline" or "threads": where collectives run unless --streams says otherwise
  const char *cudaGraph = "auto"; ///< "auto", "on" or "off", unless --cuda_graph says otherwise
  /// What the step's products, convolutions and attention would take at the full rate of the device that the program
  /// was compiled for; 0: not known.
  double peakStepMicroseconds = 0;
  bool allowTf32 = false;          ///< cuda: operands of f32 products and convolutions may be rounded to tf32
  bool tune = false;               ///< cuda: products take the algorithm that was fastest (runtime/cuda/tuning.h)
  const char *nonFinite = "error"; ///< "error", "skip" or "warn": what follows a loss or norm that is not finite
  /// Optimizers run inside microStep: of gradients tapGradients finds what was stashed (Context::stash).
  bool stashesGradients = false;
};

/// Bytes of the arena in this space; 0: the program has none.
inline std::int64_t arenaBytes(const ProgramInfo &program, Space space) {
  for (const ArenaInfo &arena : program.arenas)
    if (arena.space == space)
      return arena.bytes;
  return 0;
}

/// Defined by the emitted program.
const ProgramInfo &programInfo();

/// Receives full tensors from `tap` nodes, one call per parameter, on every rank (only rank 0 writes).
/// `parameter` indexes ProgramInfo::parameters; `data` is valid during the call only.
class Tap {
public:
  virtual ~Tap() = default;
  virtual void take(int parameter, const void *data) = 0;
};

/// How the host reaches arenas that are not its memory; see arena_access.h. Between the functions of a program only.
class DeviceMemory {
public:
  virtual ~DeviceMemory() = default;
  /// Host memory for the next `store`.
  virtual std::byte *stage(std::int64_t bytes) = 0;
  /// Copies what was staged; functions called from now on see it.
  virtual void store(Place to, std::int64_t bytes) = 0;
  /// Waits for the functions called so far. Valid until the next call of this object.
  virtual const std::byte *load(Place from, std::int64_t bytes) = 0;
  /// The same in two parts: what the functions called before `fetch` left there, whatever later ones do. One at a time
  /// for each `which` below mostFetches.
  static constexpr std::size_t mostFetches = 8;
  virtual void fetch(Place from, std::int64_t bytes, std::size_t which = 0) = 0;
  virtual const std::byte *fetched(std::size_t which = 0) = 0;
};

/// Is told of each section of the program while it is called.
class SectionObserver {
public:
  virtual ~SectionObserver() = default;
  virtual void begin(int section) = 0;  ///< index of ProgramInfo::sections
  virtual void beginNode(int node) = 0; ///< the number of a NodeInfo in its section; ends the one before
  virtual void end() = 0;
};

/// What a target adds to the context of a program; each has one of its own.
struct TargetContext {};

/// What the functions of a program run in. Fixed after start-up.
struct Context {
  std::byte *privateArena = nullptr;
  std::byte *windowArena = nullptr;
  std::byte *hostArena = nullptr;
  int rank = 0;
  int worldSize = 1;
  int batchRank = 0;                   ///< whose samples are computed: microStep * worldSize + rank
  int threads = 1;                     ///< compute threads of this rank
  DeviceMemory *memory = nullptr;      ///< null: the arenas are the host's memory
  TargetContext *target = nullptr;     ///< streams, communicators: the target casts it to its own
  Tap *tap = nullptr;                  ///< set around tapGradients and exportWeights
  GradientStash *stash = nullptr;      ///< set in steps whose gradients are saved
  Profile *profile = nullptr;          ///< --profile; null without
  SectionObserver *observer = nullptr; ///< of targets whose sections only enqueue: instead of the profile's moments

  template <class T>
  T *at(Place place) const {
    std::byte *const bases[] = {privateArena, windowArena, hostArena};
    std::byte *base = bases[static_cast<int>(place.space)];
    return reinterpret_cast<T *>(base + place.offsetBytes);
  }
};

/// profile.h; `record` is null where nothing is recorded.
struct SectionRecord;
SectionRecord *beginSection(Profile &profile, int section);
void endSection(SectionRecord *record);

/// Calls a section of the program, timed if there is a profile.
template <class... Row>
inline void runSection(Context &context, int section, void (*body)(Context &, const Row &...), const Row &...row) {
  if (context.observer) {
    context.observer->begin(section);
    body(context, row...);
    return context.observer->end();
  }
  if (!context.profile)
    return body(context, row...);
  SectionRecord *record = beginSection(*context.profile, section);
  body(context, row...);
  endSection(record);
}

/// Ahead of a statement, in programs that say which node each is of.
inline void beginNode(Context &context, int node) {
  if (context.observer)
    context.observer->beginNode(node);
}

} // namespace fsdpc::rt
