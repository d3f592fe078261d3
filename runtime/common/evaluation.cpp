#include "runtime/common/evaluation.h"

#include "runtime/common/arena_access.h"
#include "runtime/common/scalars.h"
#include "runtime/common/step_guard.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace fsdpc::rt {
namespace {

constexpr std::string_view correctTop = "correct_top";

const ResultInfo *topKResult(const ProgramInfo &program) {
  for (const ResultInfo &result : program.evalResults)
    if (std::string_view(result.name).starts_with(correctTop))
      return &result;
  return nullptr;
}

std::vector<PredictedOutput> predictedOutputs(const ProgramInfo &program) {
  std::vector<PredictedOutput> outputs;
  for (const ResultInfo &result : program.functions.predict ? program.predictResults : program.evalResults) {
    if (isFigure(result.name))
      continue;
    if (result.shape.rank == 0 || result.shape.dims[0] != program.microBatchSize)
      throw Failure(ExitCode::usage, "--predict: dim 0 of output " + std::string(result.name) + " is not the batch");
    std::string_view name = result.name;
    if (name.starts_with("output."))
      name.remove_prefix(7);
    const std::int64_t rowElements = result.shape.elements() / program.microBatchSize;
    outputs.push_back({&result, std::string(name), 0, rowElements * byteSize(result.dtype)});
  }
  if (outputs.empty())
    throw Failure(ExitCode::usage, "--predict: this program's evaluation step has no outputs but the loss");
  return outputs;
}

std::unique_ptr<SafetensorsWriter> openPredictions(std::vector<PredictedOutput> &outputs, const std::string &path,
                                                   std::int64_t samples) {
  std::vector<TensorSpec> specs;
  for (const PredictedOutput &output : outputs) {
    std::vector<std::int64_t> dims = dimsOf(output.result->shape);
    dims[0] = samples;
    specs.push_back({output.name, elementType(output.result->dtype), dims});
  }
  auto writer = std::make_unique<SafetensorsWriter>(path, specs);
  for (PredictedOutput &output : outputs)
    output.tensor = *writer->find(output.name);
  return writer;
}

} // namespace

int topKOf(const ProgramInfo &program) {
  const ResultInfo *result = topKResult(program);
  return result ? std::atoi(result->name + correctTop.size()) : 0;
}

Evaluator::Evaluator(const Job &job, BatchFeeder &feeder, std::optional<std::int64_t> batchLimit)
    : job(job), feeder(feeder), sampler(SampleOrder(feeder.samples()), job.evaluationLayout(), /*dropLast=*/false),
      batchCount(std::min(sampler.batchesFrom(0), batchLimit.value_or(sampler.batchesFrom(0)))),
      rows(static_cast<std::size_t>(job.program.microBatchSize)) {
  if (!job.functions.evalStep)
    throw Failure(ExitCode::usage, "this program has no evaluation step");
  if (feeder.sources().size() > 1)
    throw Failure(ExitCode::usage, feeder.source() + ": weights of sources are for --train_data");
  const std::int64_t globalBatch = job.evaluationLayout().globalBatch();
  if (sampler.samplesInBatch((batchCount - 1) * globalBatch) < globalBatch && !feeder.hasSampleWeight())
    throw Failure(ExitCode::usage, feeder.source() + ": " + std::to_string(feeder.samples()) +
                                       " samples do not fill batches of " + std::to_string(globalBatch) +
                                       ", and this program cannot leave samples out");
}

void Evaluator::runBatch(std::int64_t batch, void (*function)(Context &)) {
  job.pulse.enter(Phase::evaluation);
  {
    const StepScope scope(StepPart::feeding);
    sampler.rows(0, batch * sampler.globalBatch(), 0, rows);
    feeder.fill(job.context, rows);
  }
  const StepScope scope;
  function(job.context);
}

