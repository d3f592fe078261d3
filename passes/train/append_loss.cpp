// The global loss. Terms are weighted per sample, summed here, and summed over ranks by batch_sum. A mean divides by a
// count that depends on labels only, so the prologue computes it before the first backward (ir/README.md, R7).
#include "ir/ops/attributes.h"
#include "ir/ops/helpers.h"
#include "ir/reserved_names.h"
#include "passes/analysis/shifted_labels.h"
#include "passes/passes.h"
#include "passes/support/clone.h"
#include "passes/support/precision.h"

namespace fsdpc {

namespace {

bool isClassLoss(LossKind kind) { return kind == LossKind::crossEntropy || kind == LossKind::nll; }

/// The resolved loss. An in-graph loss has its own reduction.
struct LossRequest {
  LossOptions options;
  int64_t microBatchSize;
};

/// The values that the loss reads, found once in the forward function.
struct LossSite {
  Value *output = nullptr; ///< the graph output; or the terms of an in-graph loss
  Value *counts = nullptr; ///< in-graph loss: 1 where a term counts
  int64_t classAxis = -1;  ///< class losses, normalised
};

llvm::Expected<LossSite> findModelLoss(const Module &module, const Function &forward) {
  LossSite site;
  site.output = resultValue(forward, names::lossTerms);
  site.counts = resultValue(forward, names::lossCounts);
  if (site.output && site.counts)
    return site;
  llvm::StringRef why = module.facts.modelLossError;
  return llvm::createStringError(
      "--loss model: " + (why.empty() ? "the graph has no scalar output that is a loss" : why) +
      "; a loss over the graph's outputs is chosen with --loss cross_entropy, nll, mse, l1 or bce_with_logits");
}

llvm::Expected<Value *> findOutput(const Function &forward, llvm::StringRef wanted) {
  const std::vector<std::string> &names = forward.returnNode()->get<ReturnAttributes>().names;
  std::string known;
  for (size_t i = 0; i < names.size(); ++i) {
    Value *value = forward.returnNode()->operand(static_cast<unsigned>(i));
    if (wanted.empty() ? isFloat(value->type().dtype()) : names[i] == wanted)
      return value;
    known += (known.empty() ? "" : ", ") + names[i];
  }
  return llvm::createStringError("--loss_output " + wanted + ": the graph has no such output; it has " + known);
}

std::string resultName(const Function &forward, const Value *value) {
  const Node &ret = *forward.returnNode();
  for (unsigned i = 0; i < ret.operandCount(); ++i)
    if (ret.operand(i) == value)
      return ret.get<ReturnAttributes>().names[i];
  return "";
}

llvm::Expected<LossSite> findLossSite(const Module &module, const Function &forward, const LossOptions &options) {
  if (options.kind == LossKind::model)
    return findModelLoss(module, forward);
  LossSite site;
  llvm::Expected<Value *> output = findOutput(forward, options.output);
  if (!output)
    return output.takeError();
  site.output = *output;
  int64_t rank = site.output->type().rank();
  if (rank == 0)
    return llvm::createStringError("--loss " + spelled(options.kind) +
                                   ": the output is a scalar; if the graph computes the loss, use --loss model");
  if (!isClassLoss(options.kind))
    return site;
  int64_t axis = options.classAxis.value_or(rank <= 3 ? -1 : 1);
  if (axis < -rank || axis >= rank)
    return llvm::createStringError("--class_axis " + llvm::Twine(axis) + ": the output has " + llvm::Twine(rank) +
                                   " dimensions");
  site.classAxis = axis < 0 ? axis + rank : axis;
  if (const int64_t classes = site.output->type().dim(site.classAxis); options.topK > classes)
    return llvm::createStringError("--top_k " + llvm::Twine(options.topK) + ": the output has " + llvm::Twine(classes) +
                                   " classes");
  return site;
}

/// The value before the cast of an output to f32: losses read 16-bit scores directly.
Value *beforeCast(Value *output) {
  Node *cast = output->definer();
  bool promotes = cast && cast->op() == Op::cast && isHalf(cast->operand(0)->type().dtype()) &&
                  output->type().dtype() == DType::f32;
  return promotes ? cast->operand(0) : output;
}

/// Builds the loss in one function (micro_step, eval_step or prologue), from that function's copies of the values.
class LossBuilder {
public:
  LossBuilder(Function &function, const LossOptions &options, int64_t microBatchSize)
      : builder(function), options(options), microBatchSize(microBatchSize) {}

