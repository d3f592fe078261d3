// Files of weights as people have them: one safetensors file, or a folder of several as Hugging Face writes it.
#pragma once

#include "runtime/common/safetensors.h"

#include <memory>

namespace fsdpc::rt {

struct StoredTensor {
  const SafetensorsFile *file;
  const TensorEntry *entry;

  const std::string &name() const { return entry->name; }
};

/// The tensors of
/// - a safetensors file,
/// - an index (`model.safetensors.index.json`), which names the file of each tensor, next to it,
/// - a folder: of `model.safetensors`, else of its index, else of all its safetensors files.
/// Throws Failure{corrupt} naming the file: a bad file, one that the index names and that is absent, two tensors of one
/// name, an index that disagrees with the files, a folder without safetensors files.
class WeightFiles {
public:
  explicit WeightFiles(const std::string &path);

  const std::vector<StoredTensor> &tensors() const { return stored; } ///< sorted by name
  const StoredTensor *find(std::string_view name) const;
  /// Of the files, for those that are read as a folder or by an index; "" for one file.
  const std::string &folder() const { return folderPath; }

private:
  void openFolder(const std::string &path);
  void openIndex(const std::string &path);
  void add(const std::string &path);

  std::vector<std::unique_ptr<SafetensorsFile>> files;
  std::vector<StoredTensor> stored;
  std::string folderPath;
};

} // namespace fsdpc::rt
