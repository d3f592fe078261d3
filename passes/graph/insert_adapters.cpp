// --lora: low-rank adapters beside frozen weights of linear layers (Hu et al., LoRA, arXiv 2106.09685; rsLoRA, arXiv
// 2312.03732). y + scale * up(down(dropout(x))) replaces y, as in the peft package: down [rank, in] begins as nn.Linear
// does, up [out, rank] with zeros, so that training begins where the weights are.
#include "ir/builder.h"
#include "ir/name_pattern.h"
#include "ir/ops/attributes.h"
#include "ir/usage_error.h"
#include "passes/graph/match.h"
#include "passes/passes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include <cmath>

namespace fsdpc {

namespace {

/// As the peft package calls the factors.
constexpr const char *downName = ".lora_A.weight", *upName = ".lora_B.weight";

/// The uses of a parameter as the weight of linear layers.
struct Linear {
  std::string parameter;
  std::vector<Node *> products;
  const Node *otherUse = nullptr; ///< a node that uses it in another way
};

/// The parameter that the value reads; null for everything else.
const State *parameterRead(const Value *value) {
  const Node *read = definedBy(value, Op::read);
  const State *state = read ? read->function()->module()->state(read->get<StateAttributes>().state.name) : nullptr;
  return state && state->role == StateRole::parameter ? state : nullptr;
}

bool isLinear(const Use &use) {
  const Node &node = *use.user();
  return node.op() == Op::matmul && use.index() == 1 && node.operand(1)->type().rank() == 2 &&
         !node.get<MatmulAttributes>().transposeA;
}

/// "h.0.attn.c_attn" of "h.0.attn.c_attn.weight".
std::string moduleOf(llvm::StringRef parameter) {
  parameter.consume_back(".weight");
  return parameter.str();
}

class AdapterInserter {
public:
  AdapterInserter(Module &module, const LoraOptions &options)
      : module(module), forward(*module.function(FunctionKind::forward)), options(options), builder(forward) {}

  llvm::Expected<std::string> run() {
    collect();
    llvm::Expected<std::vector<const Linear *>> targets = chosen();
    if (!targets)
      return targets.takeError();
    int64_t elements = 0;
    for (const Linear *target : *targets) {
      if (llvm::Error error = check(*target))
        return error;
      elements += adapt(*target);
    }
    return "adapters of rank " + std::to_string(options.rank) + " beside " + std::to_string(targets->size()) +
           " weights: " + std::to_string(elements) + " elements";
  }

private:
  void collect() {
    for (const Node *node : forward) {
      if (node->op() == Op::randomUniform)
        instances = std::max(instances, node->get<RandomUniformAttributes>().instance + 1);
      const State *state = node->op() == Op::read ? parameterRead(node->result()) : nullptr;
      if (!state)
        continue;
      const auto [entry, isNew] = indexOf.try_emplace(state->name, linears.size());
      if (isNew)
        linears.emplace_back().parameter = state->name;
      Linear &linear = linears[entry->second];
      for (Use *use = node->result()->uses(); use; use = use->next())
        if (isLinear(*use))
          linear.products.push_back(use->user());
        else
          linear.otherUse = use->user();
    }
    for (Linear &linear : linears)
      llvm::sort(linear.products, [](const Node *a, const Node *b) { return a->isBefore(b); });
  }

  /// all_linear: without the last one, the output layer, as peft means it.
  std::vector<const Linear *> allLinear() const {
    std::vector<const Linear *> all;
    for (const Linear &linear : linears)
      if (!linear.products.empty() && !linear.otherUse)
        all.push_back(&linear);
    auto last = llvm::max_element(
        all, [](const Linear *a, const Linear *b) { return a->products.back()->isBefore(b->products.back()); });
    if (all.size() > 1)
      all.erase(last);
    return all;
  }

  llvm::Expected<std::vector<const Linear *>> chosen() const {
    if (options.targets == "all_linear")
      return allLinear();
    llvm::Expected<NamePattern> pattern = NamePattern::make("lora targets", options.targets);
    if (!pattern)
      return pattern.takeError();
    std::vector<const Linear *> targets;
    std::vector<std::string> names;
    for (const Linear &linear : linears) {
      const std::string &name = linear.parameter;
      const Parameter &parameter = *module.parameter(name);
      const bool isAsked = pattern->matches(moduleOf(name)) || pattern->matches(name) ||
                           llvm::any_of(parameter.otherNames,
                                        [&](const std::string &other) { return pattern->matches(moduleOf(other)); });
      // A bias is in the module, too.
      if (parameter.type.rank() != 2)
        continue;
      names.push_back(moduleOf(name));
      if (isAsked)
        targets.push_back(&linear);
    }
    if (targets.empty())
      return pattern->matchesNone("module", names);
    return targets;
  }