  Builder builder;

  Value *classLast(Value *output, int64_t classAxis) {
    Shape permutation;
    for (int64_t i = 0; i < output->type().rank(); ++i)
      if (i != classAxis)
        permutation.push_back(i);
    permutation.push_back(classAxis);
    return builder.transpose(output, permutation);
  }

  Value *labels(const Type &type) { return inputNamed(options.labels, type); }

  /// sample_weight[B], broadcast to `shape`, whose dim 0 is a multiple of B.
  llvm::Expected<Value *> weights(llvm::ArrayRef<int64_t> shape) {
    int64_t batch = microBatchSize;
    if (shape.empty() || shape[0] % batch != 0)
      return llvm::createStringError("--loss: dim 0 of the loss terms is not the batch of " + llvm::Twine(batch));
    Value *weight = inputNamed(names::sampleWeight, Type(DType::f32, {batch}));
    if (shape.size() == 1 && shape[0] == batch)
      return weight;
    Shape column = {batch};
    column.append(shape.size(), 1);
    Shape split = {batch, shape[0] / batch};
    split.append(shape.begin() + 1, shape.end());
    return builder.reshape(builder.broadcast(builder.reshape(weight, column), split), shape);
  }

  Value *total(Value *x) {
    Shape axes;
    for (int64_t i = 0; i < x->type().rank(); ++i)
      axes.push_back(i);
    return builder.reduceSum(x, axes, false);
  }

  Value *overBatch(Value *x) { return builder.create(Op::batchSum, {x})->result(); }

  /// 1 where a label counts.
  Value *valid(Value *labels) {
    Value *ignored =
        builder.binary(Op::equal, labels, builder.constantLike(labels, static_cast<double>(options.ignoreIndex)));
    return builder.cast(builder.unary(Op::logicalNot, ignored), DType::f32);
  }

  /// The log_softmax over the classes that --loss nll reads, perhaps through a cast; null if there is none.
  Node *logSoftmaxOf(Value *output, int64_t classAxis) {
    Node *definer = beforeCast(output)->definer();
    const bool isOverClasses = options.kind == LossKind::nll && definer && definer->op() == Op::logSoftmax &&
                               definer->get<AxisAttributes>().axis == classAxis;
    return isOverClasses ? definer : nullptr;
  }

  /// With classes last. Logits have the order of their log-probabilities.
  Value *scores(Value *output, int64_t classAxis) {
    Node *logSoftmax = logSoftmaxOf(output, classAxis);
    return classLast(logSoftmax ? logSoftmax->operand(0) : output, classAxis);
  }

  /// 1 where the label is the class of the highest score.
  Value *isHighest(Value *scores, Value *labels) {
    Value *predicted = builder.create(Op::argMax, {scores}, AxisAttributes{scores->type().rank() - 1})->result();
    return builder.cast(builder.binary(Op::equal, predicted, labels), DType::f32);
  }

  /// 1 where the label is among the classes of the k highest scores. Of equal scores the lower class is higher.
  Value *isAmongHighest(Value *scores, Value *labels, int64_t k) {
    if (isHalf(scores->type().dtype()))
      scores = builder.cast(scores, DType::f32);
    Value *classes = builder.create(Op::topK, {scores}, TopKAttributes{k, /*smallest=*/false})->result(1);
    Shape column(labels->type().shape());
    column.push_back(1);
    Value *wanted = builder.broadcast(builder.reshape(labels, column), classes->type().shape());
    Value *hits = builder.cast(builder.binary(Op::equal, classes, wanted), DType::f32);
    return builder.reduceSum(hits, {classes->type().rank() - 1}, /*keepDims=*/false);
  }

  Value *classTerms(Value *output, int64_t classAxis, Value *labelValues) {
    LossAttributes attributes{options.ignoreIndex, options.labelSmoothing};
    output = beforeCast(output);
    int64_t last = output->type().rank() - 1;
    // nll of log_softmax is the cross entropy of its operand, without log-probabilities in memory.
    Node *logSoftmax = logSoftmaxOf(output, classAxis);
    if (options.kind == LossKind::crossEntropy || logSoftmax) {
      Value *logits = classLast(logSoftmax ? logSoftmax->operand(0) : output, classAxis);
      return builder.create(Op::crossEntropy, {logits, labelValues}, attributes)->result(0);
    }
    assert(last >= 0 && "class losses read tensors");
    return builder.create(Op::nll, {classLast(output, classAxis), labelValues}, attributes)->result(0);
  }

