#include "runtime/common/event_file.h"

#include "runtime/common/file.h"
#include "runtime/common/wire_format.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <unistd.h>

namespace fsdpc::rt {
namespace {

constexpr std::array<std::uint32_t, 256> makeCrcTable() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit)
      crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    table[i] = crc;
  }
  return table;
}

/// The form of a CRC that records hold.
std::uint32_t masked(std::uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

template <class T>
std::string bytesOf(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

/// Event.wall_time
std::string now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return key(1, Wire::fixed64) + bytesOf(std::chrono::duration<double>(since).count());
}

std::string fileName() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return "events.out.tfevents." + std::to_string(seconds) + "." + host + "." + std::to_string(::getpid());
}

} // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> table = makeCrcTable();
  std::uint32_t crc = ~0u;
  for (const char byte : bytes)
    crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~crc;
}

EventFile::EventFile(const std::string &folder, int rank) {
  if (folder.empty() || rank != 0)
    return;
  makeFolders(folder);
  path = folder + "/" + fileName();
  file = std::fopen(path.c_str(), "we");
  if (!file)
    throw Failure(ExitCode::storage, path + ": cannot create: " + std::strerror(errno));
  write(now() + delimited(3, "brain.Event:2"));
  flush();
}

EventFile::~EventFile() {
  if (file)
    std::fclose(file);
}

void EventFile::add(std::string_view name, std::int64_t step, double value) {
  if (!file)
    return;
  const std::string scalar = delimited(1, name) + key(2, Wire::fixed32) + bytesOf(static_cast<float>(value));
  write(now() + key(2, Wire::varint) + varint(static_cast<std::uint64_t>(step)) + delimited(5, delimited(1, scalar)));
}

void EventFile::flush() {
  if (file && std::fflush(file) != 0)
    endHere();
}

void EventFile::write(const std::string &event) {
  const std::string length = bytesOf(static_cast<std::uint64_t>(event.size()));
  const std::string record = length + bytesOf(masked(crc32c(length))) + event + bytesOf(masked(crc32c(event)));
  if (file && std::fwrite(record.data(), 1, record.size(), file) != record.size())
    endHere();
}

void EventFile::endHere() {
  std::fprintf(stderr, "fsdpc: warning: %s: cannot write: %s; the file ends here\n", path.c_str(),
               std::strerror(errno));
  std::fclose(file);
  file = nullptr;
}

} // namespace fsdpc::rt
