// Feeds samples from a data set into the input buffers of a program: binds inputs to fields, converts, and checks
// ranges.
//
// An input is fed by the first of these that applies: --fill; --map; the field of the same name; and, if it is the only
// input left, the main field of the format (tokens, images), unless --map assigns that field to another input. An input
// that nothing feeds is an error. With a token file, labels are the tokens that follow the sample, but labels that the
// graph shifts itself (InputInfo::shiftsItself) are the tokens of the sample. The runtime computes sample weights.
//
// Samples of unequal length are padded at their end: with 0, and with the ignored label. With samplePacking several of
// them share a row (row_packing.h), each as a document of its own. A row of the micro-batch, here and for those that
// order, count and shuffle, then is such a row and not a sample.
#pragma once

#include "runtime/common/dataset.h"
#include "runtime/common/row_packing.h"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace fsdpc::rt {

struct FeedOptions {
  std::vector<std::string> maps; ///< "INPUT=FIELD"
  /// "INPUT=VALUE": 0; 1; iota, which counts along the last axis; mask, 1 where a sample of unequal length has elements
  /// and 0 where it is padded; positions, which count from 0 in every document; documents, the number of the document.
  std::vector<std::string> fills;
  std::optional<std::int64_t> documentEnd = std::nullopt; ///< the token that ends a document
  bool truncate = false;                                  ///< samples longer than the input
  /// Samples of unequal length share rows. Inputs that --separate_documents adds are filled with documents and
  /// positions, those of the documents of a token file too.
  bool samplePacking = false;
};

/// The inputs that fsdpc --separate_documents adds to a program.
inline constexpr std::string_view documentIdsInput = "document_ids", documentPositionsInput = "document_positions";
inline bool isOfDocuments(const InputInfo &input) {
  return input.name == documentIdsInput || input.name == documentPositionsInput;
}

/// Returns T of the [B, T] input that a token file would feed: the input that --map assigns the tokens to, else the
/// only integer input that --fill and --map do not mention and that is not named `labels`. 0: no such input.
std::int64_t tokensPerSample(const ProgramInfo &program, const FeedOptions &options);
/// Lists the inputs that tokens could feed, for messages: "input_ids I64[16], attention_mask I64[16]".
std::string integerInputs(const ProgramInfo &program);

class BatchFeeder {
public:
  /// Binds every input. Throws Failure{usage} for a bad --map or --fill and, listing both, if inputs have no field.
  /// Throws Failure{corrupt} for fields of another shape, type or number of samples.
  BatchFeeder(const ProgramInfo &program, Dataset data, const FeedOptions &options);

  /// Of which a row of the micro-batch is one: samples, or rows that several share.
  std::int64_t samples() const { return sampleCount; }
  /// Counted as samples() counts.
  std::vector<SampleSource> sources() const { return packing ? packedSources : data.sourcesOf(data.fields[mainField]); }
  bool sharesRows() const { return packing.has_value(); }
  /// What decides the rows besides the data, in front of the text of their order: "rows of 128: ", or "".
  std::string rowsText() const;
  const std::string &source() const { return data.pattern; }

  /// Reads every `worldSize`-th block of the fields whose values have a range, up to `scanLimitBytes` per field and
  /// rank, so that a bad label is found before the first step. Values beyond that are still checked when they are used.
  /// `beat` is called after every block to report progress.
  void checkRanges(int rank, int worldSize, const std::function<void()> &beat = [] {});
  static constexpr std::int64_t scanLimitBytes = std::int64_t{1} << 30;

  enum class Inputs : std::uint8_t { all, ofPrologue };
  /// Fills the inputs of one micro-step. `rows` has one index below samples() per row of the micro-batch. -1 is
  /// padding: zeros, the ignored label and weight 0. Throws Failure{corrupt} for a value out of range.
  void fill(const Context &context, std::span<const std::int64_t> rows, Inputs which = Inputs::all);

  /// Asks the system to read these rows, of which -1 is none, before they are needed. May wait for the disk.
  void readAhead(std::span<const std::int64_t> rows) const;

  bool hasSampleWeight() const { return weighted; }
  /// Notes for the user, one sentence each: inputs fed in an unexpected way, and fields that no input reads.
  const std::vector<std::string> &notes() const { return remarks; }

private:
  enum class Feed : std::uint8_t { field, zeros, ones, iota, mask, positions, documents, weight };
  struct Binding {
    const InputInfo *input;
    Feed feed;
    std::size_t field; ///< index into data.fields when fed by a field, or made of one

    bool isOfField() const {
      return feed == Feed::field || feed == Feed::mask || feed == Feed::positions || feed == Feed::documents;
    }
  };

  void bindFilled(const FeedOptions &options);
  Binding madeOf(const InputInfo &input, Feed feed, const std::string &fill) const;
  void requireOneLength();
  void bindMapped(const FeedOptions &options);
  void bindByName();
  bool bindDocuments(const InputInfo &input);
  void noteUnused();
  void packRows();
  std::int64_t requireRowsToShare() const;
  void packShard(std::int64_t first, std::int64_t end);
  void requireSameLengths(std::int64_t first, std::span<const std::int64_t> lengths) const;
  template <class Visit>
  void forEachSample(const Binding &binding, std::int64_t row, Visit visit) const;
  bool isBound(const InputInfo &input) const;
  void bind(const InputInfo &input, const Field &given);
  std::string missingFields(const std::vector<const InputInfo *> &inputs) const;
  const InputInfo &inputNamed(const std::string &name, const std::string &option) const;
  void bindRagged(const InputInfo &input, const Field &field);
  void scan(const Binding &binding, int rank, int worldSize, const std::function<void()> &beat);
  void scanRagged(const Binding &binding, int rank, int worldSize, const std::function<void()> &beat);
  void convert(const Binding &binding, std::int64_t first, std::int64_t count, std::byte *destination);
  [[noreturn]] void failMisfit(const Binding &binding, std::int64_t sample, std::int64_t element) const;
  void checkValues(const Binding &binding, std::int64_t first, std::int64_t count, const std::byte *values) const;
  void fillInput(const Binding &binding, std::span<const std::int64_t> rows, std::byte *destination);
  void fillField(const Binding &binding, std::span<const std::int64_t> rows, std::byte *destination);
  void fillRagged(const Binding &binding, std::int64_t row, std::byte *destination);
  void fillMask(const Binding &binding, std::int64_t row, std::byte *destination) const;
  void countDocuments(const Binding &binding, std::int64_t row, std::byte *destination);
  void ignoreLabel(const InputInfo &input, std::int64_t element, std::byte *row) const;
  std::string where(const Binding &binding, std::int64_t row, std::int64_t element) const;
  void padRow(const InputInfo &input, std::byte *row) const;

  const ProgramInfo &program;
  Dataset data;
  std::vector<Binding> bindings;
  std::vector<std::byte> buffer; ///< one micro-batch of the largest converted field, as stored in the file
  std::size_t mainField = 0;     ///< one that feeds an input
  std::optional<std::int64_t> documentEnd;
  bool truncate = false;
  bool packsSamples = false;
  std::optional<RowPacking> packing; ///< of samples of unequal length
  std::vector<SampleSource> packedSources;
  std::vector<std::string> remarks;
  std::int64_t sampleCount = 0;
  bool weighted = false;
  bool hasDefault = false; ///< --map has assigned the main field of the format
};

} // namespace fsdpc::rt
