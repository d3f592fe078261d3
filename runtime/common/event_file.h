// Scalars in a file that TensorBoard opens.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace fsdpc::rt {

/// An event file in a folder, made when it is opened. A continued run adds a file: TensorBoard reads all files of a
/// folder. A record that cannot be written is no reason to end a training: the first is reported on stderr, and the
/// file ends there. Format: TFRecords (tensorflow/core/lib/io/record_writer.h) of the protocol buffer Event
/// (tensorflow/core/util/event.proto).
class EventFile {
public:
  /// "": no file, as on other ranks than 0. Throws Failure{storage}.
  EventFile(const std::string &folder, int rank);
  ~EventFile();
  EventFile(const EventFile &) = delete;
  EventFile &operator=(const EventFile &) = delete;

  void add(std::string_view name, std::int64_t step, double value);
  /// Makes what was added visible.
  void flush();

private:
  void write(const std::string &event);
  void endHere();

  std::string path;
  std::FILE *file = nullptr;
};

/// CRC-32C (Castagnoli) of the bytes, as RFC 3720 defines it.
std::uint32_t crc32c(std::string_view bytes);

} // namespace fsdpc::rt
