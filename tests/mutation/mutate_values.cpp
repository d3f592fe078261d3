// Faults of values: contributions, scales, operands, attributes, versions, states.
#include "ir/text/text.h"
#include "tests/mutation/mutators.h"
#include "tests/mutation/plan_edit.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc::mutation {

namespace {

using What = std::optional<std::string>;

bool isComputed(const Node &node) {
  const OpInfo &info = infoOf(node);
  return !info.has(aliasesOperand) && !info.has(startsTransfer) && !info.has(inPlace) && node.op() != Op::read &&
         node.op() != Op::wait && node.op() != Op::free && node.op() != Op::constant && node.op() != Op::ret &&
         node.op() != Op::write && node.op() != Op::tap && node.op() != Op::pack && node.resultCount() > 0;
}

bool isFloatTensor(const Value &value) {
  return value.type().isTensor() && hasBytes(value) && isFloat(value.type().dtype());
}

/// Overwrites the value with the result of two steps, for all its users.
void replaceInPlace(Value &value, const Expression::Step &first, const Expression::Step &second) {
  Node &definer = *value.definer();
  FusedAttributes attributes;
  attributes.shape = Shape(value.type().shape());
  attributes.body.operandCount = 1;
  attributes.body.steps = {first, second};
  attributes.body.yields = {2};
  Node *scaled = insertCompute(Op::fused, {&value}, std::make_unique<Attributes<FusedAttributes>>(attributes), definer,
                               definer.next());
  scaled->result()->place = value.place;
  std::vector<Use *> uses;
  for (Use *use = value.uses(); use; use = use->next())
    if (use->user() != scaled)
      uses.push_back(use);
  for (Use *use : uses)
    use->user()->setOperand(use->index(), scaled->result());
  insertCompute(Op::free, {&value}, nullptr, definer, scaled->next());
}

/// value * factor
void scaleInPlace(Value &value, double factor) {
  const DType dtype = value.type().dtype();
  replaceInPlace(value, {Op::constant, dtype, {}, {}, factor}, {Op::mul, dtype, {0, 1}, {}, 0});
}

bool isRead(const Value &value) {
  for (const Use *use = value.uses(); use; use = use->next())
    if (use->user()->op() != Op::free)
      return true;
  return false;
}

/// A computed float result that something reads.
std::optional<Value *> someValue(const Module &module, Random &random, bool inBackward) {
  std::vector<Value *> values;
  for (Node *node : nodesWhere(module, isComputed))
    for (unsigned i = 0; i < node->resultCount(); ++i)
      if (isFloatTensor(*node->result(i)) && isRead(*node->result(i)) &&
          (!inBackward || node->section.phase == Phase::backward))
        values.push_back(node->result(i));
  return random.pick(values);
}

What changeLiteral(Module &module, Random &random) {
  struct Literal {
    Node *node;
    size_t step;
  };
  std::vector<Literal> literals;
  for (Node *node : nodesWhere(module, [](const Node &node) { return node.op() == Op::fused; }))
    for (size_t i = 0; i < node->get<FusedAttributes>().body.steps.size(); ++i)
      if (node->get<FusedAttributes>().body.steps[i].op == Op::constant &&
          isFloat(node->get<FusedAttributes>().body.steps[i].dtype))
        literals.push_back({node, i});
  std::optional<Literal> literal = random.pick(literals);
  if (!literal)
    return std::nullopt;
  std::string what = toText(*literal->node);
  double &value = literal->node->get<FusedAttributes>().body.steps[literal->step].literal;
  value = value == 0 ? 1 : value * (random.coin() ? 2 : 0.5);
  return "another literal in step " + std::to_string(literal->step) + " of " + what;
}

/// Mutates a random field of an op's attributes.
class FieldMutation final : public AttributeVisitor {
public:
  FieldMutation(Random &random, int target) : random(random), target(target) {}
  void field(llvm::StringRef, int64_t &value) override {
    if (isTarget())
      value += random.coin() ? 1 : -1;
  }
  void field(llvm::StringRef, double &value) override {
    if (isTarget())
      value = value == 0 ? 1 : value * 1.5;
  }
  void field(llvm::StringRef, bool &value) override {
    if (isTarget())
      value = !value;
  }
  void field(llvm::StringRef, std::string &) override {}
  void field(llvm::StringRef, DType &) override {}
  void field(llvm::StringRef, Symbol &) override {}
  void field(llvm::StringRef, Shape &value) override {
    if (!value.empty() && isTarget())
      value[random.below(value.size())] += 1;
  }
  void field(llvm::StringRef, std::vector<std::string> &) override {}
  void field(llvm::StringRef, Dense &value) override {
    if (isTarget() && isFloat(value.dtype()) && value.isSplat())
      value = Dense::splat(value.dtype(), value.at(0) + 1);
  }
  void field(llvm::StringRef, Expression &value) override {
    if (isTarget())
      changeStep(value);
  }
  int seen = 0;

private:
  bool isTarget() { return seen++ == target; }
  void changeStep(Expression &body) {
    Expression::Step &step = body.steps[random.below(body.steps.size())];
    static constexpr Op binary[] = {Op::add, Op::sub, Op::mul, Op::div, Op::maximum};
    static constexpr Op unary[] = {Op::neg, Op::exp, Op::relu, Op::tanh};
    llvm::ArrayRef<Op> ops = step.arguments.size() == 2   ? llvm::ArrayRef<Op>(binary)
                             : step.arguments.size() == 1 ? llvm::ArrayRef<Op>(unary)
                                                          : llvm::ArrayRef<Op>();
    bool isFloatStep = isFloat(step.dtype) && llvm::is_contained(ops, step.op);
    if (isFloatStep)
      step.op = ops[(llvm::find(ops, step.op) - ops.begin() + 1) % ops.size()];
    else if (step.op == Op::constant)
      step.literal += 1;
    else if (step.arguments.size() >= 2)
      std::swap(step.arguments[0], step.arguments[1]);
  }
  Random &random;
  int target;
};

} // namespace

