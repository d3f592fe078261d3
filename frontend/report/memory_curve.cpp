#include "frontend/report/memory_curve.h"

#include "ir/op.h"
#include <algorithm>

namespace fsdpc {

namespace {

constexpr size_t listedValues = 60;

/// For several nodes at one time, keeps the maximum of the live bytes and the bytes that are live after the last node.
void addPoint(std::vector<MemoryCurve::Point> &points, double microseconds, int64_t bytes) {
  const size_t count = points.size();
  if (count > 0 && points.back().bytes == bytes)
    return;
  const bool third =
      count > 1 && points[count - 1].microseconds == microseconds && points[count - 2].microseconds == microseconds;
  if (third) {
    points[count - 2].bytes = std::max(points[count - 2].bytes, points[count - 1].bytes);
    points.pop_back();
  }
  points.push_back({microseconds, bytes});
}

/// The unit of each buffer that is a state: its own, or that of the segment it belongs to.
llvm::DenseMap<const Buffer *, int64_t> unitsOfStates(const Module &module, const LiveRanges &ranges) {
  llvm::DenseMap<const Buffer *, int64_t> units;
  for (const State &state : module.states) {
    const State *segment = state.owner.empty() ? &state : module.state(state.owner);
    auto buffer = ranges.bufferOfState.find(state.name);
    if (segment && !segment->unit.empty() && buffer != ranges.bufferOfState.end())
      units[&ranges.buffers[buffer->second]] = module.unitIndex(segment->unit);
  }
  return units;
}

void listPeak(const Module &module, const LiveRanges &ranges, int64_t position, MemoryCurve &curve) {
  const llvm::DenseMap<const Buffer *, int64_t> ofStates = unitsOfStates(module, ranges);
  for (const Buffer &buffer : ranges.buffers) {
    if (buffer.bytes == 0 || !buffer.isOnDevice() || !buffer.livesAt(position))
      continue;
    int64_t unit = -1;
    if (auto found = ofStates.find(&buffer); found != ofStates.end())
      unit = found->second;
    else if (buffer.definer)
      unit = buffer.definer->unit >= 0 ? buffer.definer->unit : buffer.definer->section.unit;
    std::string name = buffer.name;
    if (name.empty() && buffer.definer)
      name = "result of " + infoOf(*buffer.definer).name.str();
    curve.live.push_back({std::move(name), buffer.memoryClass, unit, buffer.bytes});
  }
  llvm::stable_sort(curve.live, [](const auto &a, const auto &b) { return a.bytes > b.bytes; });
  for (size_t i = listedValues; i < curve.live.size(); ++i) {
    ++curve.leftOutCount;
    curve.leftOutBytes += curve.live[i].bytes;
  }
  curve.live.resize(std::min(curve.live.size(), listedValues));
}

} // namespace

MemoryCurve memoryCurve(const Module &planned, const Target &target, const StepTimes &times) {
  const LiveRanges ranges(planned, target);
  MemoryCurve curve;
  for (const Buffer &buffer : ranges.buffers)
    if (buffer.permanent && buffer.isOnDevice())
      curve.permanentBytes += buffer.bytes;
  const std::vector<int64_t> live = ranges.liveBytes();
  int64_t peakPosition = 0;
  for (size_t i = 0; i < live.size(); ++i) {
    if (live[i] > live[peakPosition])
      peakPosition = static_cast<int64_t>(i);
    if (auto span = times.compute.find(ranges.nodeAt[i]); span != times.compute.end())
      addPoint(curve.points, span->second.begin, curve.permanentBytes + live[i]);
  }
  if (live.empty())
    return curve;
  curve.peakBytes = curve.permanentBytes + live[peakPosition];
  curve.peakNode = ranges.nodeAt[peakPosition];
  if (auto span = times.compute.find(curve.peakNode); span != times.compute.end()) {
    curve.peakInStep = true;
    curve.peakMicroseconds = span->second.begin;
  }
  listPeak(planned, ranges, peakPosition, curve);
  return curve;
}

} // namespace fsdpc
