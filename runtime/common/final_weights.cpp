#include "runtime/common/final_weights.h"

#include "runtime/common/adapters.h"
#include "runtime/common/agreement.h"

namespace fsdpc::rt {
namespace {

ModelFolder folderOf(const Job &job, const std::optional<Weights> &loaded) {
  ModelFolder folder{job.options.saveModel, {}, loaded ? loaded->folder() : ""};
  if (loaded)
    folder.names = loaded->storedNames();
  else
    for (const ParameterInfo &parameter : job.program.parameters)
      folder.names.push_back(parameter.name);
  return folder;
}

std::unique_ptr<FileTap> savedModel(const Job &job, const std::optional<Weights> &loaded) {
  const int rank = job.context.rank;
  const bool merges = job.options.mergeAdapters;
  const std::vector<bool> factors = adapterFactors(job.program);
  std::unique_ptr<FileTap> tap;
  if (isFolderName(job.options.saveModel)) {
    ModelFolder folder = folderOf(job, loaded);
    if (!job.program.adapters.empty() && !merges)
      return adaptersTap(job.program, folder, rank);
    for (std::size_t i = 0; i < factors.size(); ++i)
      if (factors[i])
        folder.names[i].clear();
    tap = folderTap(job.program, folder, rank);
  } else {
    tap = weightsTap(job.program, job.options.saveModel, rank, merges ? factors : std::vector<bool>());
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
    if (!job.options.saveModel.empty())
      files.safetensors = savedModel(job, loaded);
    if (!job.options.saveOnnx.empty())
      files.onnx = savedOnnx(job, outDirectory);
  });
  return files;
}

void saveFinalWeights(const Job &job, const FinalWeights &files) {
  for (FileTap *tap : {files.safetensors.get(), files.onnx.get()}) {
    if (!tap)
      continue;
    job.pulse.enter(Phase::saving);
    job.context.tap = tap;
    job.functions.exportWeights(job.context);
    job.context.tap = nullptr;
    agreed(job.platform, [&] { tap->finish(); });
  }
}

} // namespace fsdpc::rt