What loseContribution(Module &module, Random &random) {
  if (random.coin()) {
    std::optional<Node *> pack = random.pick(
        nodesWhere(module, [](const Node &node) { return node.op() == Op::pack && node.operandCount() > 0; }));
    if (!pack)
      return std::nullopt;
    std::string what = toText(**pack);
    Value *part = (*pack)->operand(static_cast<unsigned>(random.below((*pack)->operandCount())));
    bool canBeZero = part->definer() && isComputed(*part->definer());
    if ((*pack)->operandCount() == 1 && !canBeZero)
      return std::nullopt;
    if ((*pack)->operandCount() > 1 && (!canBeZero || random.coin())) {
      // The part is removed from the pack: its memory is zeroed as a gap.
      PackAttributes attributes = (*pack)->get<PackAttributes>();
      llvm::SmallVector<Value *, 8> parts;
      Shape offsets;
      for (unsigned i = 0; i < (*pack)->operandCount(); ++i)
        if ((*pack)->operand(i) != part) {
          parts.push_back((*pack)->operand(i));
          offsets.push_back(attributes.offsets[i]);
        }
      attributes.offsets = offsets;
      Node *less =
          insertCompute(Op::pack, parts, std::make_unique<Attributes<PackAttributes>>(attributes), **pack, *pack);
      less->result()->place = (*pack)->result()->place;
      insertCompute(Op::free, {part}, nullptr, **pack, less);
      (*pack)->result()->replaceAllUsesWith(less->result());
      (*pack)->erase();
      return "a part less: " + what;
    }
    scaleInPlace(*part, 0);
    return "a part that is zero: " + what;
  }
  // x + y becomes x + x.
  std::optional<Node *> sum = random.pick(nodesWhere(module, [](const Node &node) {
    if (node.section.phase != Phase::backward)
      return false;
    if (node.op() == Op::add)
      return true;
    return node.op() == Op::fused && llvm::any_of(node.get<FusedAttributes>().body.steps, [](const auto &step) {
             return step.op == Op::add && step.arguments[0] != step.arguments[1];
           });
  }));
  if (!sum)
    return std::nullopt;
  std::string what = toText(**sum);
  if ((*sum)->op() == Op::add) {
    (*sum)->setOperand(1, (*sum)->operand(0));
    return "one addend twice: " + what;
  }
  for (Expression::Step &step : (*sum)->get<FusedAttributes>().body.steps)
    if (step.op == Op::add && step.arguments[0] != step.arguments[1]) {
      step.arguments[1] = step.arguments[0];
      break;
    }
  return "one addend twice: " + what;
}