  Value *elementTerms(Value *output, Value *target) {
    output = builder.cast(output, target->type().dtype());
    if (options.kind == LossKind::bceWithLogits) {
      Value *loss = builder.sub(builder.unary(Op::relu, output), builder.mul(output, target));
      Value *decay = builder.unary(Op::exp, builder.unary(Op::neg, builder.unary(Op::abs, output)));
      return builder.add(loss, builder.unary(Op::log1p, decay));
    }
    Value *difference = builder.sub(output, target);
    return options.kind == LossKind::l1 ? builder.unary(Op::abs, difference) : builder.mul(difference, difference);
  }

private:
  Value *inputNamed(llvm::StringRef name, const Type &type) {
    Function &function = builder.function();
    Value *known = function.argument(name);
    return known ? known : function.addArgument(ArgumentKind::input, name, type);
  }

  const LossOptions &options;
  int64_t microBatchSize;
};

Type labelType(const LossSite &site, const LossOptions &options) {
  Type type = site.output->type();
  if (!isClassLoss(options.kind))
    return isHalf(type.dtype()) ? type.withDType(DType::f32) : type; // the type in data files
  Shape shape(type.shape());
  shape.erase(shape.begin() + site.classAxis);
  return Type(DType::i64, shape);
}

/// The graph may already have labels, for its own use. They must then have the type that the loss needs.
llvm::Error checkInputs(const Function &forward, const LossSite &site, const LossRequest &request) {
  const LossOptions &options = request.options;
  for (const Argument &argument : forward.arguments())
    if (names::isReserved(argument.name))
      return llvm::createStringError("the graph has an input '" + argument.name +
                                     "': that name is the program's own; export the model with another one "
                                     "(torch.onnx.export: input_names)");
  const Value *labels = options.kind == LossKind::model ? nullptr : forward.argument(options.labels);
  if (!labels || labels->type() == labelType(site, options))
    return llvm::Error::success();
  return llvm::createStringError("--loss " + spelled(options.kind) + " compares '" + resultName(forward, site.output) +
                                 "' with labels of " + toString(labelType(site, options)) +
                                 ", and the graph has an input '" + options.labels + "' of " +
                                 toString(labels->type()) +
                                 ": name the loss's labels with --labels NAME, or use "
                                 "--loss model if the graph computes the loss");
}

/// The results of an evaluation step.
struct Results {
  llvm::SmallVector<Value *, 8> values;
  std::vector<std::string> names;

