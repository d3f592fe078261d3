// The interface between an emitted program and the runtime.
//
// An emitted program is five or six functions and one table. The functions (`Functions`) are straight-line code over
// fixed addresses. The table (`ProgramInfo`) describes the data at those addresses: inputs, parameter shards, optimizer
// state, scalars, results. The runtime implements everything around a step: arguments, data, logging, files, arenas,
// communication, time-outs.
//
// Every string of the model (names of parameters, units, inputs) is an escaped literal in the table, and nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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

/// The memory spaces of the plan. Offsets in `window` are the same on every rank, and peers may read it. `host` is host
/// memory; if the device is the host, it is a separate arena for data that another device would not hold.
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
  labels,       ///< the targets of the loss
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
  /// This value is also allowed; it marks an ignored label. Valid if `hasIgnoreIndex`.
  std::int64_t ignoreIndex = 0;
  bool hasIgnoreIndex = false;
  bool isInPrologue = true; ///< the prologue reads it
  /// Set if elements of a sample have separate ranges, such as columns that index different tables; then indexLimit is
  /// 0.
  std::span<const IndexRangeInfo> ranges = {};
  /// Set for labels that the graph compares with its prediction for the previous position. With a token file they are
  /// the tokens of the sample, not the tokens that follow.
  bool shiftsItself = false;
};

/// One partition of the ranks into groups of equal size. The members of a group are `stride` ranks apart: with 4 ranks,
/// size 2 and stride 1 the groups are {0, 1} and {2, 3}; with stride 2 they are {0, 2} and {1, 3}.
struct MeshAxisInfo {
  const char *name; ///< shard, replicate, reshard, world
  int size;         ///< number of members of a group
  int stride;

  /// The position of a rank in its group, and the rank that is member `member` of the group of `rank`.
  constexpr int memberOf(int rank) const { return rank / stride % size; }
  constexpr int rankOf(int rank, int member) const { return rank + (member - memberOf(rank)) * stride; }
};

/// One flat, padded range of parameters, sharded evenly over the groups of a mesh axis or replicated on every rank
/// (design: "Units, segments, placement").
struct SegmentInfo {
  const char *unit;
  DType dtype;
  std::int64_t paddedElements; ///< summed over all members
  std::int64_t shardElements;  ///< per member: member m of a group holds [m, m + 1) x shardElements
  Place place;                 ///< the shard of this rank
  int axis = -1;               ///< index into ProgramInfo::axes; -1: replicated on every rank
  int replicaOf = -1;          ///< index of the segment that this one copies, unsharded or rounded; -1: not a replica
};

enum class InitialKind : std::uint8_t { constant, uniform, normal };

/// Another name of a parameter, in a model whose modules share it.
struct OtherNameInfo {
  int parameter; ///< index into ProgramInfo::parameters
  const char *name;
};

/// The initial values of a parameter that no file provides. initial_values.h draws them.
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
  Shape onnxShape;              ///< the shape in the file (same elements; may be a reshape of the permuted shape)
  std::int64_t onnxOffsetBytes; ///< where its bytes start in the external data file of OUT/model.onnx
  bool inWeightsFile;           ///< OUT/weights/model.safetensors has its initial values
  InitialValues initial = {};   ///< used otherwise
  std::optional<DType> onnxDType = {}; ///< of the initializer, if that is not `dtype`
};

/// A low-rank adapter: where a weight is multiplied, scale * up(down(x)) is added. All are parameters, by index.
struct AdapterInfo {
  int weight;
  int down; ///< [rank, in]
  int up;   ///< [out, rank]
  double scale;
  double dropout;
  bool inputFirst; ///< the weight is [in, out], not [out, in]
};

/// Optimizer state of one segment, laid out and sharded like the segment.
struct OptimizerStateInfo {
  const char *name; ///< the field, e.g. "exp_avg"; a checkpoint calls it optimizer.<name>.<parameter>
  int segment;
  DType dtype;
  Place place;
  double initialValue; ///< of every element (Adagrad's accumulator; else 0)
};

/// The gradients accumulated over micro-steps. Zero between steps; after start-up the program itself resets them.
struct AccumulatorInfo {
  Place place;
  std::int64_t bytes;
};

/// A run-time scalar (f64 unless `isInteger`, then i64): learning rate, betas, the step number ... The runtime sets
/// "step" (1 in the first step), "seed", "rank" and rates before each step: "lr" and those in its place. The program
/// itself updates "optimizer_step" and names that begin with "loss_scale"; they start at their defaults. All others are
/// set once at start, from options of the same name.
struct ScalarInfo {
  const char *name;
  bool isInteger;
  double defaultValue;
  Place place;
  const char *base = "";             ///< the scalar in whose place some parameters' updates read this one
  std::optional<double> factor = {}; ///< it is always this multiple of `base`, and has no option
};

/// A result that the runtime reads after a function ran.
struct ResultInfo {
  /// "loss", "loss_sum", "count", "correct", "correct_top<k>", "total", "grad_norm", "next_loss_scale" (f64 or f32
  /// scalars), "applied", "loss_scale_exhausted" (booleans); or output.<name of a model output>
  const char *name;
  DType dtype;
  Shape shape;
  Place place;
};

