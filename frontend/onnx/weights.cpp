// Initial values as safetensors: an 8-byte header length, a JSON header, the tensors. Holes of sparse files stay holes.
#include "frontend/onnx/import.h"

#include "frontend/onnx/tensor_source.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

namespace fsdpc {

namespace {

llvm::StringRef safetensorsName(DType dtype) {
  switch (dtype) {
  case DType::f64: return "F64";
  case DType::f32: return "F32";
  case DType::bf16: return "BF16";
  case DType::f16: return "F16";
  case DType::i64: return "I64";
  case DType::i32: return "I32";
  case DType::u8: return "U8";
  case DType::boolean: return "BOOL";
  }
  return "";
}

/// The header, preceded by its length.
std::string headerOf(llvm::ArrayRef<const Parameter *> parameters) {
  std::string text;
  llvm::raw_string_ostream out(text);
  llvm::json::OStream json(out);
  json.object([&] {
    int64_t offset = 0;
    for (const Parameter *parameter : parameters)
      json.attributeObject(llvm::json::fixUTF8(parameter->name), [&] {
        json.attribute("dtype", safetensorsName(parameter->type.dtype()));
        json.attributeArray("shape", [&] {
          for (int64_t dim : parameter->type.shape())
            json.value(dim);
        });
        json.attributeArray("data_offsets", [&] {
          json.value(offset);
          json.value(offset += parameter->type.bytes());
        });
      });
  });
  out.flush();
  // Padding to 8 bytes aligns the tensors.
  text.append((8 - text.size() % 8) % 8, ' ');
  char length[8];
  llvm::support::endian::write64le(length, text.size());
  return std::string(length, sizeof length) + text;
}

/// A file with writes at arbitrary offsets and zeros elsewhere. Remembers the first error.
class SparseFile {
public:
  explicit SparseFile(llvm::StringRef path)
      : descriptor(::open(path.str().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    note(descriptor >= 0);
  }
  SparseFile(const SparseFile &) = delete;
  SparseFile &operator=(const SparseFile &) = delete;
  ~SparseFile() {
    if (descriptor >= 0)
      ::close(descriptor);
  }

  int file() const { return descriptor; }
  void resize(int64_t bytes) { note(ftruncate(descriptor, bytes) == 0); }
  void write(int64_t offset, const void *data, int64_t bytes) {
    const char *from = static_cast<const char *>(data);
    while (bytes > 0 && reason == 0) {
      ssize_t written = pwrite(descriptor, from, static_cast<size_t>(bytes), offset);
      if (written < 0 && errno == EINTR)
        continue;
      note(written > 0);
      from += written;
      offset += written;
      bytes -= written;
    }
  }
  /// errno of the first failure, including that of closing.
  int close() {
    if (descriptor >= 0)
      note(::close(std::exchange(descriptor, -1)) == 0);
    return reason;
  }

private:
  void note(bool succeeded) {
    if (!succeeded && reason == 0)
      reason = errno ? errno : EIO;
  }
  int reason = 0;
  int descriptor;
};

bool isZero(llvm::ArrayRef<uint8_t> bytes) {
  return bytes.empty() || (bytes[0] == 0 && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

/// Copies elements in the order of the file.
llvm::Error copyPlain(const TensorSource &source, SparseFile &out, int64_t offset) {
  const int64_t width = source.elementBytes(), most = TensorSource::runBytes / width;
  std::vector<uint8_t> buffer;
  for (int64_t first = source.skipHole(0); first < source.elements();) {
    const int64_t many = std::min(most, source.elements() - first), to = offset + first * width;
    if (!source.copyTo(out.file(), to, first, many)) {
      buffer.resize(static_cast<size_t>(many * width));
      if (llvm::Error error = source.read(first, many, buffer.data()))
        return error;
      out.write(to, buffer.data(), many * width);
    }
    first = source.skipHole(first + many);
  }
  return llvm::Error::success();
}

/// Copies a parameter of `rows` rows whose transpose is in the file.
llvm::Error copyTransposed(const TensorSource &source, int64_t rows, SparseFile &out, int64_t offset) {
  if (source.elements() == 0 || source.skipHole(0) == source.elements())
    return llvm::Error::success();
  const int64_t columns = source.elements() / rows, rowBytes = columns * source.elementBytes();
  const int64_t band = std::clamp<int64_t>(TensorSource::runBytes / rowBytes, 1, rows);
  std::vector<uint8_t> buffer(static_cast<size_t>(band * rowBytes));
  for (int64_t first = 0; first < rows; first += band) {
    const int64_t many = std::min(band, rows - first);
    if (llvm::Error error = source.readTransposed(columns, first, many, buffer.data()))
      return error;
    if (llvm::ArrayRef<uint8_t> part(buffer.data(), static_cast<size_t>(many * rowBytes)); !isZero(part))
      out.write(offset + first * rowBytes, part.data(), many * rowBytes);
  }
  return llvm::Error::success();
}

llvm::Error copyValues(const OnnxModel &model, const onnx::TensorProto &tensor, const Parameter &parameter,
                       SparseFile &out, int64_t offset) {
  llvm::Expected<TensorSource> source = TensorSource::open(model, tensor);
  if (!source)
    return source.takeError();
  if (parameter.permutation.empty())
    return copyPlain(*source, out, offset);
  assert(parameter.permutation == Shape({1, 0}) && "parameters are recovered as they are or transposed");
  return copyTransposed(*source, parameter.type.dim(0), out, offset);
}

} // namespace

llvm::Error writeWeights(const ImportedModel &imported, llvm::StringRef path) {
  std::vector<const Parameter *> parameters;
  for (const Parameter &parameter : imported.parameters)
    if (parameter.hasValue)
      parameters.push_back(&parameter);
  llvm::StringMap<const onnx::TensorProto *> tensors;
  for (const onnx::TensorProto &tensor : imported.model->graph().initializer())
    tensors[tensor.name()] = &tensor;
  const std::string header = headerOf(parameters);
  int64_t offset = static_cast<int64_t>(header.size()), end = offset;
  for (const Parameter *parameter : parameters)
    end += parameter->type.bytes();
  SparseFile out(path);
  out.resize(end);
  out.write(0, header.data(), offset);
  for (const Parameter *parameter : parameters) {
    if (llvm::Error error =
            copyValues(*imported.model, *tensors.lookup(parameter->initializer), *parameter, out, offset))
      return error;
    offset += parameter->type.bytes();
  }
  if (int reason = out.close())
    return llvm::createStringError(path + ": cannot write: " + std::strerror(reason));
  return llvm::Error::success();
}

} // namespace fsdpc
