// The commands of `fsdpc checkpoint`. Each throws Failure, and takes no more memory than one block or, for an ONNX
// model, one tensor.
#pragma once

#include "runtime/checkpoint/reader.h"

#include <cstdint>
#include <string>

namespace fsdpc::rt {

/// One line per checkpoint of a folder: step, position, ranks, bytes, the best one. Reads manifests only.
void listFolder(const std::string &folder);

/// Reads everything of a checkpoint, or of every checkpoint of a folder. Throws Failure{corrupt} for the first that is
/// damaged, after all are reported.
void verify(const std::string &path);

struct ExportOptions {
  std::string output;             ///< FILE.safetensors, FOLDER/ or FILE.onnx
  std::int64_t maxShardBytes = 0; ///< for a folder
  bool takesAverages = false;     ///< the moving averages of the parameters that have one
  std::string model;              ///< OUT/model.onnx of the program that wrote the checkpoint, for FILE.onnx
};

/// Writes the parameters under the author's names: one safetensors file; a folder with shards and
/// model.safetensors.index.json, as Hugging Face reads it; or an ONNX model and its data file.
void exportWeights(const std::string &checkpoint, const ExportOptions &options);

/// Writes the checkpoint as one of `worldSize` files into `folder`, for programs that read many small parts.
void reshard(const std::string &checkpoint, const std::string &folder, int worldSize);

/// Compares the tensors of two checkpoints. Returns whether they are the same bit for bit.
bool printDifferences(const std::string &a, const std::string &b);

/// The checkpoint that `path` names: itself, or the latest of a folder. Throws Failure{usage}.
std::string checkpointAt(const std::string &path);

/// Calls visit(element, bytes, data) for every block of a tensor, in order, in the checkpoint's own type.
template <class Visit>
void forEachBlock(CheckpointReader &reader, const ManifestTensor &tensor, const Visit &visit) {
  const std::int64_t width = byteSize(tensor.type), step = checkpointBlockBytes / width;
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(step, tensor.elements) * width));
  for (std::int64_t first = 0; first < tensor.elements; first += step) {
    const std::int64_t elements = std::min(step, tensor.elements - first);
    reader.readStored(tensor, first, elements, buffer.data());
    visit(first, elements * width, buffer.data());
  }
}

} // namespace fsdpc::rt
