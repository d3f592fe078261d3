// The manifest of a checkpoint: what it holds, where each part is, and hashes of everything.
//
// A checkpoint is a folder `step-<8 digits>` with one safetensors file per rank and `manifest.json` (schema
// fsdpc.checkpoint/1). A file holds flat slices of tensors under the tensors' names. Hashes are those of
// runtime/common/fingerprint.h, of every file's header and of every block of `blockBytes` of every slice, so a rank
// that reads a part of a slice verifies what it reads. The last member of the manifest is the hash of the bytes before
// it.
#pragma once

#include "runtime/common/element_type.h"
#include "runtime/common/training_order.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fsdpc::rt {

inline constexpr const char *checkpointSchema = "fsdpc.checkpoint/1";
inline constexpr const char *manifestName = "manifest.json";
inline constexpr std::int64_t checkpointBlockBytes = std::int64_t{1} << 22;

/// The best evaluation so far.
struct BestEvaluation {
  std::int64_t step = 0;
  double value = 0;
};

/// The evaluations of a run, for --early_stopping.
struct EvaluationHistory {
  std::int64_t count = 0;
  std::int64_t sinceBest = 0; ///< in a row that were no better than `best`
  double best = 0;
};

/// Of the learning rate.
struct WarmUp {
  std::int64_t steps = 0;
  double ratio = 0;   ///< the share that `steps` came from; 0: none
  SamplePosition end; ///< the sample after them; a guess until they are done
};

/// Where a run is. What a resumed run needs besides tensors.
struct TrainingState {
  std::int64_t step = 0;           ///< optimizer steps done
  SamplePosition next;             ///< the next sample
  std::int64_t samplesInEpoch = 0; ///< of the data set; 0: a fixed batch
  std::int64_t globalBatch = 0;
  WarmUp warmUp;
  bool shuffle = false;
  std::string sampleOrder; ///< orderText (trainer.h); "": unknown
  std::int64_t seed = 0;
  std::int64_t skippedSteps = 0;
  double epochLossSum = 0; ///< over `epochSteps` steps of the current epoch
  std::int64_t epochSteps = 0;
  bool evaluationDue = false; ///< the evaluation after `step` was not finished
  std::string bestMetric;     ///< of --save_best; "": none
  std::optional<BestEvaluation> best;
  EvaluationHistory evaluations;
  std::vector<std::pair<std::string, double>> scalars; ///< those that the program updates
};

struct ManifestSlice {
  std::size_t file = 0;
  std::int64_t first = 0, elements = 0;
  std::vector<std::uint64_t> hashes; ///< of its blocks
};

struct ManifestTensor {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> dims;
  std::int64_t elements = 0;
  std::vector<ManifestSlice> slices; ///< they cover the tensor once; by `first` once parsed
  bool isState = false;              ///< of the optimizer
  /// Of a parameter: ParameterInfo::onnxPermutation and onnxOffsetBytes.
  std::vector<std::int64_t> onnxPermutation;
  std::int64_t onnxOffsetBytes = 0;
};

/// How the program's model.onnx stores parameters, for an export.
struct ManifestOnnx {
  std::string dataFile;
  std::int64_t dataBytes = 0;
};

struct ManifestFile {
  std::string name;
  std::int64_t bytes = 0;
  std::uint64_t headerHash = 0;
};

struct Manifest {
  std::string modelName, planHash, optimizer;
  int worldSize = 0;
  std::string compiledJson = "{}"; ///< the compile options, as one JSON object
  TrainingState training;
  ManifestOnnx onnx;
  std::vector<ManifestFile> files;
  std::vector<ManifestTensor> tensors;
};

std::string manifestText(const Manifest &manifest);

/// Parses and checks a manifest: its hash, that file names are plain names, that slices cover their tensors and have
/// all hashes. Throws Failure{corrupt}, or Failure{incompatible} for another schema, naming `path`.
Manifest parseManifest(std::string_view text, const std::string &path);

/// Of `bytes` bytes at `data`.
std::uint64_t checkpointHash(const void *data, std::int64_t bytes);
/// 16 digits each.
std::string hexOf(const std::vector<std::uint64_t> &hashes);
/// nullopt unless `text` is hexOf of some hashes.
std::optional<std::vector<std::uint64_t>> hashesFrom(std::string_view text);
/// Blocks of a slice.
std::int64_t blockCount(std::int64_t sliceBytes);

} // namespace fsdpc::rt
