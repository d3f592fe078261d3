#include "runtime/common/final_weights.h"

#include "runtime/common/adapters.h"
#include "runtime/common/agreement.h"

namespace fsdpc::rt {
namespace {

ModelFolder folderOf(const Job &job, const std::string &path, const std::optional<Weights> &loaded) {
  ModelFolder folder{path, {}, loaded ? loaded->folder() : ""};
  if (loaded)
    folder.names = loaded->storedNames();
  else
    for (const ParameterInfo &parameter : job.program.parameters)
      folder.names.push_back(parameter.name);
  return folder;
}

/// A file or folder of weights, or null for an empty path.
std::unique_ptr<FileTap> savedModel(const Job &job, const std::string &path, const std::optional<Weights> &loaded) {
  if (path.empty())
    return nullptr;
  const int rank = job.context.rank;
  const bool merges = job.options.mergeAdapters;
  const std::vector<bool> factors = adapterFactors(job.program);
  std::unique_ptr<FileTap> tap;
  if (isFolderName(path)) {
    ModelFolder folder = folderOf(job, path, loaded);
    if (!job.program.adapters.empty() && !merges)
      return adaptersTap(job.program, folder, rank);
    for (std::size_t i = 0; i < factors.size(); ++i)
      if (factors[i])
        folder.names[i].clear();
    tap = folderTap(job.program, folder, rank);
  } else {
    tap = weightsTap(job.program, path, rank, merges ? factors : std::vector<bool>());
  }
  return merges ? mergingTap(job.program, std::move(tap), rank) : std::move(tap);
}

std::unique_ptr<FileTap> savedOnnx(const Job &job, const std::string &outDirectory) {
  const int rank = job.context.rank;
  std::unique_ptr<FileTap> tap = onnxTap(job.program, job.options.saveOnnx, outDirectory, rank);
  return job.program.adapters.empty() ? std::move(tap) : mergingTap(job.program, std::move(tap), rank);
}

} // namespace

FinalWeights openFinalWeights(const Job &job, const std::optional<Weights> &loaded, const std::string &outDirectory) {
  FinalWeights files;
  agreed(job.platform, [&] {
    files.safetensors = savedModel(job, job.options.saveModel, loaded);
    files.averages = savedModel(job, job.options.saveEma, loaded);
    if (!job.options.saveOnnx.empty())
      files.onnx = savedOnnx(job, outDirectory);
  });
  return files;
}

void saveFinalWeights(const Job &job, const FinalWeights &files) {
  const auto save = [&](FileTap *tap, void (*function)(Context &)) {
    if (!tap)
      return;
    job.pulse.enter(Phase::saving);
    job.context.tap = tap;
    function(job.context);
    job.context.tap = nullptr;
    agreed(job.platform, [&] { tap->finish(); });
  };
  save(files.safetensors.get(), job.functions.exportWeights);
  save(files.averages.get(), job.functions.exportAverages);
  save(files.onnx.get(), job.functions.exportWeights);
}

} // namespace fsdpc::rt
