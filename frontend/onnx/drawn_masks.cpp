#include "frontend/onnx/drawn_masks.h"

#include "ir/builder.h"
#include "ir/op.h"
#include "ir/ops/helpers.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"
#include <cmath>
#include <optional>

namespace fsdpc {

namespace {

// A chain is two or three nodes long, with the casts and broadcasts of an unoptimized export twice that.
constexpr int longestChain = 8;

Node *definedBy(const Value *value, Op op) {
  Node *node = value->definer();
  return node && node->op() == op ? node : nullptr;
}

/// Rates are rounded to the mask's type, which may be bfloat16.
bool isNear(double value, double expected) { return std::abs(value - expected) <= 4e-3 * std::abs(expected); }

bool isCastToFloat(const Node &node) { return node.op() == Op::cast && isFloat(node.result()->type().dtype()); }

/// True if the result holds exactly the elements of the operand, each once or several times.
bool onlyMoves(const Node &node) { return node.op() == Op::broadcast || node.op() == Op::reshape; }

/// A random value whose elements are 0 or 1.
struct Mask {
  double rate = 0;                          ///< the probability of 1
  Node *random = nullptr;                   ///< the node that draws it, uniform in [0, 1)
  llvm::SmallVector<const Node *, 4> moves; ///< between the two, from the mask back
};

/// The node that draws the value uniformly in [0, 1). The import multiplies by 1 and adds 0.
Node *findUniform(const Value *value, Mask &mask) {
  for (int step = 0; step < longestChain; ++step) {
    Node *node = value->definer();
    if (!node || node->op() == Op::randomUniform)
      return node;
    const bool isSame = isCastToFloat(*node) || (node->op() == Op::mul && splatOf(node->operand(1)) == 1.0) ||
                        (node->op() == Op::add && splatOf(node->operand(1)) == 0.0);
    if (onlyMoves(*node))
      mask.moves.push_back(node);
    else if (!isSame)
      return nullptr;
    value = node->operand(0);
  }
  return nullptr;
}

/// u < c or c < u. False for any other comparison.
bool readComparison(const Node &node, Mask &mask) {
  for (unsigned i = 0; i < 2; ++i)
    if (std::optional<double> bound = splatOf(node.operand(1 - i))) {
      mask.rate = i == 0 ? *bound : 1 - *bound;
      mask.random = findUniform(node.operand(i), mask);
      return mask.random;
    }
  return false;
}

/// floor(u + p) is 1 with probability p.
bool readFloor(const Node &node, Mask &mask) {
  const Node *sum = definedBy(node.operand(0), Op::add);
  for (unsigned i = 0; sum && i < 2; ++i)
    if (std::optional<double> rate = splatOf(sum->operand(i))) {
      mask.rate = *rate;
      mask.random = findUniform(sum->operand(1 - i), mask);
      return mask.random;
    }
  return false;
}

std::optional<Mask> findDropoutMask(const Value *value) {
  Mask mask;
  bool isInverted = false;
  for (int step = 0; step < longestChain; ++step) {
    const Node *node = value->definer();
    if (!node)
      return std::nullopt;
    const bool isCompared = node->op() == Op::less || node->op() == Op::lessEqual;
    if (isCompared || node->op() == Op::floor) {
      const bool isMask =
          (isCompared ? readComparison(*node, mask) : readFloor(*node, mask)) && mask.rate > 0 && mask.rate < 1;
      mask.rate = isInverted ? 1 - mask.rate : mask.rate;
      return isMask ? std::optional(std::move(mask)) : std::nullopt;
    }
    if (onlyMoves(*node))
      mask.moves.push_back(node);
    else if (node->op() != Op::cast && node->op() != Op::logicalNot)
      return std::nullopt;
    isInverted ^= node->op() == Op::logicalNot;
    value = node->operand(0);
  }
  return std::nullopt;
}

/// The operand x if `value` is x / rate; null otherwise.
Value *dividedBy(const Value *value, double rate) {
  const Node *node = value->definer();
  if (!node || node->operandCount() != 2)
    return nullptr;
  std::optional<double> right = splatOf(node->operand(1)), left = splatOf(node->operand(0));
  const bool divides = (node->op() == Op::div && right && isNear(*right, rate)) ||
                       (node->op() == Op::mul && right && isNear(*right, 1 / rate));
  if (divides)
    return node->operand(0);
  return node->op() == Op::mul && left && isNear(*left, 1 / rate) ? node->operand(1) : nullptr;
}

/// mask / rate, possibly reshaped or broadcast.
std::optional<Mask> findScaledDropoutMask(const Value *value) {
  llvm::SmallVector<const Node *, 4> moves;
  for (int step = 0; step < longestChain; ++step) {
    const Node *node = value->definer();
    if (!node)
      return std::nullopt;
    if (onlyMoves(*node))
      moves.push_back(node);
    else if (!isCastToFloat(*node))
      break;
    value = node->operand(0);
  }
  const Node *node = value->definer();
  for (unsigned i = 0; node && i < node->operandCount() && node->operandCount() == 2; ++i)
    if (std::optional<Mask> mask = findDropoutMask(node->operand(i));
        mask && dividedBy(value, mask->rate) == node->operand(i)) {
      moves.append(mask->moves);
      mask->moves = std::move(moves);
      return mask;
    }
  return std::nullopt;
}

/// Values equal to x with some elements dropped and the others divided by the mask's rate.
struct Dropped {
  Node *node;                            ///< reads the mask
  llvm::SmallVector<Value *, 1> results; ///< the node's, or those of divisions after it
  Value *x;
  Mask mask;
  bool isScaled = true;
};

class MaskSearch {
public:
  explicit MaskSearch(Function &forward) : classes(forward.module()->classes) {
    for (Node *node : forward)
      if (std::optional<Dropped> dropped = node->op() == Op::mul      ? ofProduct(*node)
                                           : node->op() == Op::select ? ofChoice(*node)
                                                                      : std::nullopt) {
        readers.insert(node);
        found.push_back(std::move(*dropped));
      }
    llvm::DenseMap<const Node *, bool> isShared;
    for (const Dropped &dropped : found)
      if (auto [entry, isNew] = isShared.try_emplace(dropped.mask.random, false); isNew)
        entry->second = hasOtherReaders(*dropped.mask.random);
    llvm::erase_if(found, [&](const Dropped &dropped) { return isShared.lookup(dropped.mask.random); });
  }

