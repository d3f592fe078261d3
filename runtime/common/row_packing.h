// Which samples of unequal length share a row.
//
// A program has one compiled length, so a sample that is alone in its row leaves the rest of it to padding. Packed, a
// row holds as many samples as fit. The packing is a matter of the data alone: it is the same for every world size, in
// every epoch and after a resume, and what shuffles, mixes and counts samples takes rows instead.
//
// Consecutive samples, about as many as fill `windowRows` rows, are sorted into buckets by length. A row takes the
// longest sample that is left and then, as long as there is one, the longest that still fits. That is first-fit
// decreasing, which needs at most 11/9 of the fewest possible rows of a window, plus one (Dosa, "The Tight Bound of
// First Fit Decreasing Bin-Packing Algorithm Is FFD(I) <= 11/9 OPT(I) + 6/9", 2007). The rows of a window then stand in
// the order of their first samples, so that data which is not shuffled is taken roughly in its own order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fsdpc::rt {

/// Holds 4 bytes per sample and 4 per row.
class RowPacking {
public:
  static constexpr std::int64_t windowRows = 512;
  /// Samples and rows are counted in 32 bits.
  static constexpr std::int64_t maxSamples = (std::int64_t{1} << 32) - 1;

  /// `rowElements`: the compiled length. `samples`: how many there will be, at most maxSamples.
  RowPacking(std::int64_t rowElements, std::int64_t samples) : rowElements(rowElements) {
    packed.reserve(static_cast<std::size_t>(samples));
  }

  /// The next sample of the data set. Of a longer one a row takes the first `rowElements`.
  void add(std::int64_t elements);
  /// The samples so far share no row with later ones. Called once more after the last sample.
  void endShard();

  std::int64_t elementsOfRow() const { return rowElements; }
  std::int64_t rows() const { return static_cast<std::int64_t>(starts.size()) - 1; }
  /// Of all rows, the elements that hold a sample.
  std::int64_t filledElements() const { return filled; }
  /// The samples of a row, ascending.
  std::span<const std::uint32_t> samplesOf(std::int64_t row) const;

private:
  struct Waiting {
    std::int64_t elements;
    std::uint32_t sample;
  };

  void packWindow();

  std::int64_t rowElements, filled = 0;
  std::vector<Waiting> window; ///< not packed yet
  std::int64_t windowElements = 0;
  std::vector<std::uint32_t> packed; ///< the samples, row after row
  std::vector<std::uint32_t> starts = {0};
};

} // namespace fsdpc::rt
