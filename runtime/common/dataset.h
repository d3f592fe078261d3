// A data set: named fields. Each is a sequence of samples in one or more files, read in slices.
//
// In a file the samples of a field are contiguous from some byte on, or apart. Data sets are never loaded into memory
// as a whole. Formats are recognised by extension or magic number:
//
//   safetensors  fields are the tensors, dim 0 is the sample; several files are read as one, in the order of
//                their names. Samples of unequal length: the tensor X has one dim and X.offsets, I64, the n + 1
//                positions in it where the n samples begin and the last one ends
//   tokens       llm.c .bin, fields `tokens` (the first T of T + 1 tokens) and `labels` (the last T); sample s
//                starts at token s T
//   idx          fields `images` (float32, /255, then (x - mean) / std) and `labels`
//   npy          one field per `name=FILE.npy`
//   tar          WebDataset: a sample is the members KEY.x.npy, KEY.y.npy and KEY.cls with the same KEY
//
// Several patterns, separated by commas, are one data set. With weights, "a-*.bin:0.7,b.bin:0.3", they are sources that
// training mixes (sample_order.h).
//
// All failures are Failure{corrupt} naming file and offset, except wrong options (Failure{usage}).
#pragma once

#include "runtime/common/element_type.h"
#include "runtime/common/file.h"
#include "runtime/common/sample_order.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fsdpc::rt {

/// Samples [firstSample, firstSample + samples) of a field, contiguous in a file.
struct Extent {
  std::size_t file = 0; ///< index into Dataset::files
  std::int64_t offsetBytes = 0;
  std::int64_t firstSample = 0;
  std::int64_t samples = 0;
  std::int64_t boundsBytes = -1; ///< ragged: where the positions of its samples are in the file
};

struct Field {
  std::string name;
  ElementType type = ElementType::f32; ///< in the file
  std::vector<std::int64_t> sampleDims;
  std::int64_t sampleElements = 1; ///< ragged: of the longest sample
  std::int64_t samples = 0;
  std::vector<Extent> extents;
  std::vector<float> lookup; ///< u8 images: the value each byte stands for; empty otherwise
  bool anyShape = false;     ///< only the number of elements must match the input
  bool ragged = false;       ///< samples have one dim, of unequal length
  std::int64_t longest = 0;  ///< ragged: the sample of sampleElements
  std::int64_t shortestElements = 0;
  std::vector<std::int64_t> numbers; ///< of samples that files have as text; empty otherwise

  std::int64_t sampleBytes() const { return sampleElements * byteSize(type); }
  /// "labels I64[24]": name, type and shape of one sample.
  std::string text() const;
};

/// Where the elements of a sample are.
struct SamplePlace {
  std::size_t file = 0;
  std::int64_t offsetBytes = 0;
  std::int64_t elements = 0;
};

class Dataset {
public:
  std::vector<InputFile> files;
  std::vector<Field> fields;
  std::string pattern;      ///< as given, for messages
  std::string defaultField; ///< feeds the last unbound input; "" if the format has no main field
  bool holdsTokens = false; ///< `labels` are `tokens` shifted by one
  /// Of mixed sources, the end of each one's files and its weight. Empty: one source.
  std::vector<std::pair<std::size_t, double>> sourceEnds;

  const Field *find(std::string_view name) const;
  std::string fieldList() const; ///< "x F32[32], labels I64[]"
  /// True for labels that are the next tokens of those in the sample.
  bool isShifted(const Field &field) const { return holdsTokens && field.name == "labels"; }

  /// Throws Failure{corrupt} if the file of a ragged field has changed.
  SamplePlace placeOf(const Field &field, std::int64_t sample) const;
  /// The elements of samples [first, first + lengths.size()) of a ragged field. Throws like placeOf().
  void readLengths(const Field &field, std::int64_t first, std::span<std::int64_t> lengths) const;
  /// Reads samples [first, first + count) of `field` as stored in the file. Not for ragged fields, whose samples are at
  /// placeOf().
  void read(const Field &field, std::int64_t first, std::int64_t count, std::byte *destination) const;
  /// Asks the system to read these samples before they are needed. May wait for the disk.
  void readAhead(const Field &field, std::int64_t first, std::int64_t count) const;
  /// The sources of a field's samples; a file is a shard.
  std::vector<SampleSource> sourcesOf(const Field &field) const;
  /// "F.bin: byte 1060 (sample 2 of labels)"
  std::string where(const Field &field, std::int64_t sample, std::int64_t element) const;

  /// Adds samples to a field and creates the field if needed. Called by the formats. `sampleDims` and `type` must match
  /// an existing field. The samples must be inside the file.
  void addExtent(const std::string &name, ElementType type, const std::vector<std::int64_t> &sampleDims,
                 std::size_t file, std::int64_t offsetBytes, std::int64_t samples);
  /// Adds a sample that is one number, which the file has as text at `offsetBytes`.
  void addNumber(const std::string &name, std::int64_t number, std::size_t file, std::int64_t offsetBytes);
  /// Adds samples of unequal length: `elements` in all, from `offsetBytes` on; `samples` + 1 positions from
  /// `boundsBytes` on, ascending from 0 to `elements`.
  void addRagged(const std::string &name, ElementType type, std::size_t file, std::int64_t offsetBytes,
                 std::int64_t elements, std::int64_t boundsBytes, std::int64_t samples);

private:
  Field &fieldFor(const std::string &name, ElementType type, const std::vector<std::int64_t> &sampleDims,
                  std::size_t file, bool ragged);
};

struct DataRequest {
  std::string pattern;                                             ///< as Dataset describes it
  std::string format = "auto";                                     ///< auto, safetensors, tokens, idx, npy
  std::int64_t tokensPerSample = 0;                                ///< T; 0: unknown which input reads tokens
  std::optional<std::pair<float, float>> normalize = std::nullopt; ///< mean, std; images only
  std::string integerInputs = "none";                              ///< inputs that tokens could feed, for messages
};

Dataset openDataset(const DataRequest &request);

} // namespace fsdpc::rt