  std::vector<Dropped> found;

private:
  std::optional<Dropped> ofProduct(Node &product) const {
    for (unsigned i = 0; i < 2; ++i) {
      Value *x = product.operand(1 - i);
      if (std::optional<Mask> mask = findScaledDropoutMask(product.operand(i)))
        return Dropped{&product, {product.result()}, x, std::move(*mask)};
      if (std::optional<Mask> mask = findDropoutMask(product.operand(i)))
        return ofPlainProduct(product, x, std::move(*mask));
    }
    return std::nullopt;
  }

  /// product = x * mask.
  std::optional<Dropped> ofPlainProduct(Node &product, Value *x, Mask mask) const {
    if (Value *whole = dividedBy(x, mask.rate))
      return Dropped{&product, {product.result()}, whole, std::move(mask)};
    Dropped dropped{&product, {}, x, std::move(mask)};
    for (Use *use = product.result()->uses(); use; use = use->next()) {
      Node *user = use->user();
      if (user->resultCount() != 1 || dividedBy(user->result(), dropped.mask.rate) != product.result())
        return ofDropoutModule(product, std::move(dropped));
      dropped.results.push_back(user->result());
    }
    return dropped;
  }

  /// where(mask, x / p, 0) or where(mask, 0, x / p).
  std::optional<Dropped> ofChoice(Node &choice) const {
    const bool dropsOnes = splatOf(choice.operand(1)) == 0.0;
    Value *kept = choice.operand(dropsOnes ? 2 : 1), *zeros = choice.operand(dropsOnes ? 1 : 2);
    std::optional<Mask> mask = splatOf(zeros) == 0.0 ? findDropoutMask(choice.operand(0)) : std::nullopt;
    if (!mask)
      return std::nullopt;
    mask->rate = dropsOnes ? 1 - mask->rate : mask->rate;
    if (Value *whole = dividedBy(kept, mask->rate))
      return Dropped{&choice, {choice.result()}, whole, std::move(*mask)};
    return ofDropoutModule(choice, {&choice, {}, kept, std::move(*mask)});
  }

