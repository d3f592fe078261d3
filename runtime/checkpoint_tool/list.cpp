#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint_tool/commands.h"

#include <cstdio>

namespace fsdpc::rt {
namespace {

std::string lineOf(const Manifest &manifest) {
  const TrainingState &training = manifest.training;
  std::int64_t bytes = 0;
  for (const ManifestFile &file : manifest.files)
    bytes += file.bytes;
  char text[256];
  std::snprintf(text, sizeof text, "%10lld  epoch %lld sample %lld  %d rank(s)  %.1f MiB  %s",
                static_cast<long long>(training.step), static_cast<long long>(training.next.epoch + 1),
                static_cast<long long>(training.next.sample), manifest.worldSize,
                static_cast<double>(bytes) / (1 << 20), manifest.modelName.c_str());
  std::string line = text;
  if (training.best && training.best->step == training.step)
    line += "  best " + training.bestMetric + " " + std::to_string(training.best->value);
  return line;
}

void verifyOne(const std::string &path) {
  CheckpointReader reader(path);
  for (std::size_t file = 0; file < reader.manifest().files.size(); ++file)
    reader.verifyHeader(file);
  std::int64_t bytes = 0;
  for (const ManifestTensor &tensor : reader.manifest().tensors)
    forEachBlock(reader, tensor, [&](std::int64_t, std::int64_t read, const std::byte *) { bytes += read; });
  std::printf("%s: intact, %zu tensors, %lld bytes\n", path.c_str(), reader.manifest().tensors.size(),
              static_cast<long long>(bytes));
}

} // namespace

std::string checkpointAt(const std::string &path) { return checkpointsAt(path).back(); }

void listFolder(const std::string &folder) {
  for (const std::string &path : checkpointsAt(folder)) {
    try {
      std::printf("%s\n", lineOf(CheckpointReader(path).manifest()).c_str());
    } catch (const Failure &failure) {
      std::printf("  damaged  %s\n", failure.what());
    }
  }
}

void verify(const std::string &path) {
  std::optional<Failure> first;
  for (const std::string &checkpoint : checkpointsAt(path)) {
    try {
      verifyOne(checkpoint);
    } catch (const Failure &failure) {
      std::printf("%s: damaged: %s\n", checkpoint.c_str(), failure.what());
      if (!first)
        first = failure;
    }
  }
  if (first)
    throw *first;
}

} // namespace fsdpc::rt
