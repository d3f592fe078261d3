// A hand-written emitted program, and a platform whose ranks are threads. They let tests run the main program without a
// compiler or MPI.
//
// The model is y = w0 x0 + w1 x1 + w2, its loss the mean squared error over the global batch, trained by gradient
// descent. A sample is correct if y rounds to its label. Parameters: `w` [3], and a constant `scale` [2, 2] that is not
// trained.
#pragma once

#include "runtime/common/platform.h"

#include <barrier>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

namespace fsdpc::rt {

inline constexpr std::int64_t fakeBatch = 2;   ///< per rank
inline constexpr std::int64_t fakeClasses = 5; ///< labels are in [0, 5)

/// Offsets in the private arena of the fake program.
namespace at {
inline constexpr Place x{Space::privateSpace, 0}, labels{Space::privateSpace, 64}, weight{Space::privateSpace, 128};
inline constexpr Place shard{Space::privateSpace, 192}, frozen{Space::privateSpace, 256},
    state{Space::privateSpace, 320};
inline constexpr Place step{Space::privateSpace, 384}, seed{Space::privateSpace, 392}, rank{Space::privateSpace, 400};
inline constexpr Place lr{Space::privateSpace, 408}, beta1{Space::privateSpace, 416}, beta2{Space::privateSpace, 424};
inline constexpr Place loss{Space::privateSpace, 448}, lossSum{Space::privateSpace, 456},
    count{Space::privateSpace, 464};
inline constexpr Place correct{Space::privateSpace, 472}, total{Space::privateSpace, 480};
inline constexpr Place prediction{Space::privateSpace, 512}, gradient{Space::privateSpace, 576};
} // namespace at

/// The threads that act as ranks.
class FakeWorld : public TargetContext {
public:
  explicit FakeWorld(int size)
      : size(size), slots(static_cast<std::size_t>(size)), meeting(size),
        heartbeatLines(static_cast<std::size_t>(HeartbeatPage::bytesFor(size)) / sizeof(Line)) {}

  /// The data of every rank, in rank order.
  std::vector<std::vector<std::byte>> exchange(int rank, const void *data, std::size_t bytes) {
    const auto *begin = static_cast<const std::byte *>(data);
    slots[static_cast<std::size_t>(rank)].assign(begin, begin + bytes);
    meeting.arrive_and_wait();
    auto all = slots;
    meeting.arrive_and_wait();
    return all;
  }

  double sum(int rank, double value) {
    double result = 0;
    for (const auto &slot : exchange(rank, &value, sizeof value)) {
      double one = 0;
      std::memcpy(&one, slot.data(), sizeof one);
      result += one;
    }
    return result;
  }

  HeartbeatPage &heartbeats() { return *HeartbeatPage::at(heartbeatLines.data()); }

  const int size;

private:
  struct alignas(128) Line {
    std::byte bytes[128] = {};
  };
  std::vector<std::vector<std::byte>> slots;
  std::barrier<> meeting;
  std::vector<Line> heartbeatLines;
};

inline FakeWorld &worldOf(const Context &context) { return *static_cast<FakeWorld *>(context.target); }

/// Thrown where a platform would end the process.
struct Aborted {
  int exitCode;
};

class FakePlatform final : public Platform {
public:
  FakePlatform(FakeWorld &world, int rank) : world(world), myRank(rank), privateArena(8192), windowArena(4096) {}

