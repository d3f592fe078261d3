// The generator's random numbers: the same for a seed on every machine and with every standard library.
#pragma once

#include <cstdint>
#include <string_view>

namespace fsdpc {

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
class Random {
public:
  explicit Random(uint64_t seed) : state(seed) {}
  /// A stream for a named purpose. Streams of different names are independent.
  Random(uint64_t seed, std::string_view purpose) : state(seed) {
    for (char c : purpose)
      state = (state ^ static_cast<uint8_t>(c)) * 0x100000001b3;
    next();
  }

  uint64_t next() {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  /// In [0, count).
  int64_t below(int64_t count) { return static_cast<int64_t>(next() % static_cast<uint64_t>(count)); }
  /// In [low, high].
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool chance(double probability) { return unit() < probability; }
  double real(double low, double high) { return low + (high - low) * unit(); }
  template <class Container>
  auto pick(const Container &from) {
    return *(from.begin() + below(static_cast<int64_t>(from.size())));
  }
  template <class T>
  T pick(std::initializer_list<T> from) {
    return *(from.begin() + below(static_cast<int64_t>(from.size())));
  }

private:
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  uint64_t state;
};

} // namespace fsdpc
