#include "runtime/cuda/section_ranges.h"

#include "runtime/common/profile.h"
#include "runtime/cuda/device_progress.h"
#include "runtime/cuda/step_tape.h"

#include <nvtx3/nvToolsExt.h>

#include <utility>

namespace fsdpc::rt {

SectionRanges::SectionRanges(const ProgramInfo &program, const Device &device) : device(device), nodes(program.nodes) {
  for (const SectionInfo &section : program.sections)
    names.push_back(nameOf(section));
  firstNodes.resize(names.size());
  for (std::size_t i = nodes.size(); i-- > 0;)
    firstNodes[static_cast<std::size_t>(nodes[i].section)] = i;
}

void SectionRanges::begin(int section) {
  current = static_cast<std::size_t>(section);
  nvtxRangePushA(names[current].c_str());
  if (device.tape)
    device.tape->beginSection(section);
  leaveMark();
}

/// In sections that start collectives, the collectives' own marks show that compute makes progress.
void SectionRanges::leaveMark() {
  if (!device.progress || std::exchange(markedSequence, device.sequence) != device.sequence)
    return;
  if (cudaEvent_t mark = device.progress->sectionMark(device.captured.has_value()))
    recordForHost(device, mark, device.compute);
}

void SectionRanges::beginNode(int node) {
  endNode();
  nvtxRangePushA(nodes[firstNodes[current] + static_cast<std::size_t>(node)].name);
  inNode = true;
}

void SectionRanges::endNode() {
  if (std::exchange(inNode, false))
    nvtxRangePop();
}

void SectionRanges::end() {
  endNode();
  if (device.tape)
    device.tape->endSection();
  nvtxRangePop();
}

Range::Range(const char *name) { nvtxRangePushA(name); }
Range::~Range() { nvtxRangePop(); }

} // namespace fsdpc::rt