  int rank() const override { return myRank; }
  int worldSize() const override { return world.size; }
  Context &openArenas(const ProgramInfo &, const PlatformOptions &options) override {
    std::memset(privateArena.data(), 0x7f, privateArena.size()); // arenas may have any initial contents
    context.privateArena = privateArena.data();
    context.windowArena = windowArena.data();
    context.rank = myRank;
    context.worldSize = world.size;
    context.threads = options.threads ? options.threads : 1;
    context.target = &world;
    return context;
  }
  void barrier() override { world.sum(myRank, 0); }
  void broadcast(void *data, std::int64_t bytes) override {
    const auto all = world.exchange(myRank, data, static_cast<std::size_t>(bytes));
    std::memcpy(data, all[0].data(), all[0].size());
  }
  std::int64_t maxOverRanks(std::int64_t value) override {
    std::int64_t largest = value;
    for (const auto &slot : world.exchange(myRank, &value, sizeof value)) {
      std::int64_t one = 0;
      std::memcpy(&one, slot.data(), sizeof one);
      largest = std::max(largest, one);
    }
    return largest;
  }
  std::int64_t sumOverRanks(std::int64_t value) override {
    return static_cast<std::int64_t>(world.sum(myRank, static_cast<double>(value)));
  }
  void gatherToRoot(const void *mine, std::int64_t bytes, void *all) override {
    auto *to = static_cast<std::byte *>(all);
    for (const auto &slot : world.exchange(myRank, mine, static_cast<std::size_t>(bytes)))
      if (all) {
        std::memcpy(to, slot.data(), slot.size());
        to += slot.size();
      }
  }
  HeartbeatPage *heartbeats() override { return &world.heartbeats(); }
  std::int64_t mappedArenaBytes() const override { return 8192 + 4096; }
  std::int64_t proportionalSetGrowthBytes() const override { return 5000; }
  std::int64_t proportionalSetBytesBefore() const override { return 300; }
  OutsidePlan outsidePlan() const override { return {700 + myRank, std::nullopt}; }
  const char *streamModeName() const override { return "inline"; }
  std::optional<CommunicationTimes> takeCommunicationTimes() override { return CommunicationTimes{10, 5, 2}; }
  [[noreturn]] void abort(int exitCode) override { throw Aborted{exitCode}; }

private:
  FakeWorld &world;
  int myRank;
  std::vector<std::byte> privateArena, windowArena;
  Context context;
};

inline std::vector<float> gatheredParameter(Context &context) {
  const std::int64_t shardElements = 4 / context.worldSize;
  std::vector<float> full(4);
  std::byte *to = reinterpret_cast<std::byte *>(full.data());
  for (const auto &slot : worldOf(context).exchange(context.rank, context.at<float>(at::shard),
                                                    static_cast<std::size_t>(shardElements) * 4)) {
    std::memcpy(to, slot.data(), slot.size());
    to += slot.size();
  }
  return full;
}

/// Forward, sums over ranks; the gradient of the mean goes to at::gradient.
inline void fakeForward(Context &context, double *lossSum, double *count, double *correct) {
  const std::vector<float> w = gatheredParameter(context);
  double sums[6] = {}; // loss, count, correct, gradient
  for (std::int64_t i = 0; i < fakeBatch; ++i) {
    const float *x = context.at<float>(at::x) + 2 * i;
    const double y = double{w[0]} * x[0] + double{w[1]} * x[1] + w[2];
    const double weight = context.at<float>(at::weight)[i];
    const auto label = static_cast<double>(context.at<std::int64_t>(at::labels)[i]);
    const double error = weight * (y - label);
    context.at<float>(at::prediction)[i] = static_cast<float>(y);
    const double terms[] = {error * error,    weight,           weight * (std::llround(y) == std::llround(label)),
                            2 * error * x[0], 2 * error * x[1], 2 * error};
    for (int k = 0; k < 6; ++k)
      sums[k] += terms[k];
  }
  for (double &sum : sums)
    sum = worldOf(context).sum(context.rank, sum);
  *lossSum = sums[0];
  *count = sums[1];
  *correct = sums[2];
  for (int k = 0; k < 3; ++k)
    context.at<float>(at::gradient)[k] = static_cast<float>(sums[3 + k] / sums[1]);
}

inline void fakeMicroStep(Context &context) {
  double lossSum, count, correct;
  fakeForward(context, &lossSum, &count, &correct);
  *context.at<float>(at::loss) = static_cast<float>(lossSum / count);
}

inline void fakeEvalStep(Context &context) {
  fakeForward(context, context.at<double>(at::lossSum), context.at<double>(at::count), context.at<double>(at::correct));
  *context.at<double>(at::total) = *context.at<double>(at::count);
}

inline void fakeUpdate(Context &context) {
  const std::int64_t shardElements = 4 / context.worldSize;
  for (std::int64_t i = 0; i < shardElements; ++i)
    if (const std::int64_t k = context.rank * shardElements + i; k < 3)
      context.at<float>(at::shard)[i] -=
          static_cast<float>(*context.at<double>(at::lr)) * context.at<float>(at::gradient)[k];
}

inline void fakeTapGradients(Context &context) { context.tap->take(0, context.at<float>(at::gradient), 0, 3); }

inline void fakeExport(Context &context) {
  context.tap->take(0, gatheredParameter(context).data(), 0, 3);
  std::vector<std::byte> scale;
  for (const auto &slot : worldOf(context).exchange(context.rank, context.at<float>(at::frozen),
                                                    static_cast<std::size_t>(4 / context.worldSize) * 4))
    scale.insert(scale.end(), slot.begin(), slot.end());
  context.tap->take(1, scale.data(), 0, 4);
}

/// The table of the fake program for `worldSize` ranks (1 or 2).
class FakeProgram {
public:
  explicit FakeProgram(int worldSize) {
    const std::int64_t shard = 4 / worldSize;
    axes = {{"shard", worldSize, 1}};
    segments = {{"body", DType::f32, 4, shard, at::shard, 0}, {"frozen", DType::f32, 4, shard, at::frozen, 0}};
    parameters = {{"w", DType::f32, {1, {3}}, 0, 0, true, "w", {0}, {1, {3}}, 0, true},
                  {"scale", DType::f32, {2, {2, 2}}, 1, 0, false, "scale", {1, 0}, {2, {2, 2}}, 16, true}};
    states = {{"sum", 0, DType::f32, at::state, 0.5}};
    info.modelName = "fake";
    info.planHash = "0";
    info.compileCommand = "--loss=mse --world_size=2";
    info.settingsJson = "{}";
    info.worldSize = worldSize;
    info.microBatchSize = fakeBatch;
    info.gradientAccumulationSteps = 1;
    info.seed = 3;
    info.optimizer = "sgd";
    info.loss = "mse";
    info.lossIsMean = true;
    info.isClassification = true;
    info.arenas = arenas;
    info.inputs = inputs;
    info.axes = axes;
    info.segments = segments;
    info.parameters = parameters;
    info.optimizerStates = states;
    info.scalars = scalars;
    info.stepResults = stepResults;
    info.evalResults = evalResults;
    info.memoryClasses = classes;
    info.onnxDataBytes = 32;
    info.onnxDataFile = "model.onnx.data";
    info.functions = {nullptr, nullptr, fakeMicroStep, fakeTapGradients, fakeUpdate, fakeEvalStep, fakeExport};
  }
  FakeProgram(const FakeProgram &) = delete;

