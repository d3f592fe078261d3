// Weights as a folder that from_pretrained opens: safetensors files of at most 5 GB, their index, and the
// configuration and tokenizer of the folder that the weights came from.
#pragma once

#include "runtime/common/taps.h"

namespace fsdpc::rt {

/// What a folder of weights has besides the values.
struct ModelFolder {
  std::string path;
  std::vector<std::string> names; ///< of the tensors, by parameter; "": left out
  std::string source;             ///< the folder that the other files are copied from; "": none
  std::int64_t maxFileBytes = 5'000'000'000;
};

/// True if --save_model names a folder: it exists, or ends with a slash.
bool isFolderName(const std::string &path);

/// Writes `model.safetensors`, or `model-00001-of-00003.safetensors`, ... and `model.safetensors.index.json`. Weights
/// of an earlier save that has other files are deleted once these are complete. Throws Failure{storage}.
std::unique_ptr<FileTap> folderTap(const ProgramInfo &program, const ModelFolder &folder, int rank);

} // namespace fsdpc::rt
