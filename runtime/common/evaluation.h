// Forward passes over an entire data set, without dropout: average loss and accuracy, or the outputs of the model.
//
// Every sample counts exactly once, in the order of the data. The last global batch is padded with samples of weight 0.
#pragma once

#include "runtime/common/batch_feeder.h"
#include "runtime/common/job.h"
#include "runtime/common/safetensors.h"

#include <cmath>
#include <functional>
#include <memory>
#include <optional>

namespace fsdpc::rt {

struct EvaluationResult {
  double lossSum = 0;
  double count = 0; ///< samples, or labels that are not ignored
  std::int64_t correct = 0;
  int topK = 0;                 ///< 0: the program counts the highest score alone
  std::int64_t correctTopK = 0; ///< labels among the classes of the topK highest scores
  std::int64_t total = 0;
  bool hasAccuracy = false;
  bool isOfTokens = false; ///< a sample has several labels, whose classes are a vocabulary

  double perplexity() const { return std::exp(averageLoss()); }
  double averageLoss() const { return lossSum / count; }
  double percent() const { return percentOf(correct); }
  double topKPercent() const { return percentOf(correctTopK); }
  /// The value of a metric of --save_best; "" is val_loss.
  double metric(std::string_view name) const {
    return name == "val_accuracy" ? percent() : name == "val_top_k_accuracy" ? topKPercent() : averageLoss();
  }

private:
  double percentOf(std::int64_t labels) const {
    return total > 0 ? 100.0 * static_cast<double>(labels) / static_cast<double>(total) : 0;
  }
};

/// Whether a value of a metric of --save_best is better than the best one before. Any number is better than NaN.
inline bool isBetter(std::string_view metric, double value, double best) {
  if (std::isnan(best))
    return !std::isnan(value);
  return metric.ends_with("accuracy") ? value > best : value < best;
}

/// The k for which the program's evaluation also counts labels among the k highest scores (--top_k of the compiler); 0:
/// none.
int topKOf(const ProgramInfo &program);

/// Allocates on construction only.
class Evaluator {
public:
  /// Throws Failure{usage} if the last batch needs padding and the program has no sample weights, or if the program has
  /// no evaluation step.
  Evaluator(const Job &job, BatchFeeder &feeder, std::optional<std::int64_t> batchLimit);

  /// `stops` is called after every batch but the last; if it returns true, the evaluation ends there, with nullopt.
  std::optional<EvaluationResult> run(const std::function<bool()> &stops);
  EvaluationResult run() {
    return *run([] { return false; });
  }
  std::int64_t batches() const { return batchCount; }
  /// Fills the inputs of a batch and runs the function: evalStep, or predict.
  void runBatch(std::int64_t batch, void (*function)(Context &));
  const Sampler &order() const { return sampler; }

private:
  const Job &job;
  BatchFeeder &feeder;
  Sampler sampler;
  std::int64_t batchCount;
  std::vector<std::int64_t> rows;
};

/// "test loss 0.2345  correct 340/360  94.4 %"; of tokens "test loss 3.8212  perplexity 45.66  correct ..."
std::string evaluationText(const EvaluationResult &result);
/// Writes the evaluation line of the log.
void logEvaluation(const Job &job, const EvaluationResult &result, std::int64_t step, std::int64_t epoch);

/// One model output that is gathered from all ranks and written to a file.
struct PredictedOutput {
  const ResultInfo *result;
  std::string name;       ///< the name in the model, without the prefix `output.`
  std::size_t tensor = 0; ///< index in the writer; rank 0 only
  std::int64_t rowBytes = 0;
};

/// Writes the model's outputs for every sample of `feeder`, with rows in the order of the data. An output whose dim 0
/// is not the batch is an error. Only `run` calls collectives. Rank 0 writes, and the file appears at `finish`.
class Predictor {
public:
  Predictor(const Job &job, BatchFeeder &feeder, const std::string &path);
  void run();
  void finish();

private:
  const Job &job;
  Evaluator evaluator;
  std::vector<PredictedOutput> outputs;
  std::unique_ptr<SafetensorsWriter> writer;
  std::vector<std::byte> gathered; ///< the rows of one global batch
};

} // namespace fsdpc::rt
