// The other names of parameters that several modules share.
#pragma once

#include "frontend/onnx/graph_index.h"
#include "frontend/onnx/metadata.h"
#include "ir/module.h"

namespace fsdpc {

/// The lines of the file's metadata (otherNamesKey in metadata.h): a parameter and another name of it.
std::vector<std::pair<llvm::StringRef, llvm::StringRef>> statedNames(const onnx::ModelProto &proto);

/// A table of embeddings that is also the weight of the output layer has two names in the author's module, and one in
/// the file. Files of weights have one of them, any one, or both.
class OtherNames {
public:
  /// The arguments must outlive this.
  OtherNames(const OnnxModel &model, const GraphIndex &index, const ExportSignature &signature);

  /// Those of the parameter `name`, which the initializer holds: names that the repairs tied to it; and
  /// <module>.<leaf> for each module that reads it. If there is a signature, the latter count only if they are in it
  /// and no initializer holds them.
  std::vector<std::string> of(const onnx::TensorProto &initializer, llvm::StringRef name) const;

  /// If one parameter alone has other names, adds the names of the signature that nothing explains and that end like
  /// its own: a module may share its table without reading it itself (`shared.weight` of T5). Some may be those of
  /// unused parameters; whoever looks for one compares shapes.
  void addUnread(std::vector<Parameter> &parameters) const;

  /// Adds the names that the file states.
  void addStated(std::vector<Parameter> &parameters) const;

private:
  std::vector<std::string> ofReaders(llvm::StringRef initializer, llvm::StringRef name) const;

  const OnnxModel &model;
  const GraphIndex &index;
  const ExportSignature &signature;
  llvm::StringSet<> missing;                        ///< names of the signature that no initializer holds
  llvm::StringMap<std::vector<std::string>> tiedTo; ///< by initializer
};

} // namespace fsdpc