  void add(Value *value, llvm::StringRef name) {
    values.push_back(value);
    names.push_back(name.str());
  }
};

/// Adds how many labels are right, and how many there are. `total` is that of the loss.
llvm::Error addAccuracy(Results &results, LossBuilder &loss, const LossSite &site, Value *output, Value *total,
                        const LossOptions &options) {
  Value *labels = loss.builder.function().argument(options.labels);
  llvm::Expected<Value *> weights = loss.weights(labels->type().shape());
  if (!weights)
    return weights.takeError();
  Value *scores = loss.scores(output, site.classAxis);
  Value *counted = loss.builder.mul(loss.valid(labels), *weights);
  auto count = [&](Value *hits) { return loss.overBatch(loss.total(loss.builder.mul(hits, counted))); };
  results.add(count(loss.isHighest(scores, labels)), names::correct);
  results.add(total, names::total);
  if (options.topK > 1)
    results.add(count(loss.isAmongHighest(scores, labels, options.topK)),
                (names::correctTop + llvm::Twine(options.topK)).str());
  return llvm::Error::success();
}

/// The sums a function needs, before batch_sum.
struct LossSums {
  Value *loss = nullptr;
  Value *count = nullptr;
};

llvm::Expected<LossSums> buildSums(LossBuilder &loss, const LossSite &site, const ValueMap &values,
                                   const LossOptions &options, bool wantLoss, bool wantCount) {
  Value *output = values.lookup(site.output);
  Value *terms = nullptr;
  Value *counts = nullptr;
  if (options.kind == LossKind::model) {
    terms = output;
    counts = values.lookup(site.counts);
  } else {
    Value *labels = loss.labels(labelType(site, options));
    if (wantLoss)
      terms = isClassLoss(options.kind) ? loss.classTerms(output, site.classAxis, labels)
                                        : loss.elementTerms(output, labels);
    if (wantCount)
      counts = isClassLoss(options.kind) ? loss.valid(labels)
                                         : loss.builder.constant(labels->type().withDType(DType::f32), 1);
  }
  Value *shaped = terms ? terms : counts;
  llvm::Expected<Value *> weights = loss.weights(shaped->type().shape());
  if (!weights)
    return weights.takeError();
  LossSums sums;
  if (wantLoss)
    sums.loss = loss.total(loss.builder.mul(terms, *weights));
  if (wantCount)
    sums.count = loss.total(loss.builder.mul(counts, *weights));
  return sums;
}

/// count = batch_sum of the terms that count: a function of labels alone.
llvm::Error buildPrologue(Module &module, const Function &forward, const LossSite &site, const LossRequest &request) {
  Function &prologue = *module.addFunction(FunctionKind::prologue);
  ValueMap values;
  if (request.options.kind == LossKind::model)
    cloneBody(forward, prologue, values);
  LossBuilder loss(prologue, request.options, request.microBatchSize);
  if (request.options.reduction == LossReduction::sum) {
    loss.builder.ret({}, {});
  } else {
    llvm::Expected<LossSums> sums = buildSums(loss, site, values, request.options, false, true);
    if (!sums)
      return sums.takeError();
    loss.builder.ret({loss.overBatch(sums->count)}, {names::count.str()});
  }
  eraseDeadNodes(prologue);
  eraseUnusedArguments(prologue);
  return llvm::Error::success();
}

llvm::Error buildMicroStep(Module &module, const Function &forward, const LossSite &site, const LossRequest &request) {
  Function &step = *module.addFunction(FunctionKind::microStep);
  ValueMap values;
  cloneBody(forward, step, values);
  LossBuilder loss(step, request.options, request.microBatchSize);
  loss.builder.inherit(*step.back());
  llvm::Expected<LossSums> sums = buildSums(loss, site, values, request.options, true, false);
  if (!sums)
    return sums.takeError();
  Value *global = loss.overBatch(sums->loss);
  if (request.options.reduction == LossReduction::mean) {
    Value *count = step.addArgument(ArgumentKind::carry, names::count, Type(DType::f32, {}));
    global = loss.builder.div(global, count);
  }
  loss.builder.ret({global, sums->loss}, {names::loss.str(), names::lossSum.str()});
  eraseDeadNodes(step);
  eraseUnusedArguments(step);
  return llvm::Error::success();
}

bool isConstantSplat(Value *value, std::optional<double> wanted = std::nullopt) {
  std::optional<double> splat = splatOf(value);
  return splat && (!wanted || *splat == *wanted);
}

bool definedByRandom(const Value *value) { return value->definer() && value->definer()->op() == Op::randomUniform; }

/// The comparison of random numbers with the ratio that computes the condition, perhaps negated and broadcast; null if
/// there is none.
Node *randomComparison(Value *condition) {
  Node *node = condition->definer();
  while (node && (node->op() == Op::logicalNot || node->op() == Op::broadcast || node->op() == Op::reshape))
    node = node->operand(0)->definer();
  bool isRandom = node && (node->op() == Op::less || node->op() == Op::lessEqual) &&
                  definedByRandom(node->operand(0)) && isConstantSplat(node->operand(1));
  return isRandom ? node : nullptr;
}

/// Dropout selects randomly between zero and x scaled by 1/(1 - ratio). Evaluation uses x.
Value *withoutDropout(Builder &builder, const Node &node, const ValueMap &values) {
  Node *comparison = node.op() == Op::select ? randomComparison(node.operand(0)) : nullptr;
  if (!comparison)
    return nullptr;
  Value *kept = isConstantSplat(node.operand(1), 0) ? node.operand(2) : node.operand(1);
  Node *scaled = kept->definer();
  if (scaled && scaled->op() == Op::mul && isConstantSplat(scaled->operand(1)))
    return values.lookup(scaled->operand(0));
  if (scaled && scaled->op() == Op::mul && isConstantSplat(scaled->operand(0)))
    return values.lookup(scaled->operand(1));
  // The scale was moved before a broadcast or into a constant: undo it.
  return builder.mul(values.lookup(kept), builder.constantLike(kept, 1 - *splatOf(comparison->operand(1))));
}

/// A dropout compares its random numbers with a ratio. Other random numbers belong to the graph and are drawn in
/// evaluation too.
bool isOfDropout(const Node &random) {
  for (const Use *use = random.result()->uses(); use; use = use->next()) {
    const Node &user = *use->user();
    bool comparesWithRatio = (user.op() == Op::less || user.op() == Op::lessEqual) &&
                             user.operand(0) == random.result() && isConstantSplat(user.operand(1));
    if (comparesWithRatio)
      return true;
  }
  return false;
}

llvm::Error rejectRandomness(const Function &step) {
  for (Node *node : step)
    if (node->op() == Op::randomUniform && isOfDropout(*node))
      return llvm::createStringError(
          "evaluation needs Dropout off, and a random number of the graph is not a Dropout's: " +
          node->source.substr(node->source.find('|') + 1));
  return llvm::Error::success();
}

llvm::Error buildEvalStep(Module &module, const Function &forward, const LossSite &site, const LossRequest &request) {
  const LossOptions &options = request.options;
  Function &step = *module.addFunction(FunctionKind::evalStep);
  ValueMap values;
  cloneBody(forward, step, values, withoutDropout);
  LossBuilder loss(step, options, request.microBatchSize);
  loss.builder.inherit(*step.back());
  llvm::Expected<LossSums> sums = buildSums(loss, site, values, options, true, true);
  if (!sums)
    return sums.takeError();
  Results results;
  results.add(loss.overBatch(sums->loss), names::lossSum);
  results.add(loss.overBatch(sums->count), names::count);
  if (isClassLoss(options.kind))
    if (llvm::Error error =
            addAccuracy(results, loss, site, values.lookup(site.output), results.values.back(), options))
      return error;
  const std::vector<std::string> &outputs = forward.returnNode()->get<ReturnAttributes>().names;
  for (size_t i = 0; i < outputs.size(); ++i)
    if (!names::isLossPart(outputs[i]))
      results.add(values.lookup(forward.returnNode()->operand(static_cast<unsigned>(i))),
                  (names::outputPrefix + outputs[i]).str());
  loss.builder.ret(results.values, results.names);
  eraseDeadNodes(step);
  eraseUnusedArguments(step);
  return rejectRandomness(step);
}

llvm::Error run(Module &module, const PassContext &context) {
  LossRequest request{context.options.loss, context.options.graphSamples()};
  const LossOptions &options = request.options;
  Facts &facts = module.facts;
  if (options.kind == LossKind::model && facts.modelLoss)
    request.options.reduction = *facts.modelLoss;
  Function &forward = *module.function(FunctionKind::forward);
  if (options.kind == LossKind::model)
    facts.shiftedLabels = shiftedLabels(forward);
  llvm::Expected<LossSite> site = findLossSite(module, forward, options);
  if (!site)
    return site.takeError();
  if (llvm::Error error = checkInputs(forward, *site, request))
    return error;
  if (llvm::Error error = buildPrologue(module, forward, *site, request))
    return error;
  if (llvm::Error error = buildMicroStep(module, forward, *site, request))
    return error;
  if (llvm::Error error = buildEvalStep(module, forward, *site, request))
    return error;
  std::erase_if(module.functions, [](const auto &function) { return function->kind() == FunctionKind::forward; });
  facts.loss = options.kind;
  facts.lossReduction = options.reduction;
  facts.labels = options.labels;
  if (isClassLoss(options.kind))
    facts.ignoreIndex = options.ignoreIndex;
  module.mesh = {{"shard", context.options.worldSize}};
  module.microSteps = context.options.microSteps;
  module.stage = Stage::train;
  return llvm::Error::success();
}

} // namespace

const Pass appendLoss = {"append_loss",
                         Stage::graph,
                         Stage::train,
                         false,
                         run,
                         FunctionKind::forward,
                         {},
                         {FunctionKind::prologue, FunctionKind::microStep, FunctionKind::evalStep}};

} // namespace fsdpc