struct ArenaInfo {
  Space space;
  std::int64_t bytes;            ///< a multiple of 4096; the sum over arenas but `host` is the plan's total_bytes
  std::int64_t usedBytes;        ///< the end of the highest planned value, <= bytes
  std::int64_t predictBytes = 0; ///< the size for a run that calls Functions::predict, if larger; 0: bytes
};

struct MemoryClassBytes {
  const char *name; ///< as in plan.json `by_class`
  std::int64_t bytes;
};

/// A contiguous range of nodes of one unit and phase: one function call in the program, one bar of a timeline.
struct SectionInfo {
  const char *function;              ///< as in the stages: "micro_step"
  const char *unit;                  ///< "": outside any unit
  const char *phase;                 ///< "forward", "recompute", "backward", "update"; "": none
  std::int64_t firstNode;            ///< index of its first node in its function
  double predictedBeginMicroseconds; ///< from the start of the step; negative: not part of a training step
  double predictedMicroseconds;
};

/// With --node_ranges, one node of a section. The k-th entry of a section is its beginNode(c, k).
struct NodeInfo {
  int section;      ///< index of ProgramInfo::sections
  const char *name; ///< "matmul addmm_6"
};

/// Work of one channel runs in order. Each channel has its own stream and, between hosts, its own handles.
enum class Channel : std::uint8_t {
  comm,   ///< everything, unless reductions have their own communicator
  reduce, ///< reductions, with `--reduce_communicator own`
  copy,   ///< no collectives: copies between the device and its host
};
inline constexpr int channelCount = 3;

/// One entry of the side table, one per collective of the program: the ranks and the stream it runs on, and its names
/// for time-outs and traces.
struct CollectiveInfo {
  const char *op;     ///< "all_gather", "reduce_scatter", "all_reduce"
  const char *unit;   ///< "" for scalars
  const char *name;   ///< id as in plan.json
  std::int64_t bytes; ///< size of the full buffer
  int axis = -1;      ///< index into ProgramInfo::axes; -1: all ranks are one group
  Channel channel = Channel::comm;
  double predictedBeginMicroseconds = -1; ///< from the start of the step; negative: not part of a training step
  double predictedMicroseconds = 0;
};

/// The side table of collectives. The `collective` arguments of collectives.h are indices into it. Defined by the
/// emitted program. Without that (weak) definition, as in tests, collectives 0 to 15 run among all ranks and messages
/// name no unit.
std::span<const CollectiveInfo> programCollectives();

/// A node that addresses elements by indices. Messages name it. `node` in its kernel's shape is its index in this
/// table.
struct IndexNodeInfo {
  const char *name; ///< name of the ONNX node
  Shape axes;       ///< sizes of the axes that an index tuple addresses
};

/// The side table of these nodes. Defined by the emitted program. Without that (weak) definition, as in tests, messages
/// name no node.
std::span<const IndexNodeInfo> programIndexNodes();

struct Context;

struct Functions {
  void (*start)(
      Context &); ///< once, after the arenas exist: creates library primitives; the only place that may allocate
  void (*prologue)(Context &);     ///< counts the labels that are not ignored; called once per micro-step
  void (*microStep)(Context &);    ///< forward, loss, backward, reductions; the last call of a step has its loss
  void (*tapGradients)(Context &); ///< gathers each gradient and hands it to Context::tap; between microStep and update
  void (*update)(Context &);       ///< optimizer updates
  void (*evalStep)(Context &);     ///< forward only, dropout off
  void (*exportWeights)(Context &); ///< gathers each parameter and hands it to Context::tap
  /// Gives up the collectives that a step has started for the next one; null: there are none. Called between steps when
  /// the state has been changed from outside.
  void (*discardAhead)(Context &) = nullptr;
  void (*predict)(Context &) = nullptr;        ///< evalStep for the model's outputs alone; null: evalStep returns them
  void (*exportAverages)(Context &) = nullptr; ///< exportWeights for moving averages; null: the program keeps none
};