std::optional<EvaluationResult> Evaluator::run(const std::function<bool()> &stops) {
  const auto results = job.program.evalResults;
  const ResultInfo *lossSum = findResult(results, "loss_sum");
  const ResultInfo *count = findResult(results, "count");
  const ResultInfo *correct = findResult(results, "correct");
  const ResultInfo *total = findResult(results, "total");
  const ResultInfo *topK = topKResult(job.program);
  const auto read = [&](const ResultInfo *result) { return result ? readResult(job.context, *result) : 0.0; };
  EvaluationResult sum;
  sum.hasAccuracy = job.program.isClassification && correct && total;
  sum.topK = topKOf(job.program);
  for (const InputInfo &input : job.program.inputs)
    if (input.kind == InputKind::labels && input.shape.rank == 2)
      sum.isOfTokens = sum.hasAccuracy;
  for (std::int64_t batch = 0; batch < batchCount; ++batch) {
    runBatch(batch, job.functions.evalStep);
    sum.lossSum += read(lossSum);
    sum.count += read(count);
    sum.correct += std::llround(read(correct));
    sum.correctTopK += std::llround(read(topK));
    sum.total += std::llround(read(total));
    job.platform.checkIndices();
    if (batch + 1 < batchCount && stops())
      return std::nullopt;
  }
  return sum;
}

std::string evaluationText(const EvaluationResult &result) {
  char part[80];
  std::snprintf(part, sizeof part, "test loss %.4f", result.averageLoss());
  std::string text = part;
  if (result.isOfTokens) {
    std::snprintf(part, sizeof part, "  perplexity %.2f", result.perplexity());
    text += part;
  }
  if (result.hasAccuracy) {
    std::snprintf(part, sizeof part, "  correct %lld/%lld  %.1f %%", static_cast<long long>(result.correct),
                  static_cast<long long>(result.total), result.percent());
    text += part;
  }
  if (result.topK > 0) {
    std::snprintf(part, sizeof part, "  top-%d %.1f %%", result.topK, result.topKPercent());
    text += part;
  }
  return text;
}

void logEvaluation(const Job &job, const EvaluationResult &result, std::int64_t step, std::int64_t epoch) {
  const StepScope scope(StepPart::logging);
  Metrics metrics(job.events, step);
  metrics.line().add("epoch", epoch);
  metrics.add("val_loss", result.averageLoss());
  if (result.isOfTokens)
    metrics.add("val_perplexity", result.perplexity());
  if (result.hasAccuracy) {
    metrics.line().add("val_correct", result.correct).add("val_total", result.total);
    metrics.add("val_percent", result.percent());
  }
  if (result.topK > 0) {
    const std::string figure = "val_top" + std::to_string(result.topK);
    metrics.line().add(figure + "_correct", result.correctTopK);
    metrics.add((figure + "_percent").c_str(), result.topKPercent());
  }
  job.log.write(metrics.line());
  job.events.flush();
}

Predictor::Predictor(const Job &job, BatchFeeder &feeder, const std::string &path)
    : job(job), evaluator(job, feeder, std::nullopt), outputs(predictedOutputs(job.program)) {
  if (feeder.sharesRows())
    throw Failure(ExitCode::usage, "--predict: the outputs are those of single samples: leave out --sample_packing");
  if (job.context.rank != 0)
    return;
  writer = openPredictions(outputs, path, feeder.samples());
  std::int64_t largest = 0;
  for (const PredictedOutput &output : outputs)
    largest = std::max(largest, output.rowBytes * job.evaluationLayout().globalBatch());
  gathered.resize(static_cast<std::size_t>(largest));
}

void Predictor::run() {
  const Functions &functions = job.functions;
  std::int64_t done = 0;
  for (std::int64_t batch = 0; batch < evaluator.batches(); ++batch) {
    evaluator.runBatch(batch, functions.predict ? functions.predict : functions.evalStep);
    const std::int64_t samples = evaluator.order().samplesInBatch(done);
    for (const PredictedOutput &output : outputs) {
      const std::int64_t bytes = output.rowBytes * job.program.microBatchSize;
      job.platform.gatherToRoot(readArena(job.context, output.result->place, bytes), bytes,
                                writer ? gathered.data() : nullptr);
      job.platform.checkIndices();
      if (writer)
        writer->writeRange(output.tensor, done * output.rowBytes, gathered.data(), samples * output.rowBytes);
    }
    done += samples;
  }
}

void Predictor::finish() {
  if (writer)
    writer->commit();
}

} // namespace fsdpc::rt
