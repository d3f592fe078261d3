// "Did you mean": finds the nearest name in a list.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace fsdpc::rt {

/// The number of insertions, deletions, substitutions and swaps of neighbours between two words.
inline std::size_t editDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> twoAbove, above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j)
    above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], twoAbove[j - 2] + 1);
    }
    twoAbove = above;
    above = row;
  }
  return above[b.size()];
}

/// The nearest name; or, if none is near (more than a third of the word differs), the shortest one that begins with the
/// word; or "".
inline std::string nearestName(std::string_view word, const std::vector<std::string> &names) {
  word = word.substr(0, 100);
  std::size_t best = std::max<std::size_t>(2, word.size() / 3) + 1;
  std::string nearest, completed;
  for (const std::string &name : names) {
    if (const std::size_t distance = editDistance(word, name); distance < best) {
      best = distance;
      nearest = name;
    }
    if (word.size() >= 3 && name.starts_with(word) && (completed.empty() || name.size() < completed.size()))
      completed = name;
  }
  return nearest.empty() ? completed : nearest;
}

/// "; did you mean 'x'?" for the nearest name, or "" if none is near.
inline std::string didYouMean(std::string_view word, const std::vector<std::string> &names,
                              std::string_view prefix = "") {
  const std::string nearest = nearestName(word, names);
  return nearest.empty() ? "" : "; did you mean '" + std::string(prefix) + nearest + "'?";
}

} // namespace fsdpc::rt