struct ProgramInfo {
  const char *modelName;
  const char *planHash;       ///< hex digest of the planned module
  const char *compileCommand; ///< the compile options, quoted for a shell: recompile_line.h
  const char *settingsJson;   ///< the resolved compile options as one JSON object
  int worldSize;
  std::int64_t microBatchSize;
  int gradientAccumulationSteps;
  std::uint64_t seed;
  const char *optimizer;
  const char *loss; ///< cross_entropy, nll, mse, ...
  bool lossIsMean;
  bool isClassification; ///< evalStep counts correct/total
  int ranksPerHost;      ///< at most so many ranks of a host share memory, as if it were several hosts; 0: all
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
  std::int64_t threads = 0;        ///< compute threads per rank, the default of --threads; 0: cores / ranks
  const char *streams = "auto";    ///< "auto", "inline" or "threads": where collectives run, the default of --streams
  const char *stepReplay = "auto"; ///< "auto", "on" or "off": PlatformOptions::stepReplay, unless an option sets it
  /// The time of the step's matmuls, convolutions and attention at the peak rate of the device that the program was
  /// compiled for; 0: unknown.
  double peakStepMicroseconds = 0;
  bool allowRoundedOperands = false; ///< f32 matmuls and convolutions may round their operands to fewer bits
  bool tune = false;                 ///< matmuls use the algorithm that measured fastest
  const char *nonFinite = "error";   ///< "error", "skip" or "warn": the reaction to a non-finite loss or norm
  /// The plan has scratch for what library kernels do on processors up to this level, by its name in the log; "": all.
  const char *cpuLevel = "";
  /// Optimizers run inside microStep, so tapGradients reads only stashed gradients (Context::stash).
  bool stashesGradients = false;
  std::span<const ResultInfo> predictResults = {}; ///< of Functions::predict
  std::span<const OtherNameInfo> otherNames = {};
  std::span<const AdapterInfo> adapters = {};
};

/// Size of the arena in this space; 0: the program has none.
inline std::int64_t arenaBytes(const ProgramInfo &program, Space space) {
  for (const ArenaInfo &arena : program.arenas)
    if (arena.space == space)
      return arena.bytes;
  return 0;
}

/// Defined by the emitted program.
const ProgramInfo &programInfo();

/// How a tapped buffer follows from its parameter: part i is elements [from + i * every, + part), as far as the
/// parameter reaches. part 0: all of them.
struct TapParts {
  std::int64_t from = 0, part = 0, every = 0;
};

/// Receives full tensors from `tap` nodes on every rank (only rank 0 writes): elements [first, first + elements) of the
/// parameter, one call for a parameter or several for its parts. `parameter` indexes ProgramInfo::parameters; `data` is
/// host memory, valid during the call only.
class Tap {
public:
  explicit Tap(const ProgramInfo &program) : program(program) {}
  virtual ~Tap() = default;
  virtual void take(int parameter, const void *data, std::int64_t first, std::int64_t elements) = 0;
  /// Takes every part of a buffer of `bytes`.
  void takeParts(int parameter, const void *data, std::int64_t bytes, const TapParts &parts);

protected:
  const ProgramInfo &program;
};

/// Host access to arenas that are not host memory; see arena_access.h. Used only between the functions of a program.
class DeviceMemory {
public:
  virtual ~DeviceMemory() = default;
  /// Returns host memory for the next `store`.
  virtual std::byte *stage(std::int64_t bytes) = 0;
  /// Copies the staged bytes. Functions called from now on see them.
  virtual void store(Place to, std::int64_t bytes) = 0;
  /// Reads after the functions called so far have finished. The result is valid until the next call of this object.
  virtual const std::byte *load(Place from, std::int64_t bytes) = 0;
  /// Same as `load`, split in two: `fetched` returns the bytes as they were at `fetch`, whatever later functions write.
  /// Each `which` below maxFetches holds one fetch at a time.
  static constexpr std::size_t maxFetches = 8;
  virtual void fetch(Place from, std::int64_t bytes, std::size_t which = 0) = 0;
  virtual const std::byte *fetched(std::size_t which = 0) = 0;
};

/// Notified of each section of the program while it is called.
class SectionObserver {
public:
  virtual ~SectionObserver() = default;
  virtual void begin(int section) = 0;  ///< index of ProgramInfo::sections
  virtual void beginNode(int node) = 0; ///< index of a NodeInfo in its section; ends the previous node
  virtual void end() = 0;
};

/// Additions of a target to the context of a program. Each target defines its own.
struct TargetContext {};

/// The environment of the functions of a program. Fixed after start-up.
struct Context {
  std::byte *privateArena = nullptr;
  std::byte *windowArena = nullptr;
  std::byte *hostArena = nullptr;
  int rank = 0;
  int worldSize = 1;
  int batchRank = 0;                   ///< selects the samples of this call: microStep * worldSize + rank
  int threads = 1;                     ///< compute threads of this rank
  DeviceMemory *memory = nullptr;      ///< null: the arenas are host memory
  TargetContext *target = nullptr;     ///< streams, communicators: the target casts it to its own type
  Tap *tap = nullptr;                  ///< set around tapGradients and exportWeights
  GradientStash *stash = nullptr;      ///< set in steps whose gradients are saved
  Profile *profile = nullptr;          ///< --profile; null without
  SectionObserver *observer = nullptr; ///< replaces the profile on targets whose sections only enqueue work

  template <class T>
  T *at(Place place) const {
    std::byte *const bases[] = {privateArena, windowArena, hostArena};
    std::byte *base = bases[static_cast<int>(place.space)];
    return reinterpret_cast<T *>(base + place.offsetBytes);
  }
};

/// See profile.h. `record` is null if nothing is recorded.
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

/// Emitted before each statement by programs that mark their nodes (--node_ranges).
inline void beginNode(Context &context, int node) {
  if (context.observer)
    context.observer->beginNode(node);
}

} // namespace fsdpc::rt
