#include "ir/ops/attributes.h"
#include "passes/graph/match.h"
#include "passes/passes.h"
#include "llvm/ADT/SetVector.h"
#include <cmath>

namespace fsdpc {

namespace {

/// Limit on the values visited when following a parameter through nodes that move elements.
constexpr size_t maxValues = 32;

/// Roles by priority: the first decides the initial value of a parameter with several roles.
enum class Role : uint8_t { weight, table, scale, slope, bias, shift, unknown };

struct UseOfParameter {
  Role role = Role::unknown;
  int64_t fanIn = 0; ///< weight, bias
};

bool movesElements(const Node &node) {
  switch (node.op()) {
  case Op::reshape:
  case Op::transpose:
  case Op::slice:
  case Op::broadcast:
  case Op::cast: return true;
  default: return false;
  }
}

bool isProduct(const Node &node) {
  return node.op() == Op::matmul || node.op() == Op::convolution || node.op() == Op::convolutionGradInput;
}

/// The number of products summed in one element of the result, as PyTorch counts them: for a transposed convolution,
/// those of the other channels.
int64_t fanInOf(const Node &product) {
  if (product.op() == Op::matmul)
    return product.operand(0)->type().dim(product.get<MatmulAttributes>().transposeA ? -2 : -1);
  int64_t fanIn = 1;
  for (int64_t dim : product.operand(1)->type().shape().drop_front())
    fanIn *= dim;
  return fanIn;
}

const Value *belowMoves(const Value *value) {
  for (size_t i = 0; i < maxValues && value->definer() && movesElements(*value->definer()); ++i)
    value = value->definer()->operand(0);
  return value;
}

bool isParameter(const Value *value) { return definedBy(belowMoves(value), Op::read); }

/// The matmul or convolution with a parameter that computes the value; null for matmuls of activations.
const Node *layerOf(const Value *value) {
  const Node *node = belowMoves(value)->definer();
  return node && isProduct(*node) && (isParameter(node->operand(0)) || isParameter(node->operand(1))) ? node : nullptr;
}

bool isTable(const Type &type) {
  return llvm::count_if(type.shape(), [](int64_t dim) { return dim > 1; }) > 1;
}

UseOfParameter roleInSum(const Value *other, const Type &own) {
  if (const Node *product = layerOf(other))
    return {Role::bias, fanInOf(*product)};
  if (isTable(own))
    return {Role::table};
  const Node *node = belowMoves(other)->definer();
  bool isScaled = node && node->op() == Op::mul && (isParameter(node->operand(0)) || isParameter(node->operand(1)));
  return {isScaled ? Role::shift : Role::unknown};
}

/// select(x < 0, x * slope, x)
bool isSlope(const Node &mul, const Value *other) {
  for (Use *use = mul.result()->uses(); use; use = use->next())
    if (use->user()->op() == Op::select && (use->user()->operand(1) == other || use->user()->operand(2) == other))
      return true;
  return false;
}

/// The role that `use` gives to a parameter of type `own`. The used value is derived from the parameter.
UseOfParameter roleOf(const Use &use, const Type &own) {
  const Node &node = *use.user();
  const unsigned i = use.index();
  const Value *other = node.operandCount() == 2 ? node.operand(1 - i) : nullptr;
  switch (node.op()) {
  case Op::matmul:
  case Op::convolution:
  case Op::convolutionGradInput:
    if (i == 2)
      return {Role::bias, fanInOf(node)};
    return node.op() == Op::matmul || i == 1 ? UseOfParameter{Role::weight, fanInOf(node)} : UseOfParameter{};
  case Op::gather: return {i == 0 ? Role::table : Role::unknown};
  case Op::batchNorm: return {i == 1 || i == 4 ? Role::scale : i > 0 ? Role::shift : Role::unknown};
  case Op::layerNorm:
  case Op::rmsNorm: return {i == 1 ? Role::scale : i == 2 ? Role::shift : Role::unknown};
  case Op::add:
  case Op::sub: return roleInSum(other, own);
  case Op::mul: return {isTable(own) ? Role::unknown : isSlope(node, other) ? Role::slope : Role::scale};
  default: return {};
  }
}

/// The use with the highest priority.
UseOfParameter decidingUse(const Node &read) {
  UseOfParameter decided;
  llvm::SmallSetVector<const Value *, maxValues> seen;
  seen.insert(read.result());
  for (size_t i = 0; i < seen.size(); ++i)
    for (Use *use = seen[i]->uses(); use; use = use->next()) {
      if (movesElements(*use->user()) && seen.size() < maxValues) {
        seen.insert(use->user()->result());
        continue;
      }
      UseOfParameter found = roleOf(*use, read.result()->type());
      if (found.role < decided.role)
        decided = found;
    }
  return decided;
}

InitialValues uniformOf(int64_t fanIn, const char *origin) {
  const double bound = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(fanIn, 1)));
  return {InitialKind::uniform, -bound, bound, origin};
}

InitialValues ruleOf(const UseOfParameter &use) {
  switch (use.role) {
  case Role::weight: return uniformOf(use.fanIn, "rule: weight of a matmul");
  case Role::bias: return uniformOf(use.fanIn, "rule: bias of a matmul");
  case Role::table: return {InitialKind::normal, 0, 1, "rule: table of an embedding"};
  case Role::scale: return {InitialKind::constant, 1, 0, "rule: scale"};
  case Role::slope: return {InitialKind::constant, 0.25, 0, "rule: slope of a PRelu"};
  case Role::shift: return {InitialKind::constant, 0, 0, "rule: shift"};
  case Role::unknown: break;
  }
  return {InitialKind::constant, 0, 0, "no rule"};
}

llvm::Error run(Module &module, const PassContext &context) {
  llvm::StringMap<const Node *> reads;
  for (const Node *node : *module.function(FunctionKind::forward))
    if (node->op() == Op::read)
      reads.try_emplace(node->get<StateAttributes>().state.name, node);
  for (Parameter &parameter : module.parameters) {
    const Node *read = reads.lookup(parameter.name);
    if (parameter.hasValue || parameter.initial || !read)
      continue;
    const UseOfParameter use = decidingUse(*read);
    parameter.initial = ruleOf(use);
    if (use.role == Role::unknown)
      context.remarks.push_back("'" + parameter.name +
                                "' has no values and no rule says how it starts: it starts at zero");
  }
  return llvm::Error::success();
}

} // namespace

const Pass initializeParameters = {"initialize_parameters", Stage::graph, Stage::graph, false, run,
                                   FunctionKind::forward};

} // namespace fsdpc