What scale(Module &module, Random &random) {
  if (random.below(4) == 0)
    if (What what = changeLiteral(module, random))
      return what;
  std::optional<Value *> value = someValue(module, random, random.coin());
  if (!value)
    return std::nullopt;
  auto ranks = static_cast<double>(module.worldSize());
  std::string what = toText(*(*value)->definer());
  double factor = *random.pick(std::vector<double>{0.5, 2, 1 / ranks, ranks, -1});
  scaleInPlace(**value, factor);
  return "scaled by " + doubleText(factor) + ": " + what;
}

What roundOnceMore(Module &module, Random &random) {
  std::optional<Value *> value = someValue(module, random, random.coin());
  if (!value)
    return std::nullopt;
  const DType dtype = (*value)->type().dtype(),
              other = dtype == DType::bf16 || (dtype != DType::f16 && random.coin()) ? DType::f16 : DType::bf16;
  std::string what = "rounded to " + nameOf(other).str() + ": " + toText(*(*value)->definer());
  replaceInPlace(**value, {Op::cast, other, {0}, {}, 0}, {Op::cast, dtype, {1}, {}, 0});
  return what;
}

What changeOperand(Module &module, Random &random) {
  std::optional<Node *> node = random.pick(nodesWhere(module, [](const Node &node) {
    return node.operandCount() > 0 && node.op() != Op::free && node.op() != Op::ret && node.op() != Op::wait;
  }));
  if (!node)
    return std::nullopt;
  auto index = static_cast<unsigned>(random.below((*node)->operandCount()));
  Value *operand = (*node)->operand(index);
  std::vector<Value *> others;
  for (Value *value : valuesOf(*(*node)->function()))
    if (value != operand && value->type() == operand->type() &&
        (!value->definer() || value->definer()->isBefore(*node)))
      others.push_back(value);
  // Mistakes with nearby values are the most likely.
  if (others.size() > 8 && random.coin())
    others.erase(others.begin(), others.end() - 8);
  std::optional<Value *> other = random.pick(others);
  if (!other)
    return std::nullopt;
  std::string what = toText(**node);
  (*node)->setOperand(index, *other);
  return "operand " + std::to_string(index) + " of '" + what + "' replaced: " + toText(**node);
}

What changeAttribute(Module &module, Random &random) {
  std::optional<Node *> node = random.pick(nodesWhere(
      module, [](const Node &node) { return node.attributes() && isComputed(node) && node.op() != Op::takeShard; }));
  if (!node)
    return std::nullopt;
  FieldMutation count(random, -1);
  (*node)->attributes()->visit(count);
  if (count.seen == 0)
    return std::nullopt;
  std::string before = toText(**node);
  FieldMutation mutation(random, static_cast<int>(random.below(count.seen)));
  (*node)->attributes()->visit(mutation);
  std::string after = toText(**node);
  if (before == after)
    return std::nullopt;
  return "'" + before + "' became '" + after + "'";
}

