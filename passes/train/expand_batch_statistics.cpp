#include "ir/ops/attributes.h"
#include "ir/ops/batch_norm.h"
#include "ir/queries.h"
#include "passes/passes.h"
#include "passes/support/clone.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc {

namespace {

/// Statistics of the elements of each channel.
struct Statistics {
  Value *mean, *variance;
  int64_t elements;
};

class Expander {
public:
  explicit Expander(Function &step) : step(step), ranks(step.module()->worldSize()), builder(step) {}

  llvm::Error run() {
    for (Node *node : step)
      if (node->op() == Op::batchNorm && node->get<BatchNormAttributes>().training)
        if (llvm::Error error = expand(*node))
          return error;
    eraseDeadNodes(step); // reads of running statistics that no node updates
    return llvm::Error::success();
  }

private:
  llvm::Error expand(Node &norm) {
    const BatchNormAttributes attributes = norm.get<BatchNormAttributes>();
    builder.setInsertionPoint(&norm);
    builder.inherit(norm);
    Statistics statistics = ofRank(norm.operand(0));
    const bool isSynced = attributes.synced && ranks > 1;
    if (isSynced)
      statistics = ofAllRanks(statistics);
    if (statistics.elements < 2)
      return llvm::createStringError(describe(norm) +
                                     ": a channel has one value in the batch, whose variance is none: train with more "
                                     "than one sample per rank (--micro_batch_size), or with --train_mode eval");
    Value *running[] = {norm.operand(3), norm.operand(4)};
    norm.setOperand(3, statistics.mean);
    norm.setOperand(4, statistics.variance);
    norm.get<BatchNormAttributes>() = {.epsilon = attributes.epsilon};
    if (attributes.momentum == 0)
      return llvm::Error::success();
    const auto count = static_cast<double>(statistics.elements);
    Value *unbiased = builder.mul(statistics.variance, builder.constantLike(statistics.variance, count / (count - 1)));
    for (auto [state, statistic] : {std::pair(running[0], statistics.mean), std::pair(running[1], unbiased)})
      if (llvm::Error error = update(norm, state, isSynced ? statistic : averaged(statistic), attributes.momentum))
        return error;
    return llvm::Error::success();
  }

  Statistics ofRank(Value *x) {
    Node *statistics = builder.create(Op::batchStatistics, {x});
    return {statistics->result(0), statistics->result(1), x->type().elements() / x->type().dim(1)};
  }

  /// The global mean of squares is the mean of each rank's variance + squared mean. In f64 the subtraction of the
  /// squared global mean loses no precision.
  Statistics ofAllRanks(const Statistics &own) {
    const DType dtype = own.mean->type().dtype();
    Value *mean = builder.cast(own.mean, DType::f64), *variance = builder.cast(own.variance, DType::f64);
    Value *squares = builder.add(variance, builder.mul(mean, mean));
    Value *both = builder.create(Op::concat, {mean, squares}, AxisAttributes{0})->result();
    both = builder.create(Op::batchSum, {both}, BatchSumAttributes{ranks})->result();
    both = builder.div(both, builder.constantLike(both, static_cast<double>(ranks)));
    const int64_t channels = own.mean->type().dim(0);
    auto part = [&](int64_t start) {
      return builder.create(Op::slice, {both}, SliceAttributes{{start}, {channels}, {1}})->result();
    };
    mean = part(0);
    variance = builder.sub(part(channels), builder.mul(mean, mean));
    return {builder.cast(mean, dtype), builder.cast(variance, dtype), own.elements * ranks};
  }

  /// The mean over the ranks.
  Value *averaged(Value *statistic) {
    if (ranks == 1)
      return statistic;
    Value *share = builder.div(statistic, builder.constantLike(statistic, static_cast<double>(ranks)));
    return builder.create(Op::batchSum, {share}, BatchSumAttributes{ranks})->result();
  }

  /// Running statistics that are constants of the model are not updated.
  llvm::Error update(const Node &norm, Value *running, Value *statistic, double momentum) {
    const State *state = stateReadBy(*running);
    if (!state || state->role != StateRole::buffer)
      return llvm::Error::success();
    auto [user, isFirst] = users.try_emplace(state->name, &norm);
    if (!isFirst)
      return llvm::createStringError(describe(*user->second) + " and " + describe(norm) +
                                     " move the same running statistics '" + state->name +
                                     "', which is not supported: --train_mode eval takes them as they are");
    Node *next =
        builder.create(Op::updateStatistics, {running, statistic}, UpdateStatisticsAttributes{momentum, ranks});
    builder.writeState(*state, next->result());
    return llvm::Error::success();
  }

  static std::string describe(const Node &norm) {
    llvm::StringRef name = llvm::StringRef(norm.source).rsplit('|').second;
    return name.empty() ? infoOf(norm).name.str() : name.str();
  }

  Function &step;
  const int64_t ranks;
  Builder builder;
  llvm::StringMap<const Node *> users; ///< norms, by the state that they update
};

llvm::Error run(Module &module, const PassContext &) {
  for (const std::unique_ptr<Function> &function : module.functions)
    if (function->kind() != FunctionKind::microStep)
      for (Node *node : *function)
        if (node->op() == Op::batchNorm)
          node->get<BatchNormAttributes>() = {.epsilon = node->get<BatchNormAttributes>().epsilon};
  return Expander(*module.function(FunctionKind::microStep)).run();
}

} // namespace

const Pass expandBatchStatistics = {"expand_batch_statistics", Stage::train, Stage::train,
                                    /*optional=*/false,        run,          FunctionKind::microStep};

} // namespace fsdpc
