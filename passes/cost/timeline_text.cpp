#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "passes/cost/timeline.h"

namespace fsdpc {

namespace {

std::string unitSuffix(const Module &module, int32_t unit) {
  return unit < 0 ? std::string() : " of " + module.units[unit].name;
}

std::string valueText(const Value &value) {
  return value.name().empty() ? infoOf(*value.definer()).name.str() : "%" + value.name().str();
}

/// The node that a reason names: a collective, the freed memory, or the computed value.
std::string blockerText(const Node &node) {
  const Module &module = *node.function()->module();
  if (infoOf(node).has(collective) || infoOf(node).has(startsTransfer))
    return transferText(node);
  if (node.op() == Op::free && node.operand(0)->definer()) {
    const Node &owner = *node.operand(0)->definer();
    return "free " + valueText(*node.operand(0)) + unitSuffix(module, owner.unit);
  }
  return (node.resultCount() > 0 ? valueText(*node.result()) : infoOf(node).name.str()) + unitSuffix(module, node.unit);
}

} // namespace

std::string collectiveText(const Node &start) {
  return infoOf(start).name.split('.').first.str() + " " + std::to_string(start.get<CollectiveAttributes>().id) +
         unitSuffix(*start.function()->module(), start.unit);
}

std::string copyText(const Node &start) {
  const Value &value = *start.operand(0);
  const std::string name = value.name().empty() ? "" : " %" + value.name().str();
  return infoOf(start).name.split('.').first.str() + name + unitSuffix(*start.function()->module(), start.unit);
}

std::string transferText(const Node &start) {
  return infoOf(start).has(collective) ? collectiveText(start) : copyText(start);
}

std::string whyNotEarlier(const TimelineCollective &collective) {
  std::string text = nameOf(collective.reason).str();
  if (!collective.blocker)
    return text;
  return text + ": " + (collective.runsInline ? "runs inline in the wait for " : "") + blockerText(*collective.blocker);
}

std::string hiddenBehindText(const TimelineCollective &collective) {
  std::string text;
  const Module &module = *collective.start->function()->module();
  for (int32_t unit : collective.hiddenBehind)
    text += (text.empty() ? "" : ",") + module.units[unit].name;
  return text;
}

} // namespace fsdpc
