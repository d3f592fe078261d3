// Selects the GPU that a rank drives, and writes the one-line reason if it has none.
#pragma once

namespace fsdpc::rt {

/// Sets the calling thread's device. It is the device with the rank's number on its host. If the launcher shows each
/// rank only one device (CUDA_VISIBLE_DEVICES), it is that one. Throws Failure{device} without a driver, without a
/// device of that number, or if the device is older than what programs are built for.
void chooseDevice(int localRank);

} // namespace fsdpc::rt
