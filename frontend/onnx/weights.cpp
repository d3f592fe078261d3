// Initial values as safetensors: an 8-byte header length, a JSON header, the tensors.
#include "frontend/onnx/import.h"

#include "frontend/onnx/graph_index.h"
#include "llvm/Support/EndianStream.h"
#include "llvm/Support/JSON.h"

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

std::string headerOf(llvm::ArrayRef<Parameter> parameters) {
  std::string text;
  llvm::raw_string_ostream out(text);
  llvm::json::OStream json(out);
  json.object([&] {
    int64_t offset = 0;
    for (const Parameter &parameter : parameters)
      json.attributeObject(llvm::json::fixUTF8(parameter.name), [&] {
        json.attribute("dtype", safetensorsName(parameter.type.dtype()));
        json.attributeArray("shape", [&] {
          for (int64_t dim : parameter.type.shape())
            json.value(dim);
        });
        json.attributeArray("data_offsets", [&] {
          json.value(offset);
          json.value(offset += parameter.type.bytes());
        });
      });
  });
  out.flush();
  // Padding to 8 bytes aligns the tensors.
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

/// From the file's order of dims to the parameter's: file dim i is parameter dim permutation[i].
std::vector<uint8_t> inOwnLayout(const Parameter &parameter, std::vector<uint8_t> file) {
  llvm::ArrayRef<int64_t> shape = parameter.type.shape(), permutation = parameter.permutation;
  if (permutation.empty())
    return file;
  size_t rank = shape.size(), elementBytes = byteSize(parameter.type.dtype());
  Shape stride(rank, 1); // of the parameter's dims in the file
  int64_t step = 1;
  for (size_t i = rank; i-- > 0; step *= shape[permutation[i]])
    stride[permutation[i]] = step;
  std::vector<uint8_t> result(file.size());
  Shape coordinate(rank, 0);
  int64_t from = 0;
  for (size_t to = 0; to < result.size(); to += elementBytes) {
    std::memcpy(result.data() + to, file.data() + from * elementBytes, elementBytes);
    for (size_t axis = rank; axis-- > 0;) {
      from += stride[axis];
      if (++coordinate[axis] < shape[axis])
        break;
      from -= stride[axis] * shape[axis];
      coordinate[axis] = 0;
    }
  }
  return result;
}

} // namespace

llvm::Error writeWeights(const ImportedModel &imported, llvm::StringRef path) {
  std::error_code error;
  llvm::raw_fd_ostream out(path, error);
  if (error)
    return llvm::createStringError(path + ": cannot write: " + error.message());
  std::string header = headerOf(imported.parameters);
  llvm::support::endian::write<uint64_t>(out, header.size(), llvm::endianness::little);
  out << header;
  llvm::StringMap<const onnx::TensorProto *> tensors;
  for (const onnx::TensorProto &tensor : imported.model->graph().initializer())
    tensors[tensor.name()] = &tensor;
  for (const Parameter &parameter : imported.parameters) {
    llvm::Expected<std::vector<uint8_t>> bytes = readTensor(*imported.model, *tensors.lookup(parameter.initializer));
    if (!bytes)
      return bytes.takeError();
    std::vector<uint8_t> own = inOwnLayout(parameter, std::move(*bytes));
    out.write(reinterpret_cast<const char *>(own.data()), own.size());
  }
  out.close();
  if (out.has_error()) {
    std::error_code why = out.error();
    out.clear_error();
    return llvm::createStringError(path + ": cannot write: " + why.message());
  }
  return llvm::Error::success();
}

} // namespace fsdpc
