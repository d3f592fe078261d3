#include "tests/mutation/planned_rank.h"

#include "ir/op.h"
#include "ir/ops/norm.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"

namespace fsdpc::mutation {

namespace {

/// The element of a parameter, the same in every layout.
double initialElement(llvm::StringRef parameter, int64_t element) {
  uint64_t mixed = (llvm::hash_value(parameter) % 1009 + 1) * 2654435761u + static_cast<uint64_t>(element) * 40503u;
  return static_cast<double>(mixed % 2003) / 2003 - 0.5;
}

} // namespace

void Rank::fillState(const State &state) {
  HostTensor tensor(state.type, state.initialValue);
  const State &layout = layoutOf(state);
  bool isParameters = state.role == StateRole::segment || state.role == StateRole::replica;
  if (isParameters)
    for (const SegmentSlot &slot : layout.slots)
      for (int64_t i = 0; i < slot.elements; ++i)
        if (int64_t element = slot.offsetElements + i - firstElementOf(layout);
            element >= 0 && element < state.type.elements())
          tensor.values[element] = initialElement(slot.parameter, i);
  Bytes bytes = encode(tensor);
  llvm::copy(bytes, at(state.place));
}

void Rank::recordStates(Outcome &outcome) {
  for (const State &state : module.states) {
    const State &layout = layoutOf(state);
    int64_t width = byteSize(state.type.dtype());
    for (const SegmentSlot &slot : layout.slots) {
      Bytes &held = outcome["rank " + std::to_string(index) + " " + nameOf(state.role).str() + " " + state.field + " " +
                            slot.parameter];
      for (int64_t i = 0; i < slot.elements; ++i)
        if (int64_t element = slot.offsetElements + i - firstElementOf(layout);
            element >= 0 && element < state.type.elements())
          held.insert(held.end(), at(state.place) + element * width, at(state.place) + (element + 1) * width);
    }
  }
}

void Rank::fillInputs(const Function &function, int step, int batch) {
  for (const Argument &argument : function.arguments()) {
    if (argument.kind != ArgumentKind::input)
      continue;
    HostTensor tensor(argument.value->type());
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      double element = initialElement(argument.name, static_cast<int64_t>(i) + 31 * (index + 8 * batch));
      tensor.values[i] = argument.name == "sample_weight" ? 1
                         : isFloat(tensor.type.dtype())   ? element
                                                          : std::floor((element + 0.5) * 7);
    }
    store(*argument.value, tensor);
  }
  if (const State *state = module.state("step")) {
    Bytes bytes = encode(HostTensor(state->type, step + 1));
    llvm::copy(bytes, at(state->place));
  }
}

void Rank::clearGaps(const Node &pack) {
  Value *whole = pack.result();
  int64_t width = byteSize(whole->type().dtype());
  std::vector<bool> covered(whole->type().elements());
  for (unsigned i = 0; i < pack.operandCount(); ++i)
    for (int64_t k = 0; k < pack.operand(i)->type().elements(); ++k)
      covered[pack.get<PackAttributes>().offsets[i] + k] = true;
  for (size_t i = 0; i < covered.size(); ++i)
    if (!covered[i])
      std::fill_n(at(whole->place) + static_cast<int64_t>(i) * width, width, uint8_t{0});
}

void Rank::compute(const Node &node) {
  bool inPlace =
      isElementwise(node) || node.op() == Op::fused || node.op() == Op::copy || infoOf(node).has(OpTrait::inPlace);
  if (node.workspaceBytes > 0)
    spoil(node.workspace, node.workspaceBytes);
  for (unsigned i = 0; i < node.resultCount(); ++i) {
    bool isOver = llvm::any_of(llvm::seq(node.operandCount()), [&](unsigned operand) {
      return (inPlace || isRowWrittenOver(node, i, operand)) && node.operand(operand)->place == node.result(i)->place;
    });
    if (!isOver)
      spoil(node.result(i)->place, node.result(i)->type().bytes());
  }
  std::vector<HostTensor> operands, results;
  std::vector<const HostTensor *> pointers;
  for (Value *operand : node.operands())
    operands.push_back(load(*operand));
  for (const HostTensor &operand : operands)
    pointers.push_back(&operand);
  for (unsigned i = 0; i < node.resultCount(); ++i)
    results.emplace_back(node.result(i)->type());
  EvaluateContext context{node.attributes(), pointers, results, this};
  infoOf(node).evaluate(context);
  for (unsigned i = 0; i < node.resultCount(); ++i)
    store(*node.result(i), results[i]);
  if (node.workspaceBytes > 0)
    spoil(node.workspace, node.workspaceBytes);
}

void Rank::execute(const Node &node) {
  switch (node.op()) {
  case Op::read:
  case Op::free:
  case Op::wait:
  case Op::tap:
  case Op::ret: return;
  case Op::pack: return clearGaps(node);
  case Op::write: {
    Bytes bytes = bytesOf(*node.operand(0));
    llvm::copy(bytes, at(module.state(node.get<StateAttributes>().state.name)->place));
    return;
  }
  default:
    if (!infoOf(node).has(aliasesOperand))
      compute(node);
  }
}

} // namespace fsdpc::mutation
