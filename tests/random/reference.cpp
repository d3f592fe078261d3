#include "tests/random/reference.h"

#include "ir/ops/attributes.h"
#include "tests/random/rebatched.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <numeric>

namespace fsdpc {

namespace {

/// The name of a stop_gradient result, both as an input of the differentiated function and as a result of the function
/// before it.
std::string stoppedName(size_t number) { return "stopped" + std::to_string(number); }

bool hasSyncedNorm(const Function &forward) {
  for (const Node *node : forward)
    if (node->op() == Op::batchNorm && node->get<BatchNormAttributes>().synced)
      return true;
  return false;
}

/// Whether a random number is shared by all samples of a rank but differs between ranks. The graph of the full batch
/// has only one for all samples.
bool differsBetweenRanks(const Function &forward, const std::set<int64_t> &keyedByRank) {
  for (const Node *node : forward)
    if (node->op() == Op::randomUniform && !batchAxisOfName(node->result()->name()) &&
        keyedByRank.contains(node->get<RandomUniformAttributes>().instance))
      return true;
  return false;
}

llvm::DenseSet<const Node *> liveNodes(const Function &forward) {
  llvm::DenseSet<const Node *> live = {forward.returnNode()};
  for (const Node *node = forward.back(); node; node = node->previous())
    if (live.contains(node))
      for (const Value *operand : node->operands())
        if (operand->definer())
          live.insert(operand->definer());
  return live;
}

enum class Reading { training, evaluation };

/// Copies the live part of a graph and adds information that the text alone lacks: the sample that a random number is
/// for, and the nodes that evaluation omits.
class Copier {
public:
  Copier(const Module &graph, Reading reading, const std::set<int64_t> &keyedByRank, int64_t samples, int64_t ranks)
      : graph(graph), reading(reading), keyedByRank(keyedByRank), samples(samples), ranks(ranks) {}

  std::unique_ptr<Module> run() {
    auto result = std::make_unique<Module>();
    result->name = graph.name;
    result->parameters = graph.parameters;
    for (const State &state : graph.states)
      result->addState(state);
    const Function &from = *graph.function(FunctionKind::forward);
    Function &to = *result->addFunction(FunctionKind::forward);
    llvm::DenseSet<const Node *> live = liveNodes(from);
    for (const Argument &argument : from.arguments())
      if (isRead(*argument.value, live))
        values[argument.value.get()] = to.addArgument(argument.kind, argument.name, argument.value->type());
    Builder builder(to);
    for (const Node *node : from)
      if (live.contains(node))
        copy(*node, builder);
    return result;
  }

private:
  static bool isRead(const Value &argument, const llvm::DenseSet<const Node *> &live) {
    for (const Use *use = argument.uses(); use; use = use->next())
      if (live.contains(use->user()))
        return true;
    return false;
  }

  void copy(const Node &node, Builder &builder) {
    llvm::SmallVector<Value *, 4> operands;
    for (Value *operand : node.operands())
      operands.push_back(values.lookup(operand));
    if (const Value *dropped = reading == Reading::evaluation ? droppedOut(node) : nullptr) {
      values[node.result()] = values.lookup(dropped);
    } else if (node.op() == Op::randomUniform) {
      values[node.result()] = randomNumbers(node, operands, builder);
    } else {
      std::unique_ptr<AttributesBase> attributes = node.attributes() ? node.attributes()->clone() : nullptr;
      if (node.op() == Op::batchNorm && reading == Reading::evaluation)
        static_cast<Attributes<BatchNormAttributes> &>(*attributes).value.training = false;
      llvm::Expected<Node *> made = builder.tryCreate(node.op(), operands, std::move(attributes));
      assert(made && "a copy has the operands of what it copies");
      for (unsigned i = 0; i < node.resultCount(); ++i)
        values[node.result(i)] = (*made)->result(i);
    }
  }

  static const Node *definedBy(const Value *value, Op op) {
    return value->definer() && value->definer()->op() == op ? value->definer() : nullptr;
  }

  /// Returns x of select(not(less(random numbers, ratio)), x * scale, 0), as productions write a dropout.
  static const Value *droppedOut(const Node &node) {
    const Node *kept = node.op() == Op::select ? definedBy(node.operand(0), Op::logicalNot) : nullptr;
    const Node *less = kept ? definedBy(kept->operand(0), Op::less) : nullptr;
    const Node *scaled = less ? definedBy(node.operand(1), Op::mul) : nullptr;
    return scaled && definedBy(less->operand(0), Op::randomUniform) ? scaled->operand(0) : nullptr;
  }