  /// A mask without the division is accepted only if the module's class shows that it drops values only in training.
  std::optional<Dropped> ofDropoutModule(Node &node, Dropped dropped) const {
    auto known = classes.find(llvm::StringRef(node.source).split('|').first.str());
    llvm::StringRef name = known == classes.end() ? "" : llvm::StringRef(known->second).rsplit('.').second;
    if (!name.contains("Drop") && !name.contains("StochasticDepth"))
      return std::nullopt;
    dropped.results = {node.result()};
    dropped.isScaled = false;
    return dropped;
  }

  /// True if other nodes than those found read the random numbers. Then the numbers are not a dropout's alone.
  bool hasOtherReaders(Node &random) const {
    llvm::SmallSetVector<Node *, 16> chain;
    chain.insert(&random);
    for (size_t i = 0; i < chain.size(); ++i)
      for (Use *use = chain[i]->result()->uses(); use; use = use->next()) {
        Node *user = use->user();
        if (readers.contains(user))
          continue;
        if (!isElementwise(*user) && !onlyMoves(*user))
          return true;
        // A node without users is not a reader.
        chain.insert(user);
        if (chain.size() > 4 * longestChain)
          return true;
      }
    return false;
  }

  const std::map<std::string, std::string> &classes;
  llvm::DenseSet<const Node *> readers;
};

/// True if the node has the form that the import gives the op Dropout.
bool isOpDropout(const Node &node) {
  const Node *keep = node.op() == Op::select ? definedBy(node.operand(0), Op::logicalNot) : nullptr;
  const Node *isDropped = keep ? definedBy(keep->operand(0), Op::less) : nullptr;
  return isDropped && definedBy(isDropped->operand(0), Op::randomUniform);
}

/// select(not(u < 1 - rate), x / rate, 0), as the op Dropout is imported. The comparison is moved to x's shape as the
/// mask was.
Value *asDropout(const Dropped &dropped) {
  Builder builder(*dropped.node->function(), dropped.node);
  builder.inherit(*dropped.node);
  Value *u = dropped.mask.random->result();
  Value *isDropped = builder.binary(Op::less, u, builder.constantLike(u, 1 - dropped.mask.rate));
  Value *keep = builder.unary(Op::logicalNot, isDropped);
  for (const Node *move : llvm::reverse(dropped.mask.moves))
    keep = builder.clone(*move, {keep})->result();
  Value *scaled = builder.mul(dropped.x, builder.constantLike(dropped.x, 1 / dropped.mask.rate));
  return builder.select(keep, scaled, builder.constantLike(dropped.x, 0));
}

} // namespace

void recognizeDrawnMasks(Function &forward, bool isActive) {
  llvm::DenseMap<Value *, Value *> replaced; ///< one dropout's x may be another's result
  for (Dropped &dropped : MaskSearch(forward).found) {
    if (isActive && (!dropped.isScaled || isOpDropout(*dropped.node)))
      continue;
    if (Value *x = replaced.lookup(dropped.x))
      dropped.x = x;
    Value *replacement = isActive ? asDropout(dropped) : dropped.x;
    for (Value *result : dropped.results) {
      result->replaceAllUsesWith(replacement);
      replaced[result] = replacement;
    }
  }
}

std::vector<std::string> drawingNodes(const Function &forward) {
  std::vector<std::string> names;
  llvm::StringSet<> known;
  for (const Node *node : forward)
    if (node->op() == Op::randomUniform)
      if (llvm::StringRef name = llvm::StringRef(node->source).split('|').second; known.insert(name).second)
        names.push_back(name.str());
  return names;
}

} // namespace fsdpc
