// Reading and writing safetensors files.
//
// Format: u64 little-endian header length; the header, a JSON object name -> {dtype, shape, data_offsets: [begin,
// end)}, padded with spaces; then the data, row-major, little-endian. The reader is as strict as the reference
// implementation: a header of at most 100 MB that starts with '{', known element types, sizes that agree with shapes,
// and tensors that cover the data section without holes, overlaps or bytes left over. Everything else is
// Failure{corrupt} naming file and tensor.
#pragma once

#include "runtime/common/element_type.h"
#include "runtime/common/file.h"

#include <optional>
#include <string>
#include <vector>

namespace fsdpc::rt {

struct TensorEntry {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> dims;
  std::int64_t elements = 0;
  std::int64_t offsetBytes = 0; ///< in the file
  std::int64_t sizeBytes = 0;
};

class SafetensorsFile {
public:
  explicit SafetensorsFile(std::string path);

  const InputFile &file() const { return input; }
  const std::vector<TensorEntry> &tensors() const { return entries; } ///< sorted by name
  const TensorEntry *find(std::string_view name) const;
  /// A Fingerprint of the header's bytes.
  std::uint64_t headerHash() const { return hashOfHeader; }

private:
  InputFile input;
  std::vector<TensorEntry> entries;
  std::uint64_t hashOfHeader = 0;
};

/// A tensor of a file to be written. The header is known before the first byte of data.
struct TensorSpec {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> dims;
};

/// Writes tensors in any order, in full or by range. Bytes that are never written are zero. The file appears at
/// `commit`. Data is sorted by decreasing element size, then name, so every tensor is aligned to its elements.
class SafetensorsWriter {
public:
  /// Names must be distinct. `format`: noted in the metadata; Hugging Face's readers want "pt".
  SafetensorsWriter(const std::string &path, std::vector<TensorSpec> specs,
                    NameUntilCommit until = NameUntilCommit::temporary, const std::string &format = "");

  std::optional<std::size_t> find(std::string_view name) const;
  std::int64_t sizeBytes(std::size_t tensor) const { return entries[tensor].sizeBytes; }
  void write(std::size_t tensor, const void *data) { writeRange(tensor, 0, data, entries[tensor].sizeBytes); }
  /// `offsetBytes` counts from the start of the tensor.
  void writeRange(std::size_t tensor, std::int64_t offsetBytes, const void *data, std::int64_t bytes);
  void commit() { output->commit(); }
  std::int64_t fileBytes() const { return totalBytes; }
  /// As SafetensorsFile::headerHash.
  std::uint64_t headerHash() const { return hashOfHeader; }

private:
  std::vector<TensorEntry> entries;
  std::int64_t totalBytes = 0;
  std::uint64_t hashOfHeader = 0;
  std::optional<OutputFile> output;
};

/// "[2, 3]"
std::string dimsText(const std::vector<std::int64_t> &dims);
std::vector<std::int64_t> dimsOf(const Shape &shape);

} // namespace fsdpc::rt
