// Computes every value of a step separately for each of the rank's samples. Sums over samples become one balanced
// binary tree, which the tree over ranks continues.
#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "ir/reserved_names.h"
#include "passes/passes.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/Support/MathExtras.h"

namespace fsdpc {

namespace {

using Copies = llvm::SmallVector<Value *, 8>;

class Splitter {
public:
  Splitter(const Function &from, Function &to, int64_t samples) : from(from), builder(to), samples(samples) {}

  llvm::Error run() {
    if (llvm::Error error = addArguments())
      return error;
    for (Node *node : from)
      if (node->op() == Op::batchSum)
        summed.insert(node->operand(0));
    for (Node *node = from.front(); node && node->op() != Op::ret;)
      node = splitRegion(*node);
    splitReturn(*from.returnNode());
    return llvm::Error::success();
  }

private:
  llvm::Error addArguments() {
    for (const Argument &argument : from.arguments()) {
      Type type = argument.value->type();
      Value *value = argument.value.get();
      if (argument.kind == ArgumentKind::input) {
        if (type.rank() == 0 || type.dim(0) != 1)
          return llvm::createStringError("--deterministic world: input " + argument.name + " is " + toString(type) +
                                         ", which is not one sample");
        Shape shape(type.shape());
        shape[0] = samples;
        inputs[value] = builder.function().addArgument(argument.kind, argument.name, type.withShape(shape));
        copies[value].resize(samples);
      } else {
        shared[value] = builder.function().addArgument(argument.kind, argument.name, type);
      }
    }
    return llvm::Error::success();
  }

  /// Splits consecutive nodes of one section, sample after sample. A sum over the batch needs all samples, so it ends
  /// the region.
  Node *splitRegion(Node &first) {
    if (first.op() == Op::batchSum) {
      sumOverBatch(first);
      return first.next();
    }
    Node *end = &first;
    while (end->op() != Op::ret && end->op() != Op::batchSum && end->section == first.section)
      end = end->next();
    for (int64_t sample = 0; sample < samples; ++sample)
      for (Node *node = &first; node != end; node = node->next())
        copy(*node, sample);
    return end;
  }

  bool dependsOnSample(const Node &node) const {
    return node.op() == Op::randomUniform ||
           llvm::any_of(node.operands(), [&](Value *operand) { return copies.contains(operand); });
  }

  void copy(Node &node, int64_t sample) {
    bool isOwn = dependsOnSample(node);
    if (!isOwn && sample > 0)
      return;
    builder.inherit(node);
    llvm::SmallVector<Value *, 4> operands;
    for (Value *operand : node.operands())
      operands.push_back(valueOf(operand, sample));
    Node *clone = builder.clone(node, operands);
    if (node.op() == Op::randomUniform) {
      auto &random = clone->get<RandomUniformAttributes>();
      random.firstSample = sample;
      random.rankSamples = samples;
    }
    for (unsigned i = 0; i < node.resultCount(); ++i)
      define(*node.result(i), *clone->result(i), isOwn, sample);
  }

  void define(Value &old, Value &value, bool isOwn, int64_t sample) {
    value.setName(old.name());
    if (!isOwn) {
      shared[&old] = &value;
      return;
    }
    copies[&old].push_back(&value);
    if (summed.contains(&old))
      addToSum(sums[&old], &value, sample);
  }

  Value *valueOf(Value *old, int64_t sample) {
    auto own = copies.find(old);
    if (own == copies.end())
      return shared.lookup(old);
    Value *&value = own->second[sample];
    if (!value)
      value = sliceOf(*inputs.lookup(old), sample);
    return value;
  }

  Value *sliceOf(Value &input, int64_t sample) {
    SliceAttributes slice;
    slice.sizes = Shape(input.type().shape());
    slice.starts.assign(slice.sizes.size(), 0);
    slice.steps.assign(slice.sizes.size(), 1);
    slice.starts[0] = sample;
    slice.sizes[0] = 1;
    Value *value = builder.create(Op::slice, {&input}, slice)->result();
    value->setName(input.name());
    return value;
  }

  /// The partial sums that wait for their right half, like the ones of a binary counter. This keeps their number
  /// minimal and the order that of a balanced tree.
  void addToSum(Copies &partial, Value *value, int64_t sample) {
    for (int64_t count = sample + 1; count % 2 == 0; count /= 2) {
      Value *sum = builder.add(partial.pop_back_val(), value);
      sum->setName(value->name());
      value = sum;
    }
    partial.push_back(value);
  }

  void sumOverBatch(Node &node) {
    Value *old = node.operand(0);
    builder.inherit(node);
    Copies &partial = sums[old];
    bool isSummed = !partial.empty();
    for (int64_t sample = 0; !isSummed && sample < samples; ++sample)
      addToSum(partial, valueOf(old, sample), sample);
    assert(partial.size() == 1 && "a power of two of samples has one sum");
    Value *sum = builder.clone(node, {partial.front()})->result();
    sum->setName(node.result()->name());
    shared[node.result()] = sum;
  }

  /// Values of samples are returned concatenated. A scalar per sample, or the model's own loss per sample, has no
  /// position in a result and no reader.
  void splitReturn(Node &ret) {
    const Facts &facts = builder.module().facts;
    std::string lossOutput = facts.modelLossOutput.empty() ? "" : (names::outputPrefix + facts.modelLossOutput).str();
    llvm::SmallVector<Value *, 8> values;
    std::vector<std::string> names;
    for (unsigned i = 0; i < ret.operandCount(); ++i) {
      Value *old = ret.operand(i);
      bool isOwn = copies.contains(old);
      if (isOwn && (old->type().rank() == 0 || ret.get<ReturnAttributes>().names[i] == lossOutput))
        continue;
      if (old->definer())
        builder.inherit(*old->definer());
      values.push_back(isOwn ? sideBySide(old) : shared.lookup(old));
      names.push_back(ret.get<ReturnAttributes>().names[i]);
    }
    builder.setSection({});
    builder.setSource("");
    builder.ret(values, names);
  }

  Value *sideBySide(Value *old) {
    Copies parts;
    for (int64_t sample = 0; sample < samples; ++sample)
      parts.push_back(valueOf(old, sample));
    return builder.create(Op::concat, parts, AxisAttributes{0})->result();
  }

  const Function &from;
  Builder builder;
  int64_t samples;
  llvm::DenseMap<Value *, Value *> inputs; ///< the entire batch
  llvm::DenseMap<Value *, Value *> shared; ///< the same for all samples
  llvm::DenseMap<Value *, Copies> copies;  ///< by sample; null until used for inputs
  llvm::DenseSet<Value *> summed;          ///< over the batch
  llvm::DenseMap<Value *, Copies> sums;    ///< so far
};

llvm::Error run(Module &module, const PassContext &context) {
  if (!context.options.splitSamples || context.options.microBatchSize == 1)
    return llvm::Error::success();
  assert(llvm::isPowerOf2_64(static_cast<uint64_t>(context.options.microBatchSize)) && "checked where resolved");
  for (std::unique_ptr<Function> &function : module.functions) {
    auto split = std::make_unique<Function>(&module, function->kind());
    if (llvm::Error error = Splitter(*function, *split, context.options.microBatchSize).run())
      return error;
    function = std::move(split);
  }
  return llvm::Error::success();
}

} // namespace

// Not optional: the graph is for one sample, the program for all.
const Pass splitSamples = {"split_samples", Stage::train, Stage::train, /*optional=*/false, run};

} // namespace fsdpc
