// Tar files as the WebDataset libraries write them.
#include "runtime/common/checked.h"
#include "runtime/common/data_formats.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace fsdpc::rt {
namespace {

constexpr std::int64_t blockBytes = 512;
/// Longer names and texts are not those of a data set.
constexpr std::int64_t largestText = 1 << 16;

struct Member {
  std::string name;
  std::int64_t offsetBytes = 0;
  std::int64_t bytes = 0;
};

/// Reads the members of a tar file in order: POSIX ustar and pax, and GNU's long names.
class TarReader {
public:
  explicit TarReader(const InputFile &file) : file(file) {}

  /// The next regular file; nullopt at the end of the archive.
  std::optional<Member> next() {
    std::string longName;
    while (at < file.sizeBytes()) {
      if (file.sizeBytes() - at < blockBytes)
        fail(at, "the file ends inside a header of 512 bytes");
      file.read(at, header.data(), blockBytes);
      if (std::all_of(header.begin(), header.end(), [](char c) { return c == 0; }))
        return std::nullopt;
      const std::int64_t begin = at + blockBytes, bytes = size();
      if (bytes > file.sizeBytes() - begin)
        fail(at, "the file ends inside this member of " + std::to_string(bytes) + " bytes");
      requireChecksum();
      const char kind = header[156];
      const std::string name = longName.empty() ? plainName() : longName;
      at = begin + (bytes + blockBytes - 1) / blockBytes * blockBytes;
      if (kind == 'L')
        longName = textAt(begin, bytes);
      else if (kind == 'x')
        longName = paxPath(textAt(begin, bytes));
      else if (kind == '0' || kind == '\0')
        return Member{name, begin, bytes};
      else
        longName.clear();
    }
    fail(at, "the file ends before the empty block that ends an archive");
  }

private:
  [[noreturn]] void fail(std::int64_t offsetBytes, const std::string &what) const {
    throw Failure(ExitCode::corrupt, file.path() + ": byte " + std::to_string(offsetBytes) + ": " + what);
  }

  std::string_view text(std::size_t first, std::size_t length) const {
    const std::string_view field(header.data() + first, length);
    return field.substr(0, std::min(field.find('\0'), length));
  }

  std::int64_t octal(std::size_t first, std::size_t length) const {
    std::string_view digits = text(first, length);
    digits.remove_prefix(std::min(digits.find_first_not_of(' '), digits.size()));
    std::int64_t value = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value, 8).ec != std::errc() || value < 0)
      fail(at + static_cast<std::int64_t>(first), "not a tar header: an octal number is expected");
    return value;
  }

  /// Sizes from 8 GiB on are binary, marked by the highest bit.
  std::int64_t size() const {
    if ((static_cast<unsigned char>(header[124]) & 0x80) == 0)
      return octal(124, 12);
    std::int64_t value = 0;
    for (std::size_t i = 128; i < 136; ++i)
      value = static_cast<std::int64_t>(static_cast<std::uint64_t>(value) << 8 | static_cast<unsigned char>(header[i]));
    if (value < 0)
      fail(at + 124, "not a size");
    return value;
  }

  void requireChecksum() const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < header.size(); ++i)
      sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(header[i]);
    if (sum != octal(148, 8))
      fail(at, "not a tar header: its checksum does not match");
  }

  std::string plainName() const {
    const bool isUstar = text(257, 5) == "ustar";
    const std::string_view prefix = isUstar ? text(345, 155) : "";
    return (prefix.empty() ? "" : std::string(prefix) + "/") + std::string(text(0, 100));
  }

  std::string textAt(std::int64_t begin, std::int64_t bytes) const {
    if (bytes > largestText)
      fail(begin, "a name of " + std::to_string(bytes) + " bytes");
    std::string content(static_cast<std::size_t>(bytes), '\0');
    file.read(begin, content.data(), bytes);
    return content.substr(0, content.find('\0'));
  }

  /// Records are "LENGTH KEY=VALUE\n"; "" if none is the path.
  std::string paxPath(std::string_view records) const {
    while (!records.empty()) {
      std::size_t length = 0;
      const char *end = records.data() + records.size();
      const auto [behind, error] = std::from_chars(records.data(), end, length);
      if (error != std::errc() || length == 0 || length > records.size() || behind == end || *behind != ' ')
        fail(at, "not a pax header");
      std::string_view record = records.substr(0, length);
      record.remove_prefix(static_cast<std::size_t>(behind + 1 - records.data()));
      if (record.starts_with("path=") && record.ends_with('\n'))
        return std::string(record.substr(5, record.size() - 6));
      records.remove_prefix(length);
    }
    return "";
  }

  const InputFile &file;
  std::int64_t at = 0;
  std::array<char, blockBytes> header = {};
};

