#include "codegen/common/program_text.h"

#include "codegen/common/cpp_text.h"
#include "codegen/common/poison.h"

#include "ir/op.h"
#include "ir/ops/attributes.h"

namespace fsdpc {

ProgramText::ProgramText(const Module &module, const EmitInfo &info, const Dialect &dialect)
    : module(module), info(info), dialect(dialect) {
  collectCollectives();
  collectParameters();
  if (info.poisonsFreed)
    poisonedFrees = freesToPoison(module, dialect.hasEvents(), [&](const Value *future) { return startOf(future); });
}

void ProgramText::collectCollectives() {
  for (const std::unique_ptr<Function> &function : module.functions) {
    for (const Node *node : *function) {
      events = std::max(events, node->schedule.records + 1);
      if (startsCollective(*node)) {
        collectiveIndex[node] = static_cast<int>(collectiveNodes.size());
        collectiveNodes.push_back(node);
      } else if (infoOf(*node).has(startsTransfer)) {
        copyIndex[node] = static_cast<int>(copyIndex.size());
      } else if (node->schedule.stream == Stream::host) {
        hostTaskIndex[node] = static_cast<int>(hostTaskIndex.size());
      }
    }
    const Node *ret = function->returnNode();
    if (!ret)
      continue;
    const std::vector<std::string> &names = ret->get<ReturnAttributes>().names;
    for (unsigned i = 0; i < ret->operandCount(); ++i)
      if (ret->operand(i)->type().isFuture() && ret->operand(i)->definer())
        startByResultName[names[i]] = ret->operand(i)->definer();
  }
}

void ProgramText::collectParameters() {
  struct Slot {
    int segment;
    int64_t offset;
  };
  llvm::StringMap<Slot> slots;
  for (const State &state : module.states) {
    if (!state.isFlat() || state.role == StateRole::replica)
      continue;
    for (const SegmentSlot &slot : state.slots)
      slots[slot.parameter] = {static_cast<int>(segmentStates.size()), slot.offsetElements};
    segmentStates.push_back(&state);
  }
  for (const State &state : module.states)
    if (state.role == StateRole::replica)
      segmentStates.push_back(&state);
  for (const State *segment : segmentStates)
    segmentIndex.try_emplace(segment->name, static_cast<int>(segmentIndex.size()));
  for (const Parameter &parameter : module.parameters) {
    auto slot = slots.find(parameter.name);
    if (slot == slots.end())
      continue;
    parameterIndex[parameter.name] = static_cast<int>(placedParameters.size());
    placedParameters.push_back({&parameter, slot->second.segment, slot->second.offset});
  }
}

std::string ProgramText::primitive(llvm::StringRef type, llvm::StringRef stem, const std::string &create) {
  std::string &name = primitiveByCreate[(type + "|" + stem + "|" + create).str()];
  if (name.empty()) {
    int count = primitiveStems[stem]++;
    name = count == 0 ? stem.str() : (stem + "v" + llvm::Twine(count + 1)).str();
    primitiveTexts.push_back({type.str(), name, create});
  }
  return name;
}

std::string ProgramText::kernel(llvm::StringRef stem, const std::string &text) {
  std::string &name = kernelByText[text];
  if (name.empty()) {
    int count = kernelStems[stem]++;
    name = count == 0 ? stem.str() : stem.str() + std::to_string(count + 1);
    std::string named = text;
    for (size_t at = named.find('\x01'); at != std::string::npos; at = named.find('\x01', at + name.size()))
      named.replace(at, 1, name);
    kernelTexts.push_back(std::move(named));
  }
  return name;
}

std::string ProgramText::constantTable(const Dense &dense) {
  std::string key(1, static_cast<char>(dense.dtype()));
  key.append(reinterpret_cast<const char *>(dense.bytes().data()), dense.bytes().size());
  std::string &name = constantByBytes[key];
  if (name.empty()) {
    name = "constant" + std::to_string(constantValues.size());
    constantValues.push_back(dense);
  }
  return name;
}

std::string nameForMessages(const Node &node) {
  if (llvm::StringRef name = llvm::StringRef(node.source).rsplit('|').second; !name.empty())
    return name.str();
  std::string op = infoOf(node).name.str();
  return node.resultCount() > 0 && !node.result(0)->name().empty() ? op + " " + node.result(0)->name().str() : op;
}

int ProgramText::indexNode(const Node &node, llvm::ArrayRef<int64_t> axes) {
  std::string name = nameForMessages(node), key = name + " " + cppList(axes);
  auto [entry, isNew] = indexNodeByText.try_emplace(key, static_cast<int>(indexNodeTexts.size()));
  if (isNew)
    indexNodeTexts.push_back({std::move(name), Shape(axes)});
  return entry->second;
}

const Node *ProgramText::startOf(const Value *future) const {
  if (future->definer())
    return future->definer();
  for (const Argument &argument : future->function()->arguments())
    if (argument.value.get() == future)
      return startByResultName.lookup(argument.name);
  return nullptr;
}

int ProgramText::axisOf(llvm::StringRef name) const {
  for (size_t i = 0; i < module.mesh.size(); ++i)
    if (module.mesh[i].name == name)
      return static_cast<int>(i);
  return -1;
}

int ProgramText::parameterOf(llvm::StringRef name) const {
  auto found = parameterIndex.find(name);
  return found == parameterIndex.end() ? -1 : found->second;
}

} // namespace fsdpc
