// The fields that are rewritten, by their numbers in onnx.proto: ModelProto.graph = 7, GraphProto.initializer = 5,
// TensorProto.external_data = 13, StringStringEntryProto.key = 1 and .value = 2.
#include "runtime/common/onnx_file.h"

#include "runtime/common/failure.h"
#include "runtime/common/file.h"
#include "runtime/common/wire_format.h"

#include <functional>

namespace fsdpc::rt {
namespace {

constexpr std::uint32_t graphField = 7, initializerField = 5, externalDataField = 13, keyField = 1, valueField = 2;

/// One field of a message of Protocol Buffers: its tag, and the bytes of its value with their length, if it states one.
struct WireField {
  std::uint32_t number = 0;
  bool isDelimited = false;
  std::string_view all;   ///< tag, length and value
  std::string_view value; ///< of a delimited field
};

class WireReader {
public:
  WireReader(std::string_view message, const std::string &where) : rest(message), where(where) {}

  bool atEnd() const { return rest.empty(); }
  WireField next() {
    const std::string_view begin = rest;
    const std::uint64_t tag = readVarint();
    WireField field;
    field.number = static_cast<std::uint32_t>(tag >> 3);
    switch (static_cast<Wire>(tag & 7)) {
    case Wire::varint: readVarint(); break;
    case Wire::fixed64: take(8); break;
    case Wire::delimited:
      field.isDelimited = true;
      field.value = take(readVarint());
      break;
    case Wire::fixed32: take(4); break;
    default: fail();
    }
    field.all = begin.substr(0, begin.size() - rest.size());
    return field;
  }

private:
  std::uint64_t readVarint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<std::uint8_t>(take(1)[0]);
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80)
        return value;
    }
    fail();
  }

  std::string_view take(std::uint64_t bytes) {
    if (bytes > rest.size())
      fail();
    const std::string_view taken = rest.substr(0, bytes);
    rest.remove_prefix(bytes);
    return taken;
  }

  [[noreturn]] void fail() const { throw Failure(ExitCode::corrupt, where + ": is not an ONNX model"); }

  std::string_view rest;
  const std::string &where;
};

/// The message with each value of the field `number` replaced.
std::string replaced(std::string_view message, std::uint32_t number, const std::string &where,
                     const std::function<std::string(std::string_view)> &replace) {
  std::string result;
  for (WireReader reader(message, where); !reader.atEnd();) {
    const WireField field = reader.next();
    if (field.number == number && field.isDelimited)
      result += delimited(number, replace(field.value));
    else
      result += field.all;
  }
  return result;
}

bool isLocation(std::string_view entry, const std::string &where) {
  bool result = false;
  for (WireReader reader(entry, where); !reader.atEnd();)
    if (const WireField field = reader.next(); field.number == keyField && field.isDelimited)
      result = field.value == "location";
  return result;
}

} // namespace

std::string onnxDataPath(const std::string &path) { return path + ".data"; }

std::string fileNameOf(const std::string &path) { return path.substr(path.rfind('/') + 1); }

std::string withDataFile(std::string_view model, const std::string &from, const std::string &to,
                         const std::string &where) {
  const auto value = [&](std::string_view old) { return old == from ? to : std::string(old); };
  const auto entry = [&](std::string_view old) {
    return isLocation(old, where) ? replaced(old, valueField, where, value) : std::string(old);
  };
  const auto tensor = [&](std::string_view old) { return replaced(old, externalDataField, where, entry); };
  const auto graph = [&](std::string_view old) { return replaced(old, initializerField, where, tensor); };
  return replaced(model, graphField, where, graph);
}

void requireOnnxWritable(const ProgramInfo &program, const std::string &path) {
  if (program.onnxDataBytes == 0)
    throw Failure(ExitCode::usage,
                  "--save_onnx: this program was compiled from a stage without the model.onnx of its output folder");
  requireWritable(path);
  requireWritable(onnxDataPath(path));
}

} // namespace fsdpc::rt