What readOldVersion(Module &module, Random &random) {
  std::optional<Node *> write =
      random.pick(nodesWhere(module, [](const Node &node) { return node.op() == Op::write; }));
  if (!write)
    return std::nullopt;
  std::string what = toText(**write);
  const State *state = module.state((*write)->get<StateAttributes>().state.name);
  switch (random.below(3)) {
  case 0: { // the old value is written
    Builder builder(*(*write)->function(), *write);
    builder.inherit(**write);
    Node *old =
        builder.create(Op::read, {}, StateAttributes{{state->name}, Shape(state->type.shape()), state->type.dtype()});
    old->schedule.stream = Stream::compute;
    old->result()->place = state->place;
    (*write)->setOperand(0, old->result());
    return "writes what it was: " + what;
  }
  case 1: { // a gather of the new value sends the old one
    for (Node *start : nodesWhere(module, isStart)) {
      Node *definer = start->operand(0)->definer();
      if (start->function() != (*write)->function() || !definer || !infoOf(*definer).has(inPlace))
        continue;
      start->setOperand(0, definer->operand(0));
      return "sends what it was: " + toText(*start);
    }
    [[fallthrough]];
  }
  default: { // a later gather's result is taken from an earlier gather of the same type
    std::vector<Node *> waits = nodesWhere(module, [](const Node &node) {
      return node.op() == Op::wait && node.operand(0)->definer() &&
             node.operand(0)->definer()->op() == Op::allGatherStart;
    });
    std::optional<Node *> late = random.pick(waits);
    if (!late)
      return std::nullopt;
    for (Node *early : waits)
      if (early->function() == (*late)->function() && early->isBefore(*late) &&
          early->result()->type() == (*late)->result()->type() && (*late)->result()->hasUses()) {
        Use *use = (*late)->result()->uses();
        while (use->next() && use->user()->op() == Op::free)
          use = use->next();
        use->user()->setOperand(use->index(), early->result());
        return "reads what was gathered before: " + toText(*use->user());
      }
    return std::nullopt;
  }
  }
}

What dropEffect(Module &module, Random &random) {
  std::optional<Node *> node =
      random.pick(nodesWhere(module, [](const Node &node) { return node.op() == Op::write || node.op() == Op::tap; }));
  if (!node)
    return std::nullopt;
  std::string what = toText(**node);
  (*node)->erase();
  return "dropped " + what;
}

What changeState(Module &module, Random &random) {
  std::optional<Node *> node = random.pick(nodesWhere(module, [](const Node &node) {
    return node.op() == Op::write || node.op() == Op::read || node.op() == Op::tap;
  }));
  if (!node)
    return std::nullopt;
  std::string what = toText(**node);
  if ((*node)->op() == Op::tap) {
    std::vector<std::string> names;
    for (const Parameter &parameter : module.parameters)
      if (parameter.name != (*node)->get<TapAttributes>().parameter.name)
        names.push_back(parameter.name);
    std::optional<std::string> name = random.pick(names);
    if (!name)
      return std::nullopt;
    (*node)->get<TapAttributes>().parameter.name = *name;
    return "as " + *name + ": " + what;
  }
  auto &attributes = (*node)->get<StateAttributes>();
  const State *own = module.state(attributes.state.name);
  std::vector<const State *> others;
  for (const State &state : module.states)
    if (&state != own && state.type == own->type)
      others.push_back(&state);
  std::optional<const State *> other = random.pick(others);
  if (!other)
    return std::nullopt;
  attributes.state.name = (*other)->name;
  if ((*node)->op() == Op::read)
    (*node)->result()->place = (*other)->place;
  // Aliases of the read value move to its new place.
  if ((*node)->op() == Op::read)
    for (Node *user : nodesWhere(module, [](const Node &user) { return infoOf(user).has(aliasesOperand); }))
      if (user->operand(0) == (*node)->result()) {
        int64_t offset =
            user->op() == Op::view ? user->get<ViewAttributes>().offset * byteSize(user->result()->type().dtype()) : 0;
        user->result()->place = {(*other)->place.space, (*other)->place.offsetBytes + offset};
      }
  return "of " + (*other)->name + ": " + what;
}

} // namespace fsdpc::mutation
