#include "frontend/onnx/translate/fold.h"

#include "ir/eval/known_value.h"
#include "ir/ops/attributes.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/xxhash.h"
#include <cstring>

namespace fsdpc {

namespace {

constexpr int64_t largestOperand = int64_t(1) << 24;
// Smaller values are not checked for repetition.
constexpr int64_t smallestRepeated = int64_t(1) << 5;
// Below this, evaluating a node again costs less than a lookup.
constexpr int64_t smallestShared = int64_t(1) << 10;

bool mayFold(const Node &node) {
  bool stays = node.op() == Op::constant || node.op() == Op::broadcast || node.op() == Op::randomUniform;
  return !stays && infoOf(node).has(pure) && node.operandCount() > 0 && llvm::all_of(node.operands(), constantBelow);
}

/// An op that moves or joins elements is evaluated on whole operands.
bool isSmallEnough(const Node &node) {
  const auto isTooLarge = [](const Value *operand) { return operand->type().elements() > largestOperand; };
  return isWorthFolding(node) && (isElementwise(node) || llvm::none_of(node.operands(), isTooLarge));
}

/// True for an elementwise op whose operands are all splats, of any shape.
bool isSplatOnly(const Node &node) {
  if (!isElementwise(node) || node.op() == Op::fused)
    return false;
  for (const Value *operand : node.operands())
    if (!constantBelow(operand)->get<ConstantAttributes>().value.isSplat())
      return false;
  return true;
}

std::vector<HostTensor> evaluateSplats(const Node &node) {
  std::vector<HostTensor> operands;
  for (const Value *operand : node.operands())
    operands.emplace_back(operand->type().withShape({}), constantBelow(operand)->get<ConstantAttributes>().value.at(0));
  std::vector<const HostTensor *> pointers;
  for (const HostTensor &operand : operands)
    pointers.push_back(&operand);
  return evaluatePure(node.op(), node.attributes(), pointers, {node.result()->type().withShape({})});
}

/// Number of elements in one slice of the first axis if all slices are equal, else 0.
int64_t repeatedElements(const HostTensor &tensor) {
  int64_t elements = tensor.type.elements();
  if (tensor.type.rank() < 2 || tensor.type.dim(0) < 2 || elements < smallestRepeated)
    return 0;
  int64_t slice = elements / tensor.type.dim(0);
  bool repeats =
      std::memcmp(tensor.values.data(), tensor.values.data() + slice, (elements - slice) * sizeof(double)) == 0;
  return repeats ? slice : 0;
}

/// The tensor broadcast to the shape, as one constant and at most one broadcast.
Value *constantOfTensor(Builder &builder, HostTensor tensor, llvm::ArrayRef<int64_t> to) {
  if (int64_t slice = repeatedElements(tensor)) {
    Shape shape(tensor.type.shape());
    shape[0] = 1;
    tensor.type = tensor.type.withShape(shape);
    tensor.values.resize(slice);
  }
  Value *constant = makeConstant(builder, tensor.type, denseOf(tensor));
  const Dense &dense = constant->definer()->get<ConstantAttributes>().value;
  return dense.isSplat() ? builder.constant(tensor.type.withShape(to), dense) : builder.broadcast(constant, to);
}

bool isLarge(const Node &node) {
  auto hasMany = [](const Value *value) { return value->type().elements() >= smallestShared; };
  return hasMany(node.result()) || llvm::any_of(node.operands(), hasMany);
}

/// A key for a node over constants: equal keys imply equal results. Large constants are distinguished by the address of
/// their bytes.
std::string keyOf(const Node &node) {
  std::string key;
  llvm::raw_string_ostream out(key);
  out << infoOf(node).name;
  for (const auto &[field, text] : attributeTexts(node.attributes()))
    out << ' ' << field << '(' << text << ')';
  for (const Value *operand : node.operands()) {
    const Node &constant = *constantBelow(operand);
    const Dense &value = constant.get<ConstantAttributes>().value;
    out << ' ' << toString(operand->type()) << ' ' << toString(constant.result()->type()) << ' ';
    if (value.storedElements() < smallestShared)
      out << (value.isSplat() ? "splat " : "") << llvm::toHex(value.bytes());
    else
      out << static_cast<const void *>(value.bytes().data());
  }
  return key;
}

} // namespace

Value *makeConstant(Builder &builder, Type type, Dense value) {
  llvm::ArrayRef<uint8_t> bytes = value.bytes();
  size_t elementBytes = byteSize(type.dtype());
  bool isUniform = !value.isSplat() && bytes.size() >= elementBytes &&
                   std::memcmp(bytes.data(), bytes.data() + elementBytes, bytes.size() - elementBytes) == 0;
  // f64 holds a splat of integers only up to 2^53.
  bool isExact =
      isFloat(type.dtype()) || std::abs(static_cast<double>(value.storedElements() ? value.integerAt(0) : 0)) < 0x1p53;
  if (isUniform && isExact)
    return builder.constant(type, value.at(0));
  return builder.constant(std::move(type), std::move(value));
}

Dense ConstantFolder::shared(Dense value) {
  if (value.isSplat() || value.storedElements() < smallestShared)
    return value;
  const size_t hash = llvm::xxh3_64bits(value.bytes());
  auto [first, last] = byHash.equal_range(hash);
  for (; first != last; ++first)
    if (first->second == value)
      return first->second;
  return byHash.emplace(hash, std::move(value))->second;
}

llvm::SmallVector<Value *, 2> ConstantFolder::fold(Builder &builder, Node *node) {
  llvm::SmallVector<Value *, 2> results;
  if (!mayFold(*node))
    return results;
  const bool ofSplats = isSplatOnly(*node);
  if (!ofSplats && !isSmallEnough(*node))
    return results;
  if (ofSplats) {
    HostTensor scalar = std::move(evaluateSplats(*node).front());
    results.push_back(
        builder.constant(node->result()->type(), Dense::splat(scalar.type.dtype(), scalar.values.front())));
  } else {
    const std::string key = isLarge(*node) ? keyOf(*node) : std::string();
    if (auto before = known.find(key); !key.empty() && before != known.end())
      results = before->second;
    else
      for (auto [i, tensor] : llvm::enumerate(evaluateOnConstants(*node)))
        results.push_back(
            constantOfTensor(builder, std::move(tensor), node->result(static_cast<unsigned>(i))->type().shape()));
    if (!key.empty())
      known.try_emplace(key, results);
  }
  node->erase();
  return results;
}

} // namespace fsdpc
