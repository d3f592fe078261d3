// Elements of a tensor by runs, so that nobody needs to hold all of them: a weight may be larger than memory.
#pragma once

#include "frontend/onnx/model.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace fsdpc {

/// Elements are given converted to dtypeOf(type), as readTensor gives them. The tensor has passed checkTensor and
/// outlives this.
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
  /// The same as the file has them; of external data only.
  llvm::Error readRaw(int64_t first, int64_t many, uint8_t *to) const;
  /// Rows [first, first + many) of the transpose of a matrix with `rows` rows: columns of it, one after the other.
  llvm::Error readTransposed(int64_t rows, int64_t first, int64_t many, uint8_t *to) const;
  /// The first element from `first` on that may differ from zero: what lies before it is a hole of a sparse file.
  int64_t skipHole(int64_t first) const;
  /// Copies elements [first, first + many) to a file in the kernel, at the place given; false if that is not possible,
  /// and then nothing is said about what the file holds there.
  bool copyTo(int file, int64_t offsetBytes, int64_t first, int64_t many) const;

  /// What one run may hold, so that a few of them fit anywhere.
  static constexpr int64_t runBytes = int64_t(4) << 20;
  /// Calls visit(bytes, first, many) for runs in order until it returns false.
  llvm::Error forEachRun(llvm::function_ref<bool(const uint8_t *, int64_t, int64_t)> visit) const;

  /// Calls visit(bytes, many) for runs that hold all elements but zeros in holes.
  llvm::Error forEachDataRun(llvm::function_ref<void(const uint8_t *, int64_t)> visit) const;
  /// Are all elements one value?
  llvm::Expected<bool> isUniform() const;
  /// Of two tensors of one type and shape.
  llvm::Expected<bool> equals(const TensorSource &other) const;
  /// Is this matrix, of `rows` rows, the transpose of `other`?
  llvm::Expected<bool> isTransposeOf(const TensorSource &other, int64_t rows) const;

private:
  TensorSource() = default;
  const onnx::TensorProto *tensor = nullptr;
  std::string path;            ///< of external data
  int descriptor = -1;         ///< of external data
  int64_t offset = 0;          ///< of the first element in the file
  std::vector<uint8_t> inside; ///< all elements, converted, of a tensor that the model holds
  int64_t count = 0, width = 0, rawWidth = 0;
};

/// Are all elements of an initializer one value? `ifAbsent`: the answer where its data are not there.
llvm::Expected<bool> isUniform(const OnnxModel &model, const onnx::TensorProto &tensor, bool ifAbsent);

} // namespace fsdpc
