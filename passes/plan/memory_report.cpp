#include "passes/plan/memory_report.h"

#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "passes/support/bytes_text.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include <algorithm>

namespace fsdpc {

namespace {

constexpr size_t listedValues = 10;

/// The first position with the maximum of live bytes.
int64_t peakPosition(const LiveRanges &ranges) {
  const std::vector<int64_t> live = ranges.liveBytes();
  return std::max_element(live.begin(), live.end()) - live.begin();
}

/// A value without a name is called after the node that computes it.
std::string nameFor(const Module &module, const Buffer &buffer) {
  if (!buffer.name.empty() || !buffer.definer)
    return buffer.name;
  const Section &section = buffer.definer->section;
  std::string name = "(" + infoOf(*buffer.definer).name.str();
  if (section.unit >= 0)
    name += " of " + module.units[section.unit].name + " " + nameOf(section.phase).str();
  return name + ")";
}

void describePeak(const Module &module, const LiveRanges &ranges, int64_t position, MemoryReport &report) {
  for (const Buffer &buffer : ranges.buffers) {
    if (buffer.bytes == 0 || !buffer.isOnDevice() || !buffer.livesAt(position))
      continue;
    report.liveAtPeakBytes += buffer.bytes;
    report.byClass[static_cast<size_t>(buffer.memoryClass)] += buffer.bytes;
    report.peakLive.push_back({nameFor(module, buffer), buffer.bytes});
  }
  llvm::stable_sort(report.peakLive, [](const LiveValue &a, const LiveValue &b) { return a.bytes > b.bytes; });
  report.peakLive.resize(std::min(report.peakLive.size(), listedValues));
  if (ranges.nodeAt.empty())
    return;
  const Node &node = *ranges.nodeAt[position];
  report.peakFunction = nameOf(node.function()->kind()).str();
  report.peakNode = infoOf(node).name.str();
  if (node.resultCount() > 0 && !node.result()->name().empty())
    report.peakNode += " %" + node.result()->name().str();
  report.peakUnit = node.section.unit >= 0 ? module.units[node.section.unit].name : "";
}

/// The maximum over units of the activation bytes defined in the unit that are live at the same time.
int64_t largestUnitLiveBytes(const LiveRanges &ranges) {
  std::map<int32_t, int64_t> live;
  std::map<int32_t, int64_t> most;
  std::multimap<int64_t, const Buffer *> ends;
  std::vector<const Buffer *> byBegin;
  for (const Buffer &buffer : ranges.buffers)
    if (!buffer.permanent && buffer.bytes > 0 && buffer.isOnDevice() &&
        buffer.memoryClass == MemoryClass::activations && buffer.definer)
      byBegin.push_back(&buffer);
  llvm::stable_sort(byBegin, [](const Buffer *a, const Buffer *b) { return a->begin < b->begin; });
  for (const Buffer *buffer : byBegin) {
    while (!ends.empty() && ends.begin()->first < buffer->begin) {
      live[ends.begin()->second->definer->section.unit] -= ends.begin()->second->bytes;
      ends.erase(ends.begin());
    }
    int32_t unit = buffer->definer->section.unit;
    live[unit] += buffer->bytes;
    most[unit] = std::max(most[unit], live[unit]);
    ends.emplace(buffer->end, buffer);
  }
  int64_t largest = 0;
  for (const auto &[unit, bytes] : most)
    largest = std::max(largest, bytes);
  return largest;
}

/// Sum over units of the largest activation that their forward receives from another unit.
int64_t savedUnitInputBytes(const Module &module) {
  const Function *step = module.function(FunctionKind::microStep);
  if (!step)
    return 0;
  std::map<int32_t, int64_t> largest;
  for (Node *node : *step) {
    if (node->section.phase != Phase::forward)
      continue;
    for (Value *operand : node->operands()) {
      const Node *definer = operand->definer();
      bool crosses = definer && definer->section.unit != node->section.unit &&
                     definer->schedule.stream == Stream::compute && definer->section.phase == Phase::forward &&
                     operand->type().isTensor() && definer->op() != Op::read;
      if (crosses)
        largest[node->section.unit] = std::max(largest[node->section.unit], operand->type().bytes());
    }
  }
  int64_t sum = 0;
  for (const auto &[unit, bytes] : largest)
    sum += bytes;
  return sum;
}

int64_t theoreticalMinimum(const Module &module, const LiveRanges &ranges) {
  int64_t state = 0;
  for (const Buffer &buffer : ranges.buffers)
    if (buffer.permanent && buffer.isOnDevice())
      state += buffer.bytes;
  std::vector<int64_t> full;
  for (const State &segment : module.states)
    if (segment.role == StateRole::segment)
      full.push_back(segment.paddedElements * byteSize(segment.type.dtype()));
  llvm::sort(full, std::greater<>());
  full.resize(std::max<size_t>(full.size(), 2), 0);
  int64_t gathered = module.worldSize() > 1 ? full[0] + full[1] : 0;
  return state + gathered + full[0] + savedUnitInputBytes(module) + largestUnitLiveBytes(ranges);
}

} // namespace

MemoryReport reportMemory(const Module &module, const Target &target) {
  LiveRanges ranges(module, target);
  MemoryReport report;
  report.totalBytes = module.facts.arenaBytes(Space::privateSpace) + module.facts.arenaBytes(Space::window);
  report.predictBytes = module.facts.predictBytes(Space::privateSpace) + module.facts.predictBytes(Space::window);
  report.hostBytes = module.facts.arenaBytes(Space::host);
  report.hostLinkBytes = target.hostLinkBytes(module);
  describePeak(module, ranges, peakPosition(ranges), report);
  report.theoreticalMinBytes = theoreticalMinimum(module, ranges);
  return report;
}

void printMemoryReport(const MemoryReport &report, llvm::raw_ostream &out) {
  out << "memory of one rank: " << report.totalBytes << " bytes in arenas (" << bytesText(report.totalBytes) << "), "
      << report.liveAtPeakBytes << " live at the peak (" << report.peakFunction << ", " << report.peakNode
      << (report.peakUnit.empty() ? "" : ", unit ") << report.peakUnit << ")\n";
  if (report.hostBytes > 0)
    out << "in the host's memory " << report.hostBytes << " bytes\n";
  if (report.predictBytes > report.totalBytes)
    out << "with --predict " << report.predictBytes << " bytes\n";
  if (report.hostLinkBytes > 0)
    out << "more if the ranks live on several hosts " << report.hostLinkBytes << " bytes\n";
  for (size_t i = 0; i < memoryClassCount; ++i)
    out << llvm::format("  %-14s %14lld  %12s\n", nameOf(static_cast<MemoryClass>(i)).str().c_str(),
                        static_cast<long long>(report.byClass[i]), bytesText(report.byClass[i]).c_str());
  out << "  theoretical minimum " << report.theoreticalMinBytes << "\n  largest at the peak:\n";
  for (const LiveValue &value : report.peakLive)
    out << llvm::format("  %14lld  %12s  ", static_cast<long long>(value.bytes), bytesText(value.bytes).c_str())
        << value.value << '\n';
}

} // namespace fsdpc
