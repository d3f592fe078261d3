#include "frontend/onnx/tensor_source.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

namespace fsdpc {

namespace {

/// At least as many rows as one cache line of the transpose holds.
constexpr int64_t rowsAtOnce = 32;

/// to[i * stride + r] = from[r][i] of `height` rows of `many` elements.
template <class Element>
void scatterRows(const uint8_t *from, int64_t height, int64_t many, uint8_t *to, int64_t stride) {
  for (int64_t i = 0; i < many; ++i)
    for (int64_t r = 0; r < height; ++r)
      std::memcpy(to + (i * stride + r) * sizeof(Element), from + (r * many + i) * sizeof(Element), sizeof(Element));
}

llvm::Error fileError(llvm::StringRef path) {
  return llvm::createStringError("cannot read '" + path + "': " + std::strerror(errno));
}

llvm::Error readAll(int descriptor, llvm::StringRef path, int64_t offset, int64_t bytes, uint8_t *to) {
  while (bytes > 0) {
    ssize_t got = pread(descriptor, to, static_cast<size_t>(bytes), offset);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return fileError(path);
    if (got == 0)
      return llvm::createStringError("'" + path + "' became shorter while it was read");
    to += got;
    offset += got;
    bytes -= got;
  }
  return llvm::Error::success();
}

} // namespace

llvm::Expected<TensorSource> TensorSource::open(const OnnxModel &model, const onnx::TensorProto &tensor) {
  TensorSource source;
  source.tensor = &tensor;
  source.count = elementsOf(tensor);
  source.width = byteSize(*dtypeOf(tensor.data_type()));
  source.rawWidth = rawElementBytes(tensor.data_type());
  if (tensor.data_location() != onnx::TensorProto::EXTERNAL) {
    llvm::Expected<std::vector<uint8_t>> all = readTensor(model, tensor);
    if (!all)
      return all.takeError();
    source.inside = std::move(*all);
    return source;
  }
  llvm::Expected<ExternalSlice> slice = externalSlice(model, tensor);
  if (!slice)
    return slice.takeError();
  source.path = slice->file;
  source.offset = static_cast<int64_t>(slice->offset);
  source.descriptor = ::open(source.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (source.descriptor < 0)
    return fileError(source.path);
  return source;
}

TensorSource::TensorSource(TensorSource &&other) noexcept
    : tensor(other.tensor), path(std::move(other.path)), descriptor(std::exchange(other.descriptor, -1)),
      offset(other.offset), inside(std::move(other.inside)), count(other.count), width(other.width),
      rawWidth(other.rawWidth) {}

TensorSource::~TensorSource() {
  if (descriptor >= 0)
    ::close(descriptor);
}

llvm::Error TensorSource::read(int64_t first, int64_t many, uint8_t *to) const {
  if (descriptor < 0) {
    std::copy_n(inside.data() + first * width, many * width, to);
    return llvm::Error::success();
  }
  if (isStoredAsUsed(tensor->data_type()))
    return readRaw(first, many, to);
  std::vector<uint8_t> raw(static_cast<size_t>(many * rawWidth));
  if (llvm::Error error = readRaw(first, many, raw.data()))
    return error;
  std::vector<uint8_t> converted = convertRaw(tensor->data_type(), raw.data(), many);
  std::copy(converted.begin(), converted.end(), to);
  return llvm::Error::success();
}

llvm::Error TensorSource::readRaw(int64_t first, int64_t many, uint8_t *to) const {
  return readAll(descriptor, path, offset + first * rawWidth, many * rawWidth, to);
}

llvm::Error TensorSource::readTransposed(int64_t rows, int64_t first, int64_t many, uint8_t *to) const {
  const int64_t columns = count / rows;
  std::vector<uint8_t> part(static_cast<size_t>(rowsAtOnce * many * width));
  std::memset(to, 0, static_cast<size_t>(many * rows * width));
  int64_t data = 0; // elements before it are zero
  for (int64_t row = 0; row < rows; row += rowsAtOnce) {
    const int64_t height = std::min(rowsAtOnce, rows - row);
    if (data <= row * columns)
      data = skipHole(row * columns);
    if (data >= (row + height) * columns)
      continue;
    for (int64_t r = 0; r < height; ++r)
      if (llvm::Error error = read((row + r) * columns + first, many, part.data() + r * many * width))
        return error;
    auto scatter = width == 4 ? scatterRows<uint32_t> : width == 8 ? scatterRows<uint64_t> : scatterRows<uint8_t>;
    scatter(part.data(), height, many, to + row * width, rows);
  }
  return llvm::Error::success();
}

int64_t TensorSource::skipHole(int64_t first) const {
  if (descriptor < 0 || first >= count)
    return first;
  const off_t at = offset + first * rawWidth;
  const off_t data = lseek(descriptor, at, SEEK_DATA);
  if (data < 0)
    return errno == ENXIO ? count : first;
  return std::min<int64_t>(count, first + (data - at) / rawWidth);
}

bool TensorSource::copyTo(int file, int64_t offsetBytes, int64_t first, int64_t many) const {
  if (descriptor < 0 || !isStoredAsUsed(tensor->data_type()))
    return false;
  off_t from = offset + first * rawWidth, to = offsetBytes;
  for (int64_t left = many * rawWidth; left > 0;) {
    ssize_t copied = copy_file_range(descriptor, &from, file, &to, static_cast<size_t>(left), 0);
    if (copied <= 0)
      return false;
    left -= copied;
  }
  return true;
}

} // namespace fsdpc
