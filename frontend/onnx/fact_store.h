// Remembers what was learnt about weights, so that no byte of a weights file is read twice for it.
#pragma once

#include "frontend/onnx/fact_file.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"

namespace onnx {
class TensorProto;
} // namespace onnx

namespace fsdpc {

class OnnxModel;

/// Facts of external tensors by path, place and state of their files: copies of an initializer share them. Tensors
/// stored inside the model are in memory, and are looked at again for every question.
class FactStore {
public:
  /// Also keeps the facts in files of this folder for later compiles: one for each weights file of at least a megabyte,
  /// valid as long as path, size and time of the weights file are the same. An empty folder keeps none.
  explicit FactStore(std::string folder) : folder(std::move(folder)) {}

  /// Reads on from where the last question about the tensor ended, until isEnough holds or the facts are complete.
  /// Requires checkTensor.
  llvm::Expected<TensorFacts> learn(const OnnxModel &model, const onnx::TensorProto &tensor,
                                    llvm::function_ref<bool(const TensorFacts &)> isEnough);

  /// Writes the files. Facts are only an aid: a file that cannot be written is left out, and one that is damaged is
  /// ignored. So are the facts of a weights file that was modified within the last seconds, because the next change
  /// might get the same time.
  void save();

private:
  struct Entry {
    FactFile file;
    bool hasNews = false;
  };
  /// The entry of a weights file in its present state, from the folder if there is none so far.
  Entry &entryOf(const std::string &path);
  std::string fileFor(llvm::StringRef path) const;

  std::string folder;
  std::map<std::string, Entry> entries; ///< by path of the weights file
};

/// True if all elements of an initializer are equal. `ifAbsent`: the result if its data are missing.
llvm::Expected<bool> isUniform(const OnnxModel &model, const onnx::TensorProto &tensor, bool ifAbsent);
/// Facts of the first elements: `first` is known, if there is an element.
llvm::Expected<TensorFacts> firstFacts(const OnnxModel &model, const onnx::TensorProto &tensor);
llvm::Expected<TensorFacts> allFacts(const OnnxModel &model, const onnx::TensorProto &tensor);

} // namespace fsdpc
