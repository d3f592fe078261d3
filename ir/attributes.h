// Attributes of an op: one plain struct per op with one `fields` visitor. The visitor drives printing, parsing,
// equality and hashing, so each op lists its fields once.
#pragma once

#include "ir/type.h"
#include "llvm/ADT/Hashing.h"
#include <memory>
#include <utility>
#include <vector>

namespace fsdpc {

enum class Op : uint16_t;

/// The name of a state, a unit or a mesh axis in an attribute; printed as @name right after the op.
struct Symbol {
  std::string name;
  friend bool operator==(const Symbol &, const Symbol &) = default;
};

/// The elements of a constant, in the element type's memory format, shared between copies of the attribute.
class Dense {
public:
  Dense() = default;
  /// `bytes.size()` must be elements x byteSize(dtype).
  Dense(DType dtype, std::vector<uint8_t> bytes);
  /// One value for every element of any shape.
  static Dense splat(DType dtype, double value);
  /// Values are converted to `dtype`; integers saturate.
  static Dense fromDoubles(DType dtype, llvm::ArrayRef<double> values);

  DType dtype() const { return elementType; }
  bool isSplat() const { return splatForm; }
  /// Elements stored: 1 for a splat.
  int64_t storedElements() const;
  /// Element i as f64; for a splat every i gives the one value. i64 beyond 2^53 rounds: use integerAt.
  double at(int64_t index) const;
  int64_t integerAt(int64_t index) const;
  llvm::ArrayRef<uint8_t> bytes() const {
    return storage ? llvm::ArrayRef<uint8_t>(*storage) : llvm::ArrayRef<uint8_t>();
  }
  llvm::StringRef asText() const { return {reinterpret_cast<const char *>(bytes().data()), bytes().size()}; }
  friend bool operator==(const Dense &a, const Dense &b);

private:
  DType elementType = DType::f32;
  bool splatForm = false;
  std::shared_ptr<const std::vector<uint8_t>> storage;
};

/// `value` rounded to a 16-bit float type: ties to even, infinite beyond its range. For other types, `value` itself.
double roundedTo(DType dtype, double value);

/// The scalar program of a `fused` node. Step arguments index operands first, then earlier steps:
/// argument k < operandCount is operand k, otherwise step k - operandCount.
struct Expression {
  struct Step {
    Op op;                    ///< an elementwise op, or `constant` for a literal
    DType dtype = DType::f32; ///< of the step's value
    llvm::SmallVector<int32_t, 3> arguments;
    llvm::SmallVector<int64_t, 2> immediates; ///< random_uniform: instance, batch_axis[, first_sample, rank_samples]
    double literal = 0;                       ///< constant
    friend bool operator==(const Step &, const Step &) = default;
  };
  int32_t operandCount = 0;
  std::vector<Step> steps;
  llvm::SmallVector<int32_t, 2> yields; ///< one argument index per result
  friend bool operator==(const Expression &, const Expression &) = default;
};

class AttributeVisitor {
public:
  virtual ~AttributeVisitor() = default;
  virtual void field(llvm::StringRef name, int64_t &value) = 0;
  virtual void field(llvm::StringRef name, double &value) = 0;
  virtual void field(llvm::StringRef name, bool &value) = 0; ///< printed as the bare name when true
  virtual void field(llvm::StringRef name, std::string &value) = 0;
  virtual void field(llvm::StringRef name, DType &value) = 0;
  virtual void field(llvm::StringRef name, Symbol &value) = 0;
  virtual void field(llvm::StringRef name, Shape &value) = 0;
  virtual void field(llvm::StringRef name, std::vector<std::string> &value) = 0;
  virtual void field(llvm::StringRef name, Dense &value) = 0;
  virtual void field(llvm::StringRef name, Expression &value) = 0;
};

/// Owns one op's attribute struct. For ops without attributes the node holds a null pointer.
class AttributesBase {
public:
  virtual ~AttributesBase() = default;
  virtual std::unique_ptr<AttributesBase> clone() const = 0;
  virtual std::unique_ptr<AttributesBase> makeDefault() const = 0;
  virtual void visit(AttributeVisitor &visitor) = 0;
  virtual const void *typeId() const = 0;
};

template <class T>
class Attributes final : public AttributesBase {
public:
  Attributes() = default;
  explicit Attributes(T value) : value(std::move(value)) {}
  std::unique_ptr<AttributesBase> clone() const override { return std::make_unique<Attributes>(value); }
  std::unique_ptr<AttributesBase> makeDefault() const override { return std::make_unique<Attributes>(); }
  void visit(AttributeVisitor &visitor) override { value.fields(visitor); }
  const void *typeId() const override { return id(); }
  static const void *id() {
    static const char tag = 0;
    return &tag;
  }
  T value;
};

/// The (field, text) pairs of all fields that differ from the op's default, in the order of `fields`. Empty for null.
/// Equal fields have equal texts. The text of a large constant is a digest.
std::vector<std::pair<std::string, std::string>> attributeTexts(const AttributesBase *attributes);
bool equalAttributes(const AttributesBase *a, const AttributesBase *b);
llvm::hash_code hashAttributes(const AttributesBase *attributes);

/// The shortest text that reads back to the same bits, also for inf, -inf and nan.
std::string doubleText(double value);
/// @name or @"name with odd characters", likewise with %.
std::string symbolText(char sigil, llvm::StringRef name);

} // namespace fsdpc