  /// The name states the sample axis. The axis may have several rows per sample, which then count as its elements.
  Value *randomNumbers(const Node &node, llvm::ArrayRef<Value *> operands, Builder &builder) {
    auto own = node.get<RandomUniformAttributes>();
    const std::optional<int64_t> axis = batchAxisOfName(node.result()->name());
    if (axis && keyedByRank.contains(own.instance))
      return numbersOfRanks(node, *axis, operands, builder);
    own.batchAxis = axis.value_or(-1);
    if (axis && own.shape[*axis] != samples) {
      int64_t rowsOfSample = own.shape[*axis] / samples;
      own.shape[*axis] = samples;
      own.shape.insert(own.shape.begin() + *axis + 1, rowsOfSample);
    }
    Value *numbers = builder.create(Op::randomUniform, operands, std::move(own))->result();
    return builder.reshape(numbers, node.result()->type().shape());
  }

  /// Each rank draws numbers for all its samples together, as if they were one sample.
  Value *numbersOfRanks(const Node &node, int64_t axis, llvm::ArrayRef<Value *> operands, Builder &builder) {
    auto own = node.get<RandomUniformAttributes>();
    own.shape[axis] /= ranks;
    own.shape.insert(own.shape.begin(), ranks);
    own.batchAxis = 0;
    llvm::SmallVector<int64_t, 8> order(own.shape.size());
    std::iota(order.begin(), order.end(), 0);
    std::rotate(order.begin(), order.begin() + 1, order.begin() + 1 + axis);
    Value *numbers = builder.create(Op::randomUniform, operands, std::move(own))->result();
    return builder.reshape(builder.transpose(numbers, order), node.result()->type().shape());
  }

