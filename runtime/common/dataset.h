// A data set: named fields. Each is a sequence of equally large samples in one or more files, read in slices.
//
// All supported formats share one layout: in each file the samples of a field are contiguous from some byte on. Data
// sets are never loaded into memory as a whole. Formats are recognised by extension or magic number:
//
//   safetensors  fields are the tensors, dim 0 is the sample; several files are read as one, in the order of
//                their names
//   tokens       llm.c .bin, fields `tokens` (the first T of T + 1 tokens) and `labels` (the last T); sample s
//                starts at token s T
//   idx          fields `images` (float32, /255, then (x - mean) / std) and `labels`
//   npy          one field per `name=FILE.npy`
//
// All failures are Failure{corrupt} naming file and offset, except wrong options (Failure{usage}).
#pragma once

#include "runtime/common/element_type.h"
#include "runtime/common/file.h"

#include <optional>
#include <string>
#include <vector>

namespace fsdpc::rt {

/// Samples [firstSample, firstSample + samples) of a field, contiguous in a file.
struct Extent {
  std::size_t file = 0; ///< index into Dataset::files
  std::int64_t offsetBytes = 0;
  std::int64_t firstSample = 0;
  std::int64_t samples = 0;
};

struct Field {
  std::string name;
  ElementType type = ElementType::f32; ///< in the file
  std::vector<std::int64_t> sampleDims;
  std::int64_t sampleElements = 1;
  std::int64_t samples = 0;
  std::vector<Extent> extents;
  std::vector<float> lookup; ///< u8 images: the value each byte stands for; empty otherwise
  bool anyShape = false;     ///< only the number of elements must match the input

  std::int64_t sampleBytes() const { return sampleElements * byteSize(type); }
  /// "labels I64[24]": name, type and shape of one sample.
  std::string text() const;
};

class Dataset {
public:
  std::vector<InputFile> files;
  std::vector<Field> fields;
  std::string pattern;      ///< as given, for messages
  std::string defaultField; ///< feeds the last unbound input; "" if the format has no main field
  bool holdsTokens = false; ///< `labels` are `tokens` shifted by one

  const Field *find(std::string_view name) const;
  std::string fieldList() const; ///< "x F32[32], labels I64[]"
  /// True for labels that are the next tokens of those in the sample.
  bool isShifted(const Field &field) const { return holdsTokens && field.name == "labels"; }

  /// Reads samples [first, first + count) of `field` as stored in the file.
  void read(const Field &field, std::int64_t first, std::int64_t count, std::byte *destination) const;
  /// "F.bin: byte 1060 (sample 2 of labels)"
  std::string where(const Field &field, std::int64_t sample, std::int64_t element) const;

  /// Adds samples to a field and creates the field if needed. Called by the formats. `sampleDims` and `type` must match
  /// an existing field. The samples must be inside the file.
  void addExtent(const std::string &name, ElementType type, const std::vector<std::int64_t> &sampleDims,
                 std::size_t file, std::int64_t offsetBytes, std::int64_t samples);
};

struct DataRequest {
  std::string pattern;                                             ///< file, glob, or name=FILE.npy,...
  std::string format = "auto";                                     ///< auto, safetensors, tokens, idx, npy
  std::int64_t tokensPerSample = 0;                                ///< T; 0: unknown which input reads tokens
  std::optional<std::pair<float, float>> normalize = std::nullopt; ///< mean, std; images only
  std::string integerInputs = "none";                              ///< inputs that tokens could feed, for messages
};

Dataset openDataset(const DataRequest &request);

} // namespace fsdpc::rt
