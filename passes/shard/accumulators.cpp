#include "passes/shard/accumulators.h"

#include "ir/ops/attributes.h"
#include "passes/shard/placement.h"
#include "passes/support/clone.h"

namespace fsdpc {

std::string Accumulators::freeName(std::string name) const {
  while (module.state(name))
    name += "_";
  return name;
}

void Accumulators::addFor(const State &segment, const Unit &unit) {
  bool isUnsharded = segment.over.empty() || keepsGradients(unit);
  State state;
  state.name = freeName(segment.name + ".grad");
  state.role = StateRole::accumulator;
  state.type = isUnsharded ? Type(segment.type.dtype(), {segment.paddedElements}) : segment.type;
  state.owner = segment.name;
  state.over = isUnsharded ? "" : segment.over;
  state.paddedElements = segment.paddedElements;
  bySegment[segment.name] = &module.addState(std::move(state));
}

Value *Accumulators::add(Builder &builder, const State &accumulator, Value *summand) {
  Value *before = builder.readState(accumulator);
  Value *sum = builder.add(before, builder.cast(summand, accumulator.type.dtype()));
  builder.writeState(accumulator, sum);
  return sum;
}

void Accumulators::clear(Builder &builder, const State &accumulator) {
  Value *zero = builder.constant(Type(accumulator.type.dtype(), {}), 0);
  builder.writeState(accumulator, builder.broadcast(zero, accumulator.type.shape()));
}

void Accumulators::clearScalars(Builder &builder) {
  for (const State *scalar : scalars)
    clear(builder, *scalar);
}

Value *Accumulators::sumScalar(const Node &batchSum, Value *sum) {
  Function &function = *batchSum.function();
  Node *user = firstUser(*batchSum.result());
  if (!areNeeded() || !runsInEveryMicroStep(function.kind()) || !user)
    return sum;
  const Node &ret = *function.returnNode();
  const std::vector<std::string> &names = ret.get<ReturnAttributes>().names;
  std::string name = names.empty() ? nameOf(function.kind()).str() : names.front();
  bool isReturned = false;
  for (unsigned i = 0; i < ret.operandCount(); ++i)
    if (ret.operand(i) == batchSum.result()) {
      name = names[i];
      isReturned = true;
    }
  State state;
  state.name = freeName(name + ".sum");
  state.role = StateRole::accumulator;
  state.type = sum->type();
  const State &added = module.addState(std::move(state));
  scalars.push_back(&added);
  if (isReturned)
    carried[name] = &added;
  Builder builder(function, user);
  builder.inherit(*user);
  return add(builder, added, sum);
}

llvm::Error Accumulators::readInstead(Function &function, unsigned index) {
  const Argument &argument = function.arguments()[index];
  const State *state = carried.lookup(argument.name);
  // Functions that run once may read the value that the last micro-step returned.
  if (!state && !runsInEveryMicroStep(function.kind()))
    return llvm::Error::success();
  if (!state || !(state->type == argument.value->type()))
    return llvm::createStringError("'" + argument.name + "', which " + nameOf(function.kind()) +
                                   " takes, is no sum over the batch: with --gradient_accumulation_steps above 1 "
                                   "nothing else is carried");
  Builder builder(function, function.front());
  Value *read = builder.readState(*state);
  read->setName(argument.name);
  argument.value->replaceAllUsesWith(read);
  function.eraseArgument(index);
  return llvm::Error::success();
}

llvm::Error Accumulators::replaceCarried() {
  for (const std::unique_ptr<Function> &function : module.functions)
    for (size_t i = function->arguments().size(); i-- > 0;)
      if (function->arguments()[i].kind == ArgumentKind::carry)
        if (llvm::Error error = readInstead(*function, static_cast<unsigned>(i)))
          return error;
  if (Function *prologue = module.function(FunctionKind::prologue))
    eraseResults(*prologue, [&](llvm::StringRef name) { return carried.contains(name); });
  return llvm::Error::success();
}

} // namespace fsdpc
