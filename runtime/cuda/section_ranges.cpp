#include "runtime/cuda/section_ranges.h"

#include "runtime/common/profile.h"
#include "runtime/cuda/step_tape.h"

#include <nvtx3/nvToolsExt.h>

namespace fsdpc::rt {

SectionRanges::SectionRanges(const ProgramInfo &program, const Device &device) : device(device) {
  for (const SectionInfo &section : program.sections)
    names.push_back(nameOf(section));
}

void SectionRanges::begin(int section) {
  nvtxRangePushA(names[static_cast<std::size_t>(section)].c_str());
  if (device.tape)
    device.tape->beginSection(section);
}

void SectionRanges::end() {
  if (device.tape)
    device.tape->endSection();
  nvtxRangePop();
}

Range::Range(const char *name) { nvtxRangePushA(name); }
Range::~Range() { nvtxRangePop(); }

} // namespace fsdpc::rt