  llvm::Error check(const Linear &target) const {
    const Parameter &parameter = *module.parameter(target.parameter);
    const std::string what = "--lora: " + moduleOf(target.parameter);
    if (target.products.empty() || target.otherUse)
      return llvm::make_error<UsageError>(
          what + " is no linear layer: its weight " + toString(parameter.type) + " is used by " +
          (target.otherUse ? infoOf(*target.otherUse).name.str() + (target.products.empty() ? "" : ", too")
                           : "nothing") +
          "; leave it out of targets");
    const bool isTransposed = target.products.front()->get<MatmulAttributes>().transposeB;
    for (const Node *product : target.products)
      if (product->get<MatmulAttributes>().transposeB != isTransposed)
        return llvm::make_error<UsageError>(what + " is applied as it is and transposed: an adapter has one input");
    if (parameter.trainable)
      return llvm::make_error<UsageError>(what + " trains by itself (--trainable); leave it out of one of the two");
    for (const char *factor : {downName, upName})
      if (const std::string name = moduleOf(target.parameter) + factor; module.state(name))
        return llvm::make_error<UsageError>(what + ": the model has a " + name +
                                            " of its own; leave it out of targets");
    return llvm::Error::success();
  }

  /// Returns the number of added elements.
  int64_t adapt(const Linear &target) {
    const MatmulAttributes &product = target.products.front()->get<MatmulAttributes>();
    const Type weight = module.parameter(target.parameter)->type;
    const bool inputFirst = !product.transposeB;
    const int64_t in = weight.dim(inputFirst ? 0 : 1), out = weight.dim(inputFirst ? 1 : 0);
    const std::string owner = moduleOf(target.parameter);
    const double bound = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(in, 1)));
    const State &down = addFactor(owner + downName, Type(weight.dtype(), {options.rank, in}),
                                  {InitialKind::uniform, -bound, bound, "lora"});
    const State &up =
        addFactor(owner + upName, Type(weight.dtype(), {out, options.rank}), {InitialKind::constant, 0, 0, "lora"});
    module.parameter(target.parameter)->adapter = {down.name, up.name, options.scale(), options.dropout, inputFirst};
    for (Node *node : target.products)
      addTo(*node, down, up);
    return down.type.elements() + up.type.elements();
  }

  const State &addFactor(const std::string &name, const Type &type, InitialValues initial) {
    Parameter parameter;
    parameter.name = name;
    parameter.type = type;
    parameter.hasValue = false;
    parameter.initial = std::move(initial);
    parameter.recovered = "added by --lora";
    module.parameters.push_back(std::move(parameter));
    State state;
    state.name = name;
    state.type = type;
    return module.addState(std::move(state));
  }

  /// Adds the adapter's result behind the product, or behind its bias, which a later pass lets the product add.
  void addTo(Node &product, const State &down, const State &up) {
    Node &anchor = withBias(product);
    builder.setInsertionPointAfter(&anchor);
    builder.inherit(anchor);
    Value *x = dropped(product.operand(0));
    Value *narrow = builder.matmul(x, builder.readState(down), false, /*transposeB=*/true);
    Value *scaled = builder.mul(narrow, builder.constantLike(narrow, options.scale()));
    Value *change = builder.matmul(scaled, builder.readState(up), false, /*transposeB=*/true);
    Value *old = anchor.result(), *sum = builder.add(old, change);
    old->replaceAllUsesWith(sum);
    sum->definer()->setOperand(0, old);
  }

  static Node &withBias(Node &product) {
    const Use *use = product.result()->uses();
    Node *user = use && !use->next() ? use->user() : nullptr;
    if (!user || user->op() != Op::add || user->result()->type() != product.result()->type())
      return product;
    const State *bias = parameterRead(belowBroadcasts(user->operand(1 - use->index())));
    return bias && bias->type.rank() == 1 ? *user : product;
  }

  /// As the import translates Dropout, so that later passes know it.
  Value *dropped(Value *x) {
    if (options.dropout == 0)
      return x;
    const int64_t batchAxis = x->type().rank() > 0 ? 0 : -1;
    RandomUniformAttributes random{instances++, batchAxis, Shape(x->type().shape())};
    Value *numbers = builder.create(Op::randomUniform, {scalar("seed"), scalar("step")}, random)->result();
    Value *less = builder.binary(Op::less, numbers, builder.constantLike(numbers, options.dropout));
    Value *kept = builder.mul(x, builder.constantLike(x, 1 / (1 - options.dropout)));
    return builder.select(builder.unary(Op::logicalNot, less), kept, builder.constantLike(x, 0));
  }

  Value *scalar(llvm::StringRef name) {
    if (!module.state(name)) {
      State state;
      state.name = name.str();
      state.role = StateRole::scalar;
      state.type = Type(DType::i64, {});
      module.addState(std::move(state));
    }
    return builder.readState(*module.state(name));
  }

  Module &module;
  Function &forward;
  const LoraOptions &options;
  Builder builder;
  std::vector<Linear> linears;     ///< in the order of the graph
  llvm::StringMap<size_t> indexOf; ///< by parameter
  int64_t instances = 0;           ///< the first unused instance of random numbers
};

llvm::Error run(Module &module, const PassContext &context) {
  const bool has = llvm::any_of(module.parameters, [](const Parameter &parameter) { return parameter.adapter; });
  // Adapters that already exist (from a saved stage) are kept.
  if (!context.options.lora || !module.function(FunctionKind::forward) || has)
    return llvm::Error::success();
  llvm::Expected<std::string> remark = AdapterInserter(module, *context.options.lora).run();
  if (!remark)
    return remark.takeError();
  context.remarks.push_back(*remark);
  return llvm::Error::success();
}

} // namespace

const Pass insertAdapters = {"insert_adapters", Stage::graph, Stage::graph, /*optional=*/false, run};

} // namespace fsdpc
