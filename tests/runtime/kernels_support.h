// Shared by the kernel tests: the target whose kernels they call, data without pattern, aligned buffers, and comparison
// with f64.
//
// The tests named kernels_{rows,elements,guard,matmul,scatter}_test.cpp are compiled for the cpu target, and with
// FSDPC_CUDA_KERNELS for the cuda target on the emulated device (tests/emulated) and on a real one (tests/gpu). A call
// has ended when it returns, and host and device share memory. Differences between the targets are in this file. Parts
// that only one target has are tested in kernels_cpu_test.cpp or in tests/emulated.
#pragma once

#include "runtime/common/address.h"
#include "tests/compare/compare.h"

#if defined(FSDPC_CUDA_KERNELS)
#include "runtime/cuda/kernels/kernels.h"
#include "runtime/cuda/kernels/scalar.h"
#else
#include "runtime/cpu/kernels/kernels.h"
#endif

#include <gtest/gtest.h>

#include <cmath>
#include <concepts>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

namespace fsdpc::rt {

/// Scratch limit for the choice of an algorithm by matmuls and convolutions.
inline constexpr std::int64_t plenty = 16 << 20;

#if defined(FSDPC_CUDA_KERNELS)

/// Only the cpu target has threads. All tests share one device.
inline Context contextOf(int = 1) {
  static Device &device = *[] {
    auto *const opened = new Device;
    openDevice(*opened, 0);
    return opened;
  }();
  Context c;
  c.target = &device;
  return c;
}

/// A library picks an algorithm that fits the planned scratch, and requests no size.
template <class Primitive>
std::int64_t scratchBytesOf(const Primitive &) {
  return plenty;
}

#else

inline Context contextOf(int threads = 1) {
  Context c;
  c.threads = threads;
  return c;
}

/// The scratch size that oneDNN reports for a matmul or a convolution.
template <class Primitive>
std::int64_t scratchBytesOf(const Primitive &primitive) {
  return primitive.scratchBytes();
}

#endif

/// The address of a scalar for a kernel, valid during one call.
template <class T>
concept OtherScalar = std::same_as<T, std::int64_t> || std::same_as<T, float> || std::same_as<T, bool>;
#if defined(FSDPC_CUDA_KERNELS)
// A constant of the program is not in device memory.
inline const double *given(const double &value) { return new double(value); }
template <OtherScalar T>
const T *given(const T &value) {
  return new T(value);
}
#else
inline const double *given(const double &value) { return &value; }
template <OtherScalar T>
const T *given(const T &value) {
  return &value;
}
#endif

/// Values in [-1, 1) that depend only on the seed.
inline std::vector<float> numbers(std::int64_t count, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (float &value : values) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    value = static_cast<float>(static_cast<double>(state >> 40) / (1 << 23) - 1);
  }
  return values;
}

/// Largest difference, relative to the largest value (at least 1); infinite where an element is NaN or was not written.
inline double distance(const std::vector<float> &actual, const std::vector<double> &expected) {
  return relativeError(actual, expected, 1);
}

/// Scratch aligned as in a plan of this target, followed by a border that is checked for writes. cuBLASLt refuses
/// scratch with a smaller alignment.
class ScratchBuffer {
public:
#if defined(FSDPC_CUDA_KERNELS)
  static constexpr std::align_val_t alignment{256};
#else
  static constexpr std::align_val_t alignment{64};
#endif
  explicit ScratchBuffer(std::int64_t bytes) : bytes_(bytes) {
    data_.reset(new (alignment) std::byte[static_cast<std::size_t>(bytes + 64)]);
    std::memset(data_.get(), 0xFF,
                static_cast<std::size_t>(bytes)); // NaN as a float: kernels must not read unwritten scratch
    for (int i = 0; i < 64; ++i)
      data_.get()[bytes + i] = std::byte{0x5A};
  }
  Workspace workspace() const { return {data_.get(), bytes_}; }
  bool borderIntact() const {
    for (int i = 0; i < 64; ++i)
      if (data_.get()[bytes_ + i] != std::byte{0x5A})
        return false;
    return true;
  }

private:
  struct Free {
    void operator()(std::byte *data) const { ::operator delete[](data, alignment); }
  };
  std::int64_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

} // namespace fsdpc::rt