  const Module &graph;
  const Reading reading;
  const std::set<int64_t> &keyedByRank;
  const int64_t samples, ranks; ///< of the graph
  llvm::DenseMap<const Value *, Value *> values;
};

// ---- the loss

struct LossTerms {
  double sum = 0, count = 0;
  void add(double term, double weight = 1) {
    sum += term;
    count += weight;
  }
};

double elementTerm(LossKind kind, double output, double label) {
  if (kind == LossKind::mse)
    return (output - label) * (output - label);
  if (kind == LossKind::l1)
    return std::fabs(output - label);
  assert(kind == LossKind::bceWithLogits && "the other losses are of classes, or the model's own");
  return std::max(output, 0.0) - output * label + std::log1p(std::exp(-std::fabs(output)));
}

/// -log of the probability of the label, with `smoothing` of it spread over all classes. Scores of nll are already log
/// probabilities and are used unchanged.
double classTerm(const LossOptions &loss, llvm::ArrayRef<double> scores, int64_t label) {
  double largest = *llvm::max_element(scores), sum = 0, total = 0;
  for (double score : scores) {
    sum += std::exp(score - largest);
    total += score;
  }
  if (loss.kind == LossKind::nll)
    return -scores[label];
  double normaliser = largest + std::log(sum), classes = static_cast<double>(scores.size());
  return normaliser - (1 - loss.labelSmoothing) * scores[label] - loss.labelSmoothing * total / classes;
}

LossTerms classTerms(const LossOptions &loss, const HostTensor &output, const HostTensor &labels) {
  const int64_t rank = output.type.rank(), axis = *loss.classAxis < 0 ? *loss.classAxis + rank : *loss.classAxis;
  const int64_t classes = output.type.dim(axis);
  int64_t inner = 1;
  for (int64_t i = axis + 1; i < rank; ++i)
    inner *= output.type.dim(i);
  LossTerms terms;
  std::vector<double> scores(classes);
  for (size_t position = 0; position < labels.values.size(); ++position) {
    auto label = static_cast<int64_t>(labels.values[position]);
    if (label == loss.ignoreIndex)
      continue;
    int64_t outer = static_cast<int64_t>(position) / inner, within = static_cast<int64_t>(position) % inner;
    for (int64_t i = 0; i < classes; ++i)
      scores[i] = output.values[(outer * classes + i) * inner + within];
    terms.add(classTerm(loss, scores, label));
  }
  return terms;
}

LossTerms lossTerms(const LossOptions &loss, const Tensors &results, const Tensors &samples) {
  LossTerms terms;
  if (loss.kind == LossKind::model) {
    for (auto [term, count] : llvm::zip_equal(results.at("loss_terms").values, results.at("loss_counts").values))
      terms.add(term, count);
    return terms;
  }
  const HostTensor &output = results.at("output"), &labels = samples.at(loss.labels);
  if (loss.classAxis)
    return classTerms(loss, output, labels);
  for (auto [element, label] : llvm::zip_equal(output.values, labels.values))
    terms.add(elementTerm(loss.kind, element, label));
  return terms;
}

/// Adds zeros for inputs that no stage reads any more, for example because only their shape matters.
Tensors withAllInputs(const Function &forward, int64_t graphSamples, int64_t stepSamples, Tensors samples) {
  for (const Argument &argument : forward.arguments()) {
    if (argument.kind != ArgumentKind::input || samples.count(argument.name))
      continue;
    const Type &type = argument.value->type();
    Shape shape(type.shape());
    shape[0] = shape[0] / graphSamples * stepSamples;
    samples[argument.name] = HostTensor(Type(type.dtype(), shape));
  }
  return samples;
}

} // namespace

llvm::Expected<std::unique_ptr<GraphReference>> GraphReference::make(const Module &graph, const Choices &choices,
                                                                     const std::set<int64_t> &keyedByRank,
                                                                     const Tensors &given, const Tensors &parameters) {
  const PipelineOptions &options = choices.options;
  const bool isFull = hasSyncedNorm(*graph.function(FunctionKind::forward));
  if (isFull && differsBetweenRanks(*graph.function(FunctionKind::forward), keyedByRank))
    return std::unique_ptr<GraphReference>();
  std::unique_ptr<Module> whole = isFull ? rebatched(graph, options.worldSize) : nullptr;
  if (isFull && !whole)
    return std::unique_ptr<GraphReference>();
  const int64_t partSamples = options.graphSamples() * (isFull ? options.worldSize : 1);
  const int64_t stepSamples = options.worldSize * options.microSteps * options.microBatchSize;
  const Tensors samples =
      withAllInputs(*graph.function(FunctionKind::forward), options.graphSamples(), stepSamples, given);
  std::unique_ptr<GraphReference> reference(new GraphReference(choices));
  reference->training =
      Copier(isFull ? *whole : graph, Reading::training, keyedByRank, partSamples, isFull ? options.worldSize : 1)
          .run();
  reference->rows = rowsOfRanks(samples, stepSamples / partSamples);
  reference->state = makeEvaluationState(*reference->training, parameters);
  reference->state.states.resize(reference->rows.size(), reference->state.states[0]);
  reference->evaluation = Copier(graph, Reading::evaluation, keyedByRank, options.graphSamples(), 1).run();
  reference->evaluationRows = rowsOfRanks(samples, stepSamples / options.graphSamples());
  reference->evaluationRows.resize(options.microBatchSize / options.graphSamples());
  reference->evaluationState = makeEvaluationState(*reference->evaluation, parameters);
  reference->evaluationState.states.resize(reference->evaluationRows.size(), reference->evaluationState.states[0]);
  if (llvm::Error error = reference->freezeStops())
    return error;
  return reference;
}

/// Turns the results of stop_gradient into inputs with their current values.
llvm::Error GraphReference::freezeStops() {
  Function &forward = *training->function(FunctionKind::forward);
  std::vector<Node *> stops;
  for (Node *node : forward)
    if (node->op() == Op::stopGradient)
      stops.push_back(node);
  if (stops.empty())
    return llvm::Error::success();
  Node *old = forward.returnNode();
  llvm::SmallVector<Value *, 4> results = old->operands();
  std::vector<std::string> names = old->get<ReturnAttributes>().names;
  for (size_t i = 0; i < stops.size(); ++i) {
    results.push_back(stops[i]->result());
    names.push_back(stoppedName(i));
  }
  old->erase();
  Builder(forward).ret(results, names);
  llvm::Expected<RankResults> found = fsdpc::evaluate(*training, FunctionKind::forward, rows, state);
  if (!found)
    return found.takeError();
  for (size_t i = 0; i < stops.size(); ++i) {
    for (size_t part = 0; part < rows.size(); ++part)
      rows[part][stoppedName(i)] = (*found)[part].at(stoppedName(i));
    Value *input = forward.addArgument(ArgumentKind::input, stoppedName(i), stops[i]->result()->type());
    stops[i]->result()->replaceAllUsesWith(input);
  }
  return llvm::Error::success();
}

llvm::Expected<double> GraphReference::lossAt(const std::string &name, llvm::ArrayRef<double> direction, double step) {
  std::vector<double> original;
  for (auto &part : state.states) {
    if (name.empty())
      break;
    std::vector<double> &values = part.at(name).values;
    original = values;
    for (size_t i = 0; i < values.size(); ++i)
      values[i] += step * direction[i];
  }
  llvm::Expected<RankResults> results = fsdpc::evaluate(*training, FunctionKind::forward, rows, state);
  for (auto &part : state.states)
    if (!name.empty())
      part.at(name).values = original;
  if (!results)
    return results.takeError();
  LossTerms all;
  for (size_t part = 0; part < rows.size(); ++part) {
    LossTerms terms = lossTerms(choices.options.loss, (*results)[part], rows[part]);
    all.add(terms.sum, terms.count);
  }
  return choices.options.loss.reduction == LossReduction::sum ? all.sum : all.sum / all.count;
}

llvm::Expected<Tensors> GraphReference::evaluationOutputs() {
  llvm::Expected<RankResults> results =
      fsdpc::evaluate(*evaluation, FunctionKind::forward, evaluationRows, evaluationState);
  if (!results)
    return results.takeError();
  Tensors outputs;
  for (const Tensors &part : *results)
    for (const auto &[name, tensor] : part) {
      if (llvm::StringRef(name).starts_with("loss_"))
        continue;
      llvm::append_range(outputs[name].values, tensor.values); // samples are the first axis
    }
  return outputs;
}

} // namespace fsdpc
