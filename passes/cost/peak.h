// The duration of a training step on a machine at its data sheet's rate. It is the basis of MFU (model flops
// utilisation), the fraction of that rate that a run reaches.
#pragma once

#include "ir/module.h"
#include "passes/cost/hardware.h"

namespace fsdpc {

/// Microseconds of one rank's matmuls, convolutions and attention, each at the full rate of its type. Other nodes and
/// waiting count as zero. 0 if the table has no full rates.
double peakStepMicroseconds(const Module &module, const Hardware &hardware);

} // namespace fsdpc
