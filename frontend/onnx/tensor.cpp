// Payloads of initializers: inline in raw or typed fields, or a slice of a file below the model's folder.
#include "frontend/onnx/tensor_source.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include <cmath>

namespace fsdpc {

namespace {

using onnx::TensorProto;

struct FileType {
  int32_t onnxType;
  DType dtype;
  int64_t bytes; ///< of an element in raw data
};
constexpr FileType fileTypes[] = {
    {TensorProto::FLOAT, DType::f32, 4},    {TensorProto::DOUBLE, DType::f64, 8}, {TensorProto::FLOAT16, DType::f32, 2},
    {TensorProto::BFLOAT16, DType::f32, 2}, {TensorProto::INT64, DType::i64, 8},  {TensorProto::INT32, DType::i32, 4},
    {TensorProto::INT16, DType::i32, 2},    {TensorProto::INT8, DType::i32, 1},   {TensorProto::UINT8, DType::u8, 1},
    {TensorProto::UINT16, DType::i32, 2},   {TensorProto::UINT32, DType::i64, 4}, {TensorProto::UINT64, DType::i64, 8},
    {TensorProto::BOOL, DType::boolean, 1},
};

const FileType *fileTypeOf(int32_t onnxType) {
  for (const FileType &type : fileTypes)
    if (type.onnxType == onnxType)
      return &type;
  return nullptr;
}

llvm::Error tensorError(const TensorProto &tensor, const llvm::Twine &why) {
  return llvm::createStringError("tensor '" + tensor.name() + "': " + why);
}

bool isExternal(const TensorProto &tensor) { return tensor.data_location() == TensorProto::EXTERNAL; }

/// Checks a location as far as possible without looking at the file.
llvm::Error checkLocation(const TensorProto &tensor, llvm::StringRef location) {
  namespace path = llvm::sys::path;
  if (location.empty() || path::is_absolute(location) || location.contains('\0'))
    return tensorError(tensor, "external data must be in a file relative to the model, not '" + location + "'");
  for (auto part = path::begin(location), end = path::end(location); part != end; ++part)
    if (*part == "..")
      return tensorError(tensor, "external data '" + location + "' leaves the model's folder");
  return llvm::Error::success();
}

llvm::SmallString<256> besideModel(const OnnxModel &model, llvm::StringRef location) {
  llvm::SmallString<256> joined(model.folder);
  llvm::sys::path::append(joined, location);
  return joined;
}

llvm::StringRef locationOf(const TensorProto &tensor) {
  for (const onnx::StringStringEntryProto &entry : tensor.external_data())
    if (entry.key() == "location")
      return entry.value();
  return "";
}

/// The file of a location. Requires it to be in the model's folder after all links are followed.
llvm::Expected<std::string> containedFile(const OnnxModel &model, const TensorProto &tensor, llvm::StringRef location) {
  namespace fs = llvm::sys::fs;
  if (llvm::Error error = checkLocation(tensor, location))
    return error;
  llvm::SmallString<256> joined = besideModel(model, location), file, folder;
  if (std::error_code error = fs::real_path(joined, file))
    return tensorError(tensor,
                       "cannot open external data file '" + joined + "': " + error.message() +
                           (model.weightsMayBeAbsent
                                ? ". It is no parameter, which could start without: the graph needs its values; put "
                                  "the file beside the model"
                                : " (--init file, default or random start without)"));
  if (std::error_code error = fs::real_path(model.folder, folder))
    return tensorError(tensor, "cannot resolve the model's folder '" + model.folder + "': " + error.message());
  llvm::StringRef below = file;
  if (!below.consume_front(folder) || !(folder.ends_with("/") || below.starts_with("/")))
    return tensorError(tensor, "external data '" + location + "' is a link that leaves the model's folder");
  if (!fs::is_regular_file(file))
    return tensorError(tensor, "external data '" + joined + "' is not a file");
  return file.str().str();
}

/// Number of elements in the typed field of the element type.
int64_t typedElements(const TensorProto &tensor) {
  switch (tensor.data_type()) {
  case TensorProto::FLOAT: return tensor.float_data_size();
  case TensorProto::DOUBLE: return tensor.double_data_size();
  case TensorProto::INT64: return tensor.int64_data_size();
  case TensorProto::UINT32:
  case TensorProto::UINT64: return tensor.uint64_data_size();
  default: return tensor.int32_data_size();
  }
}

float halfToFloat(uint16_t bits) {
  int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  float magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                    : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                    : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return bits >> 15 ? -magnitude : magnitude;
}

float bfloatToFloat(uint16_t bits) {
  uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

/// result[i] = convert(element i), written as To.
template <class To, class From, class Convert>
std::vector<uint8_t> convertEach(const uint8_t *data, int64_t elements, Convert convert) {
  std::vector<uint8_t> result(elements * sizeof(To));
  for (int64_t i = 0; i < elements; ++i) {
    From from;
    std::memcpy(&from, data + i * sizeof(From), sizeof from);
    To to = convert(from);
    std::memcpy(result.data() + i * sizeof(To), &to, sizeof to);
  }
  return result;
}

template <class To, class Field, class Convert>
std::vector<uint8_t> fromField(const Field &field, Convert convert) {
  std::vector<uint8_t> result(field.size() * sizeof(To));
  for (int i = 0; i < field.size(); ++i) {
    To to = convert(field.Get(i));
    std::memcpy(result.data() + i * sizeof(To), &to, sizeof to);
  }
  return result;
}

std::vector<uint8_t> fromTyped(const TensorProto &tensor) {
  auto same = [](auto x) { return x; };
  switch (tensor.data_type()) {
  case TensorProto::FLOAT: return fromField<float>(tensor.float_data(), same);
  case TensorProto::DOUBLE: return fromField<double>(tensor.double_data(), same);
  case TensorProto::INT64: return fromField<int64_t>(tensor.int64_data(), same);
  case TensorProto::UINT32:
  case TensorProto::UINT64: return fromField<int64_t>(tensor.uint64_data(), same);
  case TensorProto::FLOAT16:
    return fromField<float>(tensor.int32_data(), [](int32_t x) { return halfToFloat(static_cast<uint16_t>(x)); });
  case TensorProto::BFLOAT16:
    return fromField<float>(tensor.int32_data(), [](int32_t x) { return bfloatToFloat(static_cast<uint16_t>(x)); });
  case TensorProto::BOOL: return fromField<uint8_t>(tensor.int32_data(), [](int32_t x) { return uint8_t(x != 0); });
  case TensorProto::UINT8: return fromField<uint8_t>(tensor.int32_data(), [](int32_t x) { return uint8_t(x); });
  default: return fromField<int32_t>(tensor.int32_data(), same);
  }
}

} // namespace

std::optional<DType> dtypeOf(int32_t onnxType) {
  const FileType *type = fileTypeOf(onnxType);
  return type ? std::optional<DType>(type->dtype) : std::nullopt;
}

std::string typeText(int32_t onnxType) {
  return TensorProto::DataType_IsValid(onnxType)
             ? TensorProto::DataType_Name(static_cast<TensorProto::DataType>(onnxType))
             : "type " + std::to_string(onnxType);
}

int64_t rawElementBytes(int32_t onnxType) { return fileTypeOf(onnxType)->bytes; }

bool isStoredAsUsed(int32_t onnxType) {
  switch (onnxType) {
  case TensorProto::FLOAT:
  case TensorProto::DOUBLE:
  case TensorProto::INT64:
  case TensorProto::INT32:
  case TensorProto::UINT8:
  case TensorProto::UINT64: return true;
  default: return false;
  }
}

std::vector<uint8_t> convertRaw(int32_t onnxType, const uint8_t *data, int64_t elements) {
  auto as32 = [](auto x) { return static_cast<int32_t>(x); };
  auto as64 = [](auto x) { return static_cast<int64_t>(x); };
  switch (onnxType) {
  case TensorProto::FLOAT16: return convertEach<float, uint16_t>(data, elements, halfToFloat);
  case TensorProto::BFLOAT16: return convertEach<float, uint16_t>(data, elements, bfloatToFloat);
  case TensorProto::INT8: return convertEach<int32_t, int8_t>(data, elements, as32);
  case TensorProto::INT16: return convertEach<int32_t, int16_t>(data, elements, as32);
  case TensorProto::UINT16: return convertEach<int32_t, uint16_t>(data, elements, as32);
  case TensorProto::UINT32: return convertEach<int64_t, uint32_t>(data, elements, as64);
  case TensorProto::BOOL:
    return convertEach<uint8_t, uint8_t>(data, elements, [](uint8_t x) { return uint8_t(x != 0); });
  default: return std::vector<uint8_t>(data, data + elements * fileTypeOf(onnxType)->bytes);
  }
}

llvm::Expected<ExternalSlice> externalSlice(const OnnxModel &model, const TensorProto &tensor) {
  const uint64_t expected = elementsOf(tensor) * rawElementBytes(tensor.data_type());
  ExternalSlice slice;
  slice.length = expected;
  for (const onnx::StringStringEntryProto &entry : tensor.external_data()) {
    uint64_t *number = entry.key() == "offset" ? &slice.offset : entry.key() == "length" ? &slice.length : nullptr;
    if (number && llvm::StringRef(entry.value()).getAsInteger(10, *number))
      return tensorError(tensor, "external data has a bad " + entry.key() + " '" + entry.value() + "'");
  }
  llvm::Expected<std::string> file = containedFile(model, tensor, locationOf(tensor));
  if (!file)
    return file.takeError();
  slice.file = std::move(*file);
  if (slice.length != expected)
    return tensorError(tensor, "external data has length " + llvm::Twine(slice.length) + ", its shape needs " +
                                   llvm::Twine(expected) + " bytes");
  uint64_t size = 0;
  if (std::error_code error = llvm::sys::fs::file_size(slice.file, size))
    return tensorError(tensor, "cannot read '" + slice.file + "': " + error.message());
  if (slice.offset > size || slice.length > size - slice.offset)
    return tensorError(tensor, "needs bytes " + llvm::Twine(slice.offset) + " to " +
                                   llvm::Twine(slice.offset + slice.length) + " of '" + slice.file + "', which has " +
                                   llvm::Twine(size));
  return slice;
}

Shape shapeOf(const TensorProto &tensor) { return Shape(tensor.dims().begin(), tensor.dims().end()); }

int64_t elementsOf(const TensorProto &tensor) { return checkedElements(shapeOf(tensor)).value_or(0); }

std::string externalFile(const OnnxModel &model, const TensorProto &tensor) {
  return besideModel(model, locationOf(tensor)).str().str();
}

bool isAbsent(const OnnxModel &model, const TensorProto &tensor) {
  if (!model.weightsMayBeAbsent || !isExternal(tensor))
    return false;
  llvm::StringRef location = locationOf(tensor);
  if (llvm::Error error = checkLocation(tensor, location)) {
    llvm::consumeError(std::move(error));
    return false;
  }
  return !llvm::sys::fs::exists(besideModel(model, location));
}

llvm::Error checkTensor(const OnnxModel &model, const TensorProto &tensor) {
  const FileType *type = fileTypeOf(tensor.data_type());
  if (!type)
    return tensorError(tensor, "elements of " + typeText(tensor.data_type()) + " are not supported");
  for (int64_t dim : tensor.dims())
    if (dim < 0)
      return tensorError(tensor, "negative dim " + llvm::Twine(dim));
  std::optional<int64_t> elements = checkedElements(shapeOf(tensor));
  // An element has at most sixteen bytes, before and after the conversion.
  if (!elements || *elements > (int64_t(1) << 59))
    return tensorError(tensor, "too many elements");
  if (tensor.has_segment())
    return tensorError(tensor, "segmented tensors are not supported");
  int64_t bytes = *elements * type->bytes;
  if (isAbsent(model, tensor))
    return llvm::Error::success();
  if (isExternal(tensor)) {
    llvm::Expected<ExternalSlice> slice = externalSlice(model, tensor);
    return slice ? llvm::Error::success() : slice.takeError();
  }
  if (tensor.has_raw_data() && static_cast<int64_t>(tensor.raw_data().size()) != bytes)
    return tensorError(tensor, "holds " + llvm::Twine(tensor.raw_data().size()) + " bytes, its shape needs " +
                                   llvm::Twine(bytes));
  if (!tensor.has_raw_data() && typedElements(tensor) != *elements)
    return tensorError(tensor, "holds " + llvm::Twine(typedElements(tensor)) + " elements, its shape needs " +
                                   llvm::Twine(*elements));
  return llvm::Error::success();
}

llvm::Expected<std::vector<uint8_t>> readTensor(const OnnxModel &model, const TensorProto &tensor) {
  int64_t elements = elementsOf(tensor);
  if (!isExternal(tensor))
    return tensor.has_raw_data()
               ? convertRaw(tensor.data_type(), reinterpret_cast<const uint8_t *>(tensor.raw_data().data()), elements)
               : fromTyped(tensor);
  llvm::Expected<TensorSource> source = TensorSource::open(model, tensor);
  if (!source)
    return source.takeError();
  std::vector<uint8_t> all(static_cast<size_t>(elements * source->elementBytes()));
  if (llvm::Error error = source->read(0, elements, all.data()))
    return tensorError(tensor, llvm::toString(std::move(error)));
  return all;
}

llvm::Expected<std::string> readRaw(const OnnxModel &model, const TensorProto &tensor) {
  llvm::Expected<TensorSource> source = TensorSource::open(model, tensor);
  if (!source)
    return source.takeError();
  std::string bytes(static_cast<size_t>(source->elements() * rawElementBytes(tensor.data_type())), '\0');
  if (llvm::Error error = source->readRaw(0, source->elements(), reinterpret_cast<uint8_t *>(bytes.data())))
    return tensorError(tensor, llvm::toString(std::move(error)));
  return bytes;
}

llvm::Expected<Dense> readDense(const OnnxModel &model, const TensorProto &tensor) {
  llvm::Expected<std::vector<uint8_t>> bytes = readTensor(model, tensor);
  if (!bytes)
    return bytes.takeError();
  return Dense(*dtypeOf(tensor.data_type()), std::move(*bytes));
}

void copyValues(const TensorProto &from, TensorProto &to) {
  std::string name = to.name();
  auto metadata = std::move(*to.mutable_metadata_props());
  to.CopyFrom(from);
  to.set_name(name);
  to.mutable_metadata_props()->Swap(&metadata);
}

} // namespace fsdpc
