// What a training step would take on a machine that computes at its data sheet's rate: the measure of MFU (model flops
// utilisation), the share of that rate which a run reaches.
#pragma once

#include "ir/module.h"
#include "passes/cost/hardware.h"

namespace fsdpc {

/// Microseconds of one rank's products, convolutions and attention, each at the full rate of its type; everything else,
/// and waiting, counts as nothing. 0 if the table has no full rates.
double peakStepMicroseconds(const Module &module, const Hardware &hardware);

} // namespace fsdpc
