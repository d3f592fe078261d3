// Which GPU a rank drives, and the one line that says why it has none.
#pragma once

namespace fsdpc::rt {

/// Makes a device the calling thread's: that of the rank's number on its host; where the launcher shows each rank its
/// own only (CUDA_VISIBLE_DEVICES), that one. Throws Failure{device} without a driver, without a device of that number,
/// or where the device is older than what programs are built for.
void chooseDevice(int localRank);

} // namespace fsdpc::rt
