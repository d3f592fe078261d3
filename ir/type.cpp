#include "ir/type.h"

#include "llvm/ADT/StringExtras.h"
#include <array>

namespace fsdpc {

namespace {
struct DTypeRow {
  llvm::StringRef name;
  int64_t bytes;
};
constexpr std::array<DTypeRow, 8> dtypeRows = {
    {{"f64", 8}, {"f32", 4}, {"bf16", 2}, {"f16", 2}, {"i64", 8}, {"i32", 4}, {"u8", 1}, {"bool", 1}}};
} // namespace

int64_t byteSize(DType dtype) { return dtypeRows[static_cast<size_t>(dtype)].bytes; }

llvm::StringRef nameOf(DType dtype) { return dtypeRows[static_cast<size_t>(dtype)].name; }

std::optional<DType> dtypeFromName(llvm::StringRef name) {
  for (size_t i = 0; i < dtypeRows.size(); ++i)
    if (dtypeRows[i].name == name)
      return static_cast<DType>(i);
  return std::nullopt;
}

std::optional<int64_t> checkedElements(llvm::ArrayRef<int64_t> shape) {
  int64_t product = 1;
  for (int64_t dim : shape)
    if (dim < 0 || __builtin_mul_overflow(product, dim, &product))
      return std::nullopt;
  return product;
}

std::optional<int64_t> checkedBytes(DType dtype, llvm::ArrayRef<int64_t> shape) {
  std::optional<int64_t> elements = checkedElements(shape);
  return elements && *elements <= maxBytes / byteSize(dtype) ? std::optional(*elements * byteSize(dtype))
                                                             : std::nullopt;
}

Type Type::token() {
  Type type;
  type.typeKind = Kind::token;
  return type;
}

Type Type::future(const Type &tensor) {
  Type type = tensor;
  type.typeKind = Kind::future;
  return type;
}

int64_t Type::elements() const {
  if (isToken())
    return 0;
  std::optional<int64_t> product = checkedElements(dims);
  assert(product && "a type's element count is checked when the type is made");
  return *product;
}

int64_t Type::bytes() const { return elements() * byteSize(elementType); }

llvm::raw_ostream &operator<<(llvm::raw_ostream &out, const Type &type) {
  if (type.isToken())
    return out << "token";
  if (type.isFuture())
    return out << "future<" << type.delivered() << '>';
  out << nameOf(type.dtype()) << '[';
  llvm::ListSeparator comma(",");
  for (int64_t dim : type.shape())
    out << comma << dim;
  return out << ']';
}

std::string toString(const Type &type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

} // namespace fsdpc
