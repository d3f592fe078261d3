#include "tests/mutation/planned_rank.h"

#include "ir/op.h"
#include "ir/ops/norm.h"
#include "ir/text/node_printer.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

namespace fsdpc::mutation {

namespace {

template <class T>
void writeField(llvm::raw_ostream &out, const T &value, llvm::ArrayRef<DType> operandTypes) {
  if constexpr (std::is_same_v<T, double>)
    out << doubleText(value);
  else if constexpr (std::is_same_v<T, DType>)
    out << nameOf(value);
  else if constexpr (std::is_same_v<T, Symbol>)
    out << value.name;
  else if constexpr (std::is_same_v<T, Dense>)
    out << llvm::toHex(value.bytes());
  else if constexpr (std::is_same_v<T, Expression>)
    out << text::expressionText(value, operandTypes);
  else if constexpr (std::is_same_v<T, Shape> || std::is_same_v<T, std::vector<std::string>>)
    llvm::interleave(value, out, ",");
  else
    out << value;
}

/// The initial value of a parameter's element, the same in every layout.
double initialElement(llvm::StringRef parameter, int64_t element) {
  uint64_t mixed = (llvm::hash_value(parameter) % 1009 + 1) * 2654435761u + static_cast<uint64_t>(element) * 40503u;
  return static_cast<double>(mixed % 2003) / 2003 - 0.5;
}

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t mixed = (a ^ (b + 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 29)) * 0x94d049bb133111ebu;
  return mixed ^ (mixed >> 32);
}

/// A hash of the node without its operands, its place and its dependencies.
uint64_t identityOf(const Node &node) {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << static_cast<int>(node.op());
  for (unsigned i = 0; i < node.resultCount(); ++i)
    out << ' ' << toString(node.result(i)->type());
  llvm::SmallVector<DType, 8> operandTypes;
  for (const Value *operand : node.operands())
    operandTypes.push_back(operand->type().dtype());
  if (std::unique_ptr<AttributesBase> attributes = node.attributes() ? node.attributes()->clone() : nullptr)
    for (const text::Field &field : text::fieldsOf(*attributes)) {
      out << ' ' << field.name << '=';
      std::visit([&](auto *value) { writeField(out, *value, operandTypes); }, field.value);
    }
  uint64_t hash = node.operandCount();
  for (char letter : text)
    hash = mix(hash, static_cast<uint8_t>(letter));
  return hash;
}

} // namespace

Bytes bytesFrom(uint64_t seed, int64_t bytes) {
  Bytes made(bytes);
  for (size_t i = 0; i < made.size(); ++i)
    made[i] = static_cast<uint8_t>(i % 8 == 0 ? seed = mix(seed, i) : seed >> 8 * (i % 8));
  return made;
}

uint64_t hashOf(uint64_t seed, const Bytes &bytes) {
  for (size_t i = 0; i < bytes.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min<size_t>(8, bytes.size() - i));
    seed = mix(seed, word);
  }
  return mix(seed, bytes.size());
}

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
  if (node.schedule.workspaceBytes > 0)
    spoil(node.schedule.workspace, node.schedule.workspaceBytes);
  for (unsigned i = 0; i < node.resultCount(); ++i) {
    bool isOver = llvm::any_of(llvm::seq(node.operandCount()), [&](unsigned operand) {
      return (inPlace || isRowWrittenOver(node, i, operand)) && node.operand(operand)->place == node.result(i)->place;
    });
    if (!isOver)
      spoil(node.result(i)->place, node.result(i)->type().bytes());
  }
  results == Results::values ? evaluate(node) : leaveHashes(node);
  if (node.schedule.workspaceBytes > 0)
    spoil(node.schedule.workspace, node.schedule.workspaceBytes);
}

void Rank::evaluate(const Node &node) {
  std::vector<HostTensor> operands, made;
  std::vector<const HostTensor *> pointers;
  for (Value *operand : node.operands())
    operands.push_back(load(*operand));
  for (const HostTensor &operand : operands)
    pointers.push_back(&operand);
  for (unsigned i = 0; i < node.resultCount(); ++i)
    made.emplace_back(node.result(i)->type());
  EvaluateContext context{node.attributes(), pointers, made, this};
  infoOf(node).evaluate(context);
  for (unsigned i = 0; i < node.resultCount(); ++i)
    store(*node.result(i), made[i]);
}

void Rank::leaveHashes(const Node &node) {
  uint64_t hash = identityOf(node);
  for (const Value *operand : node.operands())
    hash = hashOf(hash, bytesOf(*operand));
  for (unsigned i = 0; i < node.resultCount(); ++i)
    llvm::copy(bytesFrom(hash + i, node.result(i)->type().bytes()), at(node.result(i)->place));
}

bool Rank::touchesMemory(const Node &node) {
  return node.op() != Op::read && node.op() != Op::free && node.op() != Op::wait && node.op() != Op::tap &&
         node.op() != Op::ret && !infoOf(node).has(startsTransfer) && !infoOf(node).has(aliasesOperand);
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
