// The sum over ranks that the design asks for, written as its definition: what both targets' sums are compared with.
#pragma once

#include <cstddef>
#include <vector>

namespace fsdpc::rt::test {

/// Of `count` values from `first` on: the largest power of two below the count on the left.
template <class T>
T treeSumOf(const std::vector<T> &values, std::size_t first, std::size_t count) {
  if (count == 1)
    return values[first];
  std::size_t left = 1;
  while (left * 2 < count)
    left *= 2;
  return treeSumOf(values, first, left) + treeSumOf(values, first + left, count - left);
}

} // namespace fsdpc::rt::test
