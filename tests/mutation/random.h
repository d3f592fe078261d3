// Random choices of a mutant, which depend on its seed alone.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

namespace fsdpc::mutation {

class Random {
public:
  explicit Random(uint64_t seed) : engine(seed) {}
  /// In [0, bound). Requires bound > 0. The same on every machine, unlike the standard library's distributions.
  uint64_t below(uint64_t bound) { return engine() % bound; }
  bool coin() { return below(2) == 0; }
  template <class T>
  std::optional<T> pick(const std::vector<T> &from) {
    if (from.empty())
      return std::nullopt;
    return from[below(from.size())];
  }

private:
  std::mt19937_64 engine;
};

} // namespace fsdpc::mutation
