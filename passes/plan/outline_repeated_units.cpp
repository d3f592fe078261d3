#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "passes/passes.h"
#include "llvm/ADT/MapVector.h"

namespace fsdpc {

namespace {

/// A maximal region of nodes of one section.
struct SectionRegion {
  Node *first = nullptr;
  std::vector<Node *> nodes;
};

/// Fields that differ between otherwise equal units: they are in the table, not in the body.
bool isTabled(const std::string &field, const std::string &text) {
  return field == "state" || field == "parameter" || field == "id" || field == "instance" || field == "offset" ||
         field == "offsets" || (!text.empty() && text.front() == '@' && field != "over");
}

/// The structure of a region as text: ops, attributes, types, streams. Addresses and names are left out.
std::string signatureOf(const SectionRegion &run) {
  std::string text;
  llvm::raw_string_ostream out(text);
  for (const Node *node : run.nodes) {
    out << infoOf(*node).name << '(';
    for (Value *operand : node->operands())
      out << operand->type() << ':' << nameOf(operand->place.space) << ',';
    out << ')';
    for (const auto &[field, value] : attributeTexts(node->attributes()))
      if (!isTabled(field, value))
        out << field << '=' << value << ';';
    for (unsigned i = 0; i < node->resultCount(); ++i)
      out << node->result(i)->type() << ':' << nameOf(node->result(i)->place.space) << ',';
    out << node->schedule.workspaceBytes << '\n';
  }
  return text;
}

std::vector<SectionRegion> regionsOf(const Function &function) {
  std::vector<SectionRegion> runs;
  const Node *previous = nullptr;
  for (Node *node : function) {
    if (node->section.unit < 0) {
      previous = nullptr;
      continue;
    }
    if (!previous || !(previous->section == node->section))
      runs.push_back({node, {}});
    runs.back().nodes.push_back(node);
    previous = node;
  }
  return runs;
}

void outline(Module &module, Function &function) {
  llvm::MapVector<std::string, std::vector<SectionRegion>, std::map<std::string, unsigned>> groups;
  for (SectionRegion &run : regionsOf(function)) {
    std::string signature = signatureOf(run);
    groups[signature].push_back(std::move(run));
  }
  for (auto &[signature, runs] : groups) {
    if (runs.size() < 2)
      continue;
    int32_t index = static_cast<int32_t>(module.outlines.size());
    module.outlines.push_back(nameOf(function.kind()).str() + "_" + nameOf(runs[0].first->section.phase).str() + "_" +
                              std::to_string(index));
    for (SectionRegion &run : runs)
      for (Node *node : run.nodes)
        node->schedule.outline = index;
  }
}

llvm::Error run(Module &module, const PassContext &) {
  for (const std::unique_ptr<Function> &function : module.functions)
    outline(module, *function);
  return llvm::Error::success();
}

} // namespace

const Pass outlineRepeatedUnits = {"outline_repeated_units", Stage::planned, Stage::planned, true, run};

} // namespace fsdpc
