// The definition of the sum over ranks. Tests compare the sums of both targets with it.
#pragma once

#include <cstddef>
#include <vector>

namespace fsdpc::rt::test {

/// The sum of `count` values from `first` on. The left subtree has the largest power of two below the count.
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