/// A key ends at the first dot behind the last slash.
std::size_t keyLength(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  return std::min(name.find('.', slash == std::string_view::npos ? 0 : slash), name.size());
}

/// The field of a member; "" if it is none.
std::string fieldOf(const InputFile &file, const Member &member, std::string_view extension) {
  for (const char *compressed : {"jpg", "jpeg", "png", "webp", "gif"})
    if (extension == compressed || endsWith(extension, std::string(".") + compressed))
      throw Failure(ExitCode::usage, file.path() + ": byte " + std::to_string(member.offsetBytes) + ": " +
                                         member.name.substr(0, 200) +
                                         " is a compressed image, which programs do not decode; fsdpc.prepare_images "
                                         "does, or store images as .npy");
  if (extension == "cls")
    return "labels";
  if (extension == "npy")
    return "npy";
  return endsWith(extension, ".npy") ? std::string(extension.substr(0, extension.size() - 4)) : "";
}

std::int64_t readClass(const InputFile &file, const Member &member) {
  std::string text(static_cast<std::size_t>(std::min<std::int64_t>(member.bytes, 32)), '\0');
  file.read(member.offsetBytes, text.data(), static_cast<std::int64_t>(text.size()));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' '))
    text.pop_back();
  std::int64_t value = 0;
  const auto [behind, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || behind != text.data() + text.size())
    throw Failure(ExitCode::corrupt, file.path() + ": byte " + std::to_string(member.offsetBytes) + ": " +
                                         member.name.substr(0, 200) + " is not an integer");
  return value;
}

void addMember(Dataset &data, const Member &member, const std::string &field) {
  const std::size_t index = data.files.size() - 1;
  const InputFile &file = data.files[index];
  if (field == "labels") {
    data.addNumber(field, readClass(file, member), index, member.offsetBytes);
    return;
  }
  const NpyArray array = readNpyArray(file, member.offsetBytes, member.bytes);
  data.addExtent(field, array.type, array.dims, index, array.offsetBytes, 1);
}

/// Every sample has the fields of the first one.
void requireEqual(const Dataset &data, const Member &member) {
  for (const Field &field : data.fields)
    if (field.samples != data.fields.front().samples)
      throw Failure(ExitCode::corrupt,
                    data.files.back().path() + ": byte " + std::to_string(member.offsetBytes) + ": the sample before " +
                        member.name.substr(0, 200) + " has no " +
                        (field.samples < data.fields.front().samples ? field.name : data.fields.front().name));
}

} // namespace

void openTarData(Dataset &data, const std::vector<std::string> &paths) {
  for (const std::string &path : paths) {
    TarReader reader(data.files.emplace_back(path));
    std::string key;
    Member last;
    while (const std::optional<Member> member = reader.next()) {
      const std::string_view name = member->name;
      const std::size_t length = keyLength(name);
      const std::string field =
          length < name.size() ? fieldOf(data.files.back(), *member, name.substr(length + 1)) : "";
      if (field.empty())
        continue;
      if (name.substr(0, length) != key)
        requireEqual(data, *member);
      key = name.substr(0, length);
      addMember(data, *member, field);
      last = *member;
    }
    if (!data.fields.empty())
      requireEqual(data, last);
  }
  const auto isMain = [](const Field &field) { return field.name != "labels"; };
  if (std::count_if(data.fields.begin(), data.fields.end(), isMain) == 1)
    data.defaultField = std::find_if(data.fields.begin(), data.fields.end(), isMain)->name;
}

} // namespace fsdpc::rt
