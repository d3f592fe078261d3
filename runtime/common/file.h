// Files of a program: reading slices of inputs, and writing outputs that appear whole or not at all.
#pragma once

#include "runtime/common/failure.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fsdpc::rt {

/// A regular file opened for reading by slice. Throws Failure{corrupt} naming the file for everything that goes wrong.
class InputFile {
public:
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(InputFile &&other) noexcept;
  InputFile &operator=(InputFile &&) = delete;

  const std::string &path() const { return name; }
  std::int64_t sizeBytes() const { return size; }
  /// Reads exactly `bytes` at `offsetBytes`; a file that ends before that is a failure. Thread-safe.
  void read(std::int64_t offsetBytes, void *destination, std::int64_t bytes) const;

private:
  std::string name;
  std::int64_t size = 0;
  int descriptor = -1;
};

/// A file of known size that is written under a temporary name beside `path` and renamed by `commit`; destroyed without
/// `commit` it leaves nothing behind. Space is reserved at creation. Throws Failure{storage}.
class OutputFile {
public:
  OutputFile(std::string path, std::int64_t sizeBytes);
  ~OutputFile();
  OutputFile(const OutputFile &) = delete;
  OutputFile &operator=(const OutputFile &) = delete;

  void write(std::int64_t offsetBytes, const void *source, std::int64_t bytes);
  void commit();

private:
  std::string name;
  std::string temporaryName;
  int descriptor = -1;
};

/// Regular files that match a shell pattern, sorted; a name without `*?[` stands for itself. Throws Failure{corrupt}
/// when there is none.
std::vector<std::string> expandGlob(const std::string &pattern);

/// The folder the executable lies in (from /proc/self/exe); OUT of an emitted program.
std::string executableDirectory();

bool fileExists(const std::string &path);
/// The folder part of a path: "." for a bare name.
std::string parentDirectory(const std::string &path);
/// Throws Failure{storage} unless a file could be created at `path`: asked at start, so that a typo does not cost a
/// run.
void requireWritable(const std::string &path);

bool endsWith(std::string_view text, std::string_view suffix);

} // namespace fsdpc::rt
