// Files of a program: reads slices of inputs, and writes outputs that appear complete or not at all.
#pragma once

#include "runtime/common/failure.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fsdpc::rt {

/// A regular file opened for reading in slices. All errors throw Failure{corrupt} with the name of the file.
class InputFile {
public:
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(InputFile &&other) noexcept;
  InputFile &operator=(InputFile &&) = delete;

  const std::string &path() const { return name; }
  std::int64_t sizeBytes() const { return size; }
  /// Reads exactly `bytes` at `offsetBytes`. A file that ends earlier is a failure. Thread-safe.
  void read(std::int64_t offsetBytes, void *destination, std::int64_t bytes) const;
  /// Asks the system to have these bytes in its page cache. May wait for the disk. Changes nothing else.
  void readAhead(std::int64_t offsetBytes, std::int64_t bytes) const;

private:
  std::string name;
  std::int64_t size = 0;
  int descriptor = -1;
};

/// What a file is called until it is complete: a name next to its own, which stays if the process is killed, or none,
/// where the file system can do that.
enum class NameUntilCommit : std::uint8_t { temporary, none };

/// A file of known size. It is written under a temporary name next to `path`, or without a name, and `commit` renames
/// it. If it is destroyed without `commit`, no file remains. Space is reserved at creation. Throws Failure{storage}.
class OutputFile {
public:
  OutputFile(std::string path, std::int64_t sizeBytes, NameUntilCommit until = NameUntilCommit::temporary);
  ~OutputFile();
  OutputFile(const OutputFile &) = delete;
  OutputFile &operator=(const OutputFile &) = delete;

  void write(std::int64_t offsetBytes, const void *source, std::int64_t bytes);
  void commit();
  /// Both are complete on the disk before either has its name.
  static void commitBoth(OutputFile &first, OutputFile &second);

private:
  void finishWriting();
  void takeName();
  void giveName();
  void close();

  std::string name;
  std::string temporaryName;
  int descriptor = -1;
  bool hasName = false; ///< the temporary one
};

/// Creates a folder and those above it. A folder that exists is no error. Throws Failure{storage}, as do the next ones.
void makeFolders(const std::string &path);
/// Writes the entries of a folder to the disk.
void syncFolder(const std::string &path);
/// Renames a folder within its folder, and writes that to the disk.
void renameDurably(const std::string &from, const std::string &to);
/// Deletes a folder of files. One that does not exist is no error.
void removeFolder(const std::string &path);
/// Deletes a file. One that does not exist is no error.
void removeFile(const std::string &path);
/// Writes a file with this text; it appears complete or not at all.
void writeFile(const std::string &path, std::string_view text);
/// The text of a file. Throws Failure{corrupt}.
std::string readFile(const std::string &path);

/// Returns the regular files that match a shell pattern, sorted. A name without `*?[` matches itself. Throws
/// Failure{corrupt} if no file matches.
std::vector<std::string> expandGlob(const std::string &pattern);

/// The folder of the executable (from /proc/self/exe); OUT of an emitted program.
std::string executableDirectory();

bool fileExists(const std::string &path);
bool folderExists(const std::string &path);
/// The folder part of a path: "." for a bare name.
std::string parentDirectory(const std::string &path);
/// Throws Failure{storage} unless a file can be created at `path`. Called at start, so that a typo does not waste a
/// run.
void requireWritable(const std::string &path);

bool endsWith(std::string_view text, std::string_view suffix);

} // namespace fsdpc::rt
