#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/slice_rule.h"
#include "runtime/checkpoint_tool/commands.h"
#include "runtime/common/file.h"

#include <algorithm>
#include <cstdio>
#include <unistd.h>

namespace fsdpc::rt {
namespace {

struct Part {
  std::size_t tensor;
  std::int64_t first, elements;
};

/// What file `rank` of `count` holds.
std::vector<Part> partsOf(const Manifest &manifest, int rank, int count) {
  std::vector<Part> parts;
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
    const ManifestTensor &tensor = manifest.tensors[i];
    const auto [begin, end] =
        writtenPart(tensor.elements, byteSize(tensor.type), count, rank, static_cast<std::int64_t>(i) * 128);
    if (end > begin)
      parts.push_back({i, begin, end - begin});
  }
  return parts;
}

void writePart(CheckpointReader &reader, Manifest &result, const std::string &folder, int rank, int count) {
  const std::vector<Part> parts = partsOf(reader.manifest(), rank, count);
  std::vector<TensorSpec> specs;
  for (const Part &part : parts)
    specs.push_back({result.tensors[part.tensor].name, result.tensors[part.tensor].type, {part.elements}});
  SafetensorsWriter file(folder + "/" + rankFileName(rank), specs);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const ManifestTensor &from = reader.manifest().tensors[parts[i].tensor];
    const std::int64_t width = byteSize(from.type), step = checkpointBlockBytes / width;
    std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(step, parts[i].elements) * width));
    ManifestSlice slice{static_cast<std::size_t>(rank), parts[i].first, parts[i].elements, {}};
    const std::size_t tensor = *file.find(specs[i].name);
    for (std::int64_t done = 0; done < parts[i].elements; done += step) {
      const std::int64_t elements = std::min(step, parts[i].elements - done);
      reader.readStored(from, parts[i].first + done, elements, buffer.data());
      slice.hashes.push_back(checkpointHash(buffer.data(), elements * width));
      file.writeRange(tensor, done * width, buffer.data(), elements * width);
    }
    result.tensors[parts[i].tensor].slices.push_back(slice);
  }
  file.commit();
  result.files.push_back({rankFileName(rank), file.fileBytes(), file.headerHash()});
}

} // namespace

void reshard(const std::string &checkpoint, const std::string &folder, int worldSize) {
  CheckpointReader reader(checkpointAt(checkpoint));
  const std::int64_t step = reader.manifest().training.step;
  const std::string path = folder + "/" + stepFolderName(step);
  if (folderExists(path))
    throw Failure(ExitCode::usage, path + ": exists already");
  const std::string unfinished = path + ".tmp-reshard-" + std::to_string(::getpid());
  makeFolders(unfinished);
  Manifest result = reader.manifest();
  result.worldSize = worldSize;
  result.files.clear();
  for (ManifestTensor &tensor : result.tensors)
    tensor.slices.clear();
  for (int rank = 0; rank < worldSize; ++rank)
    writePart(reader, result, unfinished, rank, worldSize);
  writeFile(unfinished + "/" + manifestName, manifestText(result));
  syncFolder(unfinished);
  renameDurably(unfinished, path);
  std::printf("%s: step %lld in %d file(s)\n", path.c_str(), static_cast<long long>(step), worldSize);
}

} // namespace fsdpc::rt
