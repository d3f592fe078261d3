// Reads a tensor's elements in contiguous ranges, so that no reader needs to hold all of them: a weight may be larger
// than memory.
#pragma once

#include "frontend/onnx/model.h"

namespace fsdpc {

/// Yields elements converted to dtypeOf(type), like readTensor. Requires checkTensor. The tensor must outlive this.
class TensorSource {
public:
  static llvm::Expected<TensorSource> open(const OnnxModel &model, const onnx::TensorProto &tensor);
  TensorSource(TensorSource &&other) noexcept;
  TensorSource &operator=(TensorSource &&) = delete;
  ~TensorSource();

  int64_t elements() const { return count; }
  int64_t elementBytes() const { return width; } ///< after conversion

  /// Elements [first, first + many).
  llvm::Error read(int64_t first, int64_t many, uint8_t *to) const;
  /// The same without conversion; for external data only.
  llvm::Error readRaw(int64_t first, int64_t many, uint8_t *to) const;
  /// Rows [first, first + many) of the transpose of a matrix with `rows` rows: that is, columns of the matrix.
  llvm::Error readTransposed(int64_t rows, int64_t first, int64_t many, uint8_t *to) const;
  /// The first element from `first` on that may differ from zero. The elements before it are in a hole of a sparse
  /// file.
  int64_t skipHole(int64_t first) const;
  /// Copies elements [first, first + many) to offset `offsetBytes` of a file, inside the kernel. Returns false if that
  /// is not possible; the content of the file there is then unspecified.
  bool copyTo(int file, int64_t offsetBytes, int64_t first, int64_t many) const;

  /// The maximum size of one range, so that a few of them always fit in memory.
  static constexpr int64_t runBytes = int64_t(4) << 20;

private:
  TensorSource() = default;
  const onnx::TensorProto *tensor = nullptr;
  std::string path;            ///< of external data
  int descriptor = -1;         ///< of external data
  int64_t offset = 0;          ///< of the first element in the file
  std::vector<uint8_t> inside; ///< all elements, converted, of a tensor stored inside the model
  int64_t count = 0, width = 0, rawWidth = 0;
};

} // namespace fsdpc
