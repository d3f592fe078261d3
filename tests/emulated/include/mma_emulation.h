// Emulates the instructions of runtime/cuda/kernels/mma.h. Every lane shows its operands to the warp and computes its
// own results from the others' operands, by the fragment layouts of the PTX manual. A copy runs either when it is
// started or when it is waited for. So a kernel that reads too early, or overwrites data that is still read, fails.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace fsdpc::emulated {

inline constexpr int lanesOfWarp = 32, maxThreads = 1024;

inline int threadOfBlock() {
  return static_cast<int>((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
}

inline void checkAligned(const void *address, std::size_t bytes, const char *what) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes == 0)
    return;
  std::fprintf(stderr, "emulated device: misaligned address of %s\n", what);
  std::abort();
}

/// The operands of this warp's lanes. Valid until the lane's next call with this type; the second set of slots is for
/// lanes that are ahead.
template <class T>
const T *showToWarp(const T &mine) {
  static T shown[maxThreads / lanesOfWarp][2][lanesOfWarp];
  static bool second[maxThreads];
  const int thread = threadOfBlock();
  bool &which = second[thread];
  which = !which;
  T *const places = shown[thread / lanesOfWarp][which ? 1 : 0];
  places[thread % lanesOfWarp] = mine;
  __syncwarp();
  return places;
}

/// The half of a register that holds the element with index `index`; Half has `bits` and converts to float.
template <class Half>
float elementOf(std::uint32_t pair, int index) {
  Half half;
  half.bits = static_cast<std::uint16_t>(index % 2 ? pair >> 16 : pair);
  return static_cast<float>(half);
}

struct MmaOperands {
  std::uint32_t left[4], right[2];
};

template <class Half>
float leftElement(const MmaOperands *lanes, int row, int column) {
  const int lane = row % 8 * 4 + column % 8 / 2, part = row / 8 + 2 * (column / 8);
  return elementOf<Half>(lanes[lane].left[part], column);
}

template <class Half>
float rightElement(const MmaOperands *lanes, int row, int column) {
  return elementOf<Half>(lanes[column * 4 + row % 8 / 2].right[row / 8], row);
}

/// mma.sync.m16n8k16
template <class Half>
void multiplyAdd(float (&sums)[4], const std::uint32_t (&left)[4], const std::uint32_t (&right)[2]) {
  const MmaOperands *const lanes = showToWarp(MmaOperands{{left[0], left[1], left[2], left[3]}, {right[0], right[1]}});
  const int group = laneOfThread() / 4, inGroup = laneOfThread() % 4;
  for (int i = 0; i < 4; ++i) {
    const int row = group + 8 * (i / 2), column = 2 * inGroup + i % 2;
    double sum = sums[i];
    for (int k = 0; k < 16; ++k)
      sum += static_cast<double>(leftElement<Half>(lanes, row, k)) * rightElement<Half>(lanes, k, column);
    sums[i] = static_cast<float>(sum);
  }
}

inline std::uint16_t elementAt(const void *row, int index) {
  std::uint16_t bits;
  std::memcpy(&bits, static_cast<const std::byte *>(row) + 2 * index, sizeof bits);
  return bits;
}

/// ldmatrix.x4
inline void loadMatrices(std::uint32_t (&pairs)[4], const void *row) {
  checkAligned(row, 16, "a row of a matrix");
  const void *const *const rows = showToWarp(row);
  const int group = laneOfThread() / 4, inGroup = laneOfThread() % 4;
  for (int m = 0; m < 4; ++m) {
    const void *const from = rows[8 * m + group];
    pairs[m] = elementAt(from, 2 * inGroup) | std::uint32_t{elementAt(from, 2 * inGroup + 1)} << 16;
  }
  __syncwarp(); // later writes follow all reads
}

/// ldmatrix.x4.trans
inline void loadMatricesTransposed(std::uint32_t (&pairs)[4], const void *row) {
  checkAligned(row, 16, "a row of a matrix");
  const void *const *const rows = showToWarp(row);
  const int group = laneOfThread() / 4, inGroup = laneOfThread() % 4;
  for (int m = 0; m < 4; ++m)
    pairs[m] = elementAt(rows[8 * m + 2 * inGroup], group) |
               std::uint32_t{elementAt(rows[8 * m + 2 * inGroup + 1], group)} << 16;
  __syncwarp(); // later writes follow all reads
}

struct PendingCopy {
  void *to;
  const void *from; ///< null: zeros
  int bytes;
  void run() const {
    if (from)
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
    else
      std::memset(to, 0, static_cast<std::size_t>(bytes));
  }
};

inline std::vector<PendingCopy> &pendingCopies() {
  static std::vector<PendingCopy> ofThreads[maxThreads];
  return ofThreads[threadOfBlock()];
}

/// cp.async
inline void startCopy(void *to, const void *from, int bytes) {
  checkAligned(to, static_cast<std::size_t>(bytes), "a copy's target");
  checkAligned(from, static_cast<std::size_t>(bytes), "a copy's source");
  static std::uint32_t state = 1;
  state = state * 1664525u + 1013904223u;
  const PendingCopy copy{to, from, bytes};
  if (state >> 31)
    pendingCopies().push_back(copy);
  else
    copy.run();
}

inline void waitForCopies() {
  for (const PendingCopy &copy : pendingCopies())
    copy.run();
  pendingCopies().clear();
}

} // namespace fsdpc::emulated
