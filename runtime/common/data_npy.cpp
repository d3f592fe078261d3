#include "runtime/common/checked.h"
#include "runtime/common/data_formats.h"

#include <algorithm>
#include <charconv>

namespace fsdpc::rt {
namespace {

struct NpyHeader {
  std::string descr;
  bool fortranOrder = false;
  std::vector<std::int64_t> dims;
  std::int64_t offsetBytes = 0;
};

/// The header is a Python dict literal of exactly three keys. No other Python syntax is accepted.
class NpyDictReader {
public:
  NpyDictReader(std::string_view text, const InputFile &file) : text(text), file(file) {}

  void read(NpyHeader &header) {
    bool seen[3] = {};
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      const int which = key == "descr" ? 0 : key == "fortran_order" ? 1 : key == "shape" ? 2 : -1;
      if (which < 0 || seen[which])
        fail("unexpected key '" + key.substr(0, 40) + "'");
      seen[which] = true;
      expect(':');
      if (which == 0)
        header.descr = quoted();
      else if (which == 1)
        header.fortranOrder = boolean();
      else
        header.dims = tuple();
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skipSpace();
    if (at != text.size() || !seen[0] || !seen[1] || !seen[2])
      fail("expected descr, fortran_order and shape");
  }

private:
  [[noreturn]] void fail(const std::string &what) const {
    throw Failure(ExitCode::corrupt, file.path() + ": header byte " + std::to_string(at) + ": " + what);
  }
  void skipSpace() {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\n'))
      ++at;
  }
  bool accept(char c) {
    skipSpace();
    if (at >= text.size() || text[at] != c)
      return false;
    ++at;
    return true;
  }
  void expect(char c) {
    if (!accept(c))
      fail(std::string("expected '") + c + "'");
  }
  std::string quoted() {
    expect('\'');
    const auto end = text.find('\'', at);
    if (end == std::string_view::npos)
      fail("unterminated string");
    const std::string result(text.substr(at, end - at));
    at = end + 1;
    return result;
  }
  bool boolean() {
    skipSpace();
    for (const std::string_view word : {"True", "False"})
      if (text.substr(at, word.size()) == word) {
        at += word.size();
        return word == "True";
      }
    fail("expected True or False");
  }
  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> values;
    expect('(');
    while (!accept(')')) {
      skipSpace();
      std::int64_t value = 0;
      const auto result = std::from_chars(text.data() + at, text.data() + text.size(), value);
      if (result.ec != std::errc() || value < 0)
        fail("expected a dimension");
      at = static_cast<std::size_t>(result.ptr - text.data());
      values.push_back(value);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return values;
  }

  std::string_view text;
  const InputFile &file;
  std::size_t at = 0;
};

/// Of the file of `bytes` at `at`.
NpyHeader readNpyHeader(const InputFile &file, std::int64_t at, std::int64_t bytes) {
  unsigned char start[12] = {};
  const std::string where = file.path() + ": byte " + std::to_string(at) + ": ";
  if (bytes < 12)
    throw Failure(ExitCode::corrupt, where + "too short for an npy file");
  file.read(at, start, sizeof start);
  if (std::string_view(reinterpret_cast<const char *>(start), 6) != "\x93NUMPY" || start[6] < 1 || start[6] > 3)
    throw Failure(ExitCode::corrupt, where + "not the magic of an npy file of version 1 to 3");
  const bool wide = start[6] > 1;
  std::int64_t length = start[8] | start[9] << 8;
  if (wide)
    length |= std::int64_t{start[10]} << 16 | std::int64_t{start[11]} << 24;
  const std::int64_t begin = wide ? 12 : 10;
  if (length > bytes - begin || length > (1 << 20))
    throw Failure(ExitCode::corrupt, file.path() + ": byte " + std::to_string(at + 8) + ": header length " +
                                         std::to_string(length) + " does not fit the file");
  std::string text(static_cast<std::size_t>(length), '\0');
  file.read(at + begin, text.data(), length);
  NpyHeader header;
  NpyDictReader(text, file).read(header);
  header.offsetBytes = at + begin + length;
  return header;
}

ElementType npyType(const NpyHeader &header, const std::string &path) {
  static constexpr std::pair<std::string_view, ElementType> types[] = {
      {"<f8", ElementType::f64}, {"<f4", ElementType::f32}, {"<f2", ElementType::f16}, {"<i8", ElementType::i64},
      {"<i4", ElementType::i32}, {"<i2", ElementType::i16}, {"|i1", ElementType::i8},  {"<u8", ElementType::u64},
      {"<u4", ElementType::u32}, {"<u2", ElementType::u16}, {"|u1", ElementType::u8},  {"|b1", ElementType::boolean}};
  for (const auto &[descr, type] : types)
    if (header.descr == descr)
      return type;
  throw Failure(ExitCode::corrupt, path + ": element type '" + header.descr.substr(0, 40) +
                                       "' is not supported (little-endian numbers and booleans are)");
}

} // namespace

NpyArray readNpyArray(const InputFile &file, std::int64_t at, std::int64_t bytes) {
  const NpyHeader header = readNpyHeader(file, at, bytes);
  if (header.fortranOrder)
    throw Failure(ExitCode::corrupt, file.path() + ": is in Fortran order; save it with numpy.ascontiguousarray");
  NpyArray array{npyType(header, file.path()), header.dims, header.offsetBytes};
  std::int64_t expected = byteSize(array.type);
  for (const std::int64_t dim : header.dims)
    expected = checkedMultiply(expected, dim, file.path());
  expected = checkedAdd(expected, header.offsetBytes - at, file.path());
  if (bytes != expected)
    throw Failure(ExitCode::corrupt, file.path() + ": byte " + std::to_string(at) + ": " + std::to_string(bytes) +
                                         " bytes, the header makes it " + std::to_string(expected));
  return array;
}

static void addNpyFile(Dataset &data, const std::string &name, const std::string &path) {
  const InputFile &file = data.files.emplace_back(path);
  const NpyArray array = readNpyArray(file, 0, file.sizeBytes());
  if (array.dims.empty())
    throw Failure(ExitCode::corrupt, path + ": is a scalar; dim 0 is the sample");
  data.addExtent(name, array.type, {array.dims.begin() + 1, array.dims.end()}, data.files.size() - 1, array.offsetBytes,
                 array.dims[0]);
}

void openNpyData(Dataset &data, const std::string &pattern) {
  std::size_t begin = 0;
  while (begin <= pattern.size()) {
    const std::size_t end = std::min(pattern.find(',', begin), pattern.size());
    const std::string part = pattern.substr(begin, end - begin);
    const std::size_t equals = part.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == part.size())
      throw Failure(ExitCode::usage, "'" + part + "': npy files are given as INPUT=FILE.npy,labels=FILE.npy");
    const std::string name = part.substr(0, equals);
    if (data.find(name))
      throw Failure(ExitCode::usage, "'" + pattern + "' gives two files for " + name);
    for (const std::string &path : expandGlob(part.substr(equals + 1)))
      addNpyFile(data, name, path);
    begin = end + 1;
  }
}

} // namespace fsdpc::rt
