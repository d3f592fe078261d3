// Facts of the tensors in one external data file, and the text form in which they outlive a compile.
#pragma once

#include "frontend/onnx/tensor_facts.h"
#include <map>
#include <optional>
#include <string>
#include <tuple>

namespace fsdpc {

/// A file's state. Facts hold for the state in which the file was read.
struct FileState {
  uint64_t sizeBytes = 0;
  int64_t modifiedNanoseconds = 0; ///< since 1970
  bool operator==(const FileState &) const = default;
};

/// Nullopt if there is no such file.
std::optional<FileState> stateOf(llvm::StringRef path);

/// A tensor's place in the file, and how its bytes are read.
struct TensorPlace {
  int64_t offsetBytes = 0;
  int32_t onnxType = 0;
  int64_t elements = 0;
  int64_t rows = 0; ///< TensorFacts::rows
  auto operator<=>(const TensorPlace &) const = default;
};

struct FactFile {
  FileState state;
  std::map<TensorPlace, TensorFacts> facts;
};

/// The path, the state, one line per tensor and a checksum.
std::string toText(llvm::StringRef path, const FactFile &file);
/// Nullopt if the text is damaged, or if it is of another file or another state of it.
std::optional<FactFile> fromText(llvm::StringRef text, llvm::StringRef path, const FileState &state);

} // namespace fsdpc