  ProgramInfo info{};
  std::vector<MeshAxisInfo> axes;
  std::vector<SegmentInfo> segments;
  std::vector<ParameterInfo> parameters;
  std::vector<OptimizerStateInfo> states;
  std::vector<InputInfo> inputs = {
      {"x", InputKind::data, DType::f32, {2, {fakeBatch, 2}}, at::x},
      {"labels", InputKind::labels, DType::i64, {1, {fakeBatch}}, at::labels, fakeClasses, -100, true},
      {"sample_weight", InputKind::sampleWeight, DType::f32, {1, {fakeBatch}}, at::weight}};
  std::vector<ScalarInfo> scalars = {{"step", true, 0, at::step},      {"seed", true, 3, at::seed},
                                     {"rank", true, 0, at::rank},      {"lr", false, 0.1, at::lr},
                                     {"beta1", false, 0.9, at::beta1}, {"beta2", false, 0.999, at::beta2}};
  std::vector<ResultInfo> stepResults = {{"loss", DType::f32, {}, at::loss}};
  std::vector<ResultInfo> evalResults = {{"loss_sum", DType::f64, {}, at::lossSum},
                                         {"count", DType::f64, {}, at::count},
                                         {"correct", DType::f64, {}, at::correct},
                                         {"total", DType::f64, {}, at::total},
                                         {"output.prediction", DType::f32, {1, {fakeBatch}}, at::prediction}};
  std::vector<ArenaInfo> arenas = {{Space::privateSpace, 8192, 1000}, {Space::window, 4096, 64}};
  std::vector<MemoryClassBytes> classes = {{"parameters", 32}};
};

/// Runs `body` on every rank as a thread. Returns the Failure of the speaking rank if there is one. The ranks must
/// agree on its code.
inline std::optional<Failure> onRanks(int worldSize, const std::function<void(Platform &)> &body) {
  FakeWorld world(worldSize);
  std::vector<std::optional<Failure>> failures(static_cast<std::size_t>(worldSize));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < worldSize; ++rank)
    threads.emplace_back([&, rank] {
      FakePlatform platform(world, rank);
      try {
        body(platform);
      } catch (const Failure &failure) {
        failures[static_cast<std::size_t>(rank)] = failure;
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const auto &failure : failures)
    if (failure.has_value() != failures[0].has_value() || (failure && failure->code != failures[0]->code))
      throw std::logic_error("the ranks ended differently");
  return failures[0] ? failures[static_cast<std::size_t>(failures[0]->reportingRank)] : std::nullopt;
}

} // namespace fsdpc::rt
