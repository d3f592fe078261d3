#include "ir/text/fields.h"

#include <bit>

namespace fsdpc::text {

namespace {

class Collector final : public AttributeVisitor {
public:
  Fields fields;
  void field(llvm::StringRef name, int64_t &value) override { fields.push_back({name, &value}); }
  void field(llvm::StringRef name, double &value) override { fields.push_back({name, &value}); }
  void field(llvm::StringRef name, bool &value) override { fields.push_back({name, &value}); }
  void field(llvm::StringRef name, std::string &value) override { fields.push_back({name, &value}); }
  void field(llvm::StringRef name, DType &value) override { fields.push_back({name, &value}); }
  void field(llvm::StringRef name, Symbol &value) override { fields.push_back({name, &value}); }
  void field(llvm::StringRef name, Shape &value) override { fields.push_back({name, &value}); }
  void field(llvm::StringRef name, std::vector<std::string> &value) override { fields.push_back({name, &value}); }
  void field(llvm::StringRef name, Dense &value) override { fields.push_back({name, &value}); }
  void field(llvm::StringRef name, Expression &value) override { fields.push_back({name, &value}); }
};

bool equalValues(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }
template <class T>
bool equalValues(const T &a, const T &b) {
  return a == b;
}

} // namespace

Fields fieldsOf(AttributesBase &attributes) {
  Collector collector;
  attributes.visit(collector);
  return std::move(collector.fields);
}

bool equalFields(const Field &a, const Field &b) {
  return a.value.index() == b.value.index() &&
         std::visit([&](auto *value) { return equalValues(*value, *b.as<std::remove_pointer_t<decltype(value)>>()); },
                    a.value);
}

bool isPositional(const Field &field) {
  return field.as<Symbol>() && (field.name == "state" || field.name == "parameter");
}

std::optional<Type> impliedType(llvm::ArrayRef<Type> resultTypes) {
  if (resultTypes.empty() || resultTypes.front().isToken())
    return std::nullopt;
  return resultTypes.front();
}

bool isImplied(Op op, const Field &field) {
  if (field.as<DType>())
    return true;
  if (field.as<int64_t>())
    return op == Op::pack && field.name == "elements";
  // These share their struct with their gradient ops, and only the gradient ops use the shape.
  bool shapeIsUnused = op == Op::convolution || op == Op::maxPool || op == Op::averagePool;
  return field.as<Shape>() && field.name == "shape" && !shapeIsUnused;
}

bool agrees(const Field &field, const Type &implied) {
  if (const DType *dtype = field.as<DType>())
    return *dtype == implied.dtype();
  if (const Shape *shape = field.as<Shape>())
    return llvm::ArrayRef<int64_t>(*shape) == implied.shape();
  return *field.as<int64_t>() == checkedElements(implied.shape());
}

void restore(const Field &field, const Type &implied) {
  if (DType *dtype = field.as<DType>())
    *dtype = implied.dtype();
  else if (Shape *shape = field.as<Shape>())
    *shape = Shape(implied.shape());
  else
    *field.as<int64_t>() = implied.elements();
}

std::optional<DType> stepDType(Op op, llvm::ArrayRef<DType> arguments) {
  switch (op) {
  case Op::equal:
  case Op::less:
  case Op::lessEqual:
  case Op::logicalNot:
  case Op::logicalAnd:
  case Op::logicalOr:
  case Op::logicalXor:
  case Op::isNan: return DType::boolean;
  case Op::randomUniform: return DType::f32;
  case Op::cast: return std::nullopt;
  default:
    // The condition of a select does not determine its result type.
    size_t from = op == Op::select ? 1 : 0;
    return arguments.size() > from ? std::optional<DType>(arguments[from]) : std::nullopt;
  }
}

DType literalDType(Op op, llvm::ArrayRef<std::optional<DType>> arguments) {
  for (size_t i = op == Op::select ? 1 : 0; i < arguments.size(); ++i)
    if (arguments[i])
      return *arguments[i];
  return DType::f32;
}

} // namespace fsdpc::text
