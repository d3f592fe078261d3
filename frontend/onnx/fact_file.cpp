#include "frontend/onnx/fact_file.h"

#include "frontend/onnx/model.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/xxhash.h"

namespace fsdpc {

namespace {

/// The number changes with the line format and with every change of what a fact means, the digests included.
constexpr llvm::StringLiteral title = "fsdpc facts of weights 1\n";

std::string header(llvm::StringRef path, const FileState &state) {
  return (title + path + "\n" + llvm::Twine(state.sizeBytes) + " " + llvm::Twine(state.modifiedNanoseconds) + "\n")
      .str();
}

std::string checksum(llvm::StringRef text) { return std::to_string(llvm::xxh3_64bits(text)) + "\n"; }

uint64_t flagsOf(const TensorFacts &facts) {
  return uint64_t(facts.isUniform) | uint64_t(facts.isMask) << 1 | uint64_t(facts.varies) << 2 |
         uint64_t(facts.ascends) << 3 | uint64_t(facts.descends) << 4;
}

void setFlags(TensorFacts &facts, uint64_t flags) {
  facts.isUniform = flags & 1;
  facts.isMask = flags >> 1 & 1;
  facts.varies = flags >> 2 & 1;
  facts.ascends = flags >> 3 & 1;
  facts.descends = flags >> 4 & 1;
}

std::string line(const TensorPlace &place, const TensorFacts &facts) {
  std::string text = std::to_string(place.offsetBytes) + " " + std::to_string(place.onnxType) + " " +
                     std::to_string(place.elements) + " " + std::to_string(place.rows) + " " +
                     std::to_string(facts.known);
  for (uint64_t number : {facts.first, facts.last, flagsOf(facts), facts.digest.low, facts.digest.high,
                          facts.digestOfTranspose.low, facts.digestOfTranspose.high})
    text += " " + std::to_string(number);
  return text + "\n";
}

/// Returns false if the text is no line.
bool readLine(llvm::StringRef text, FactFile &file) {
  TensorPlace place;
  int64_t known = 0;
  uint64_t flags = 0;
  TensorFacts facts;
  auto read = [&](auto &number) {
    text = text.ltrim(' ');
    return !text.consumeInteger(10, number);
  };
  const bool isRead = read(place.offsetBytes) && read(place.onnxType) && read(place.elements) && read(place.rows) &&
                      read(known) && read(facts.first) && read(facts.last) && read(flags) && read(facts.digest.low) &&
                      read(facts.digest.high) && read(facts.digestOfTranspose.low) &&
                      read(facts.digestOfTranspose.high) && text.empty();
  const std::optional<DType> dtype = dtypeOf(place.onnxType);
  if (!isRead || !dtype || known < 0 || known > place.elements || place.rows < 0)
    return false;
  facts.dtype = *dtype;
  facts.elements = place.elements;
  facts.rows = place.rows;
  facts.known = known;
  setFlags(facts, flags);
  file.facts[place] = facts;
  return true;
}

} // namespace

std::optional<FileState> stateOf(llvm::StringRef path) {
  llvm::sys::fs::file_status status;
  if (llvm::sys::fs::status(path, status))
    return std::nullopt;
  return FileState{status.getSize(), status.getLastModificationTime().time_since_epoch().count()};
}

std::string toText(llvm::StringRef path, const FactFile &file) {
  std::string text = header(path, file.state);
  for (const auto &[place, facts] : file.facts)
    text += line(place, facts);
  return text + checksum(text);
}

std::optional<FactFile> fromText(llvm::StringRef text, llvm::StringRef path, const FileState &state) {
  const size_t end = text.rtrim('\n').rfind('\n');
  if (end == llvm::StringRef::npos || text.drop_front(end + 1) != checksum(text.take_front(end + 1)))
    return std::nullopt;
  llvm::StringRef lines = text.take_front(end + 1);
  if (!lines.consume_front(header(path, state)))
    return std::nullopt;
  FactFile file{state, {}};
  while (!lines.empty()) {
    auto [first, rest] = lines.split('\n');
    if (!readLine(first, file))
      return std::nullopt;
    lines = rest;
  }
  return file;
}

} // namespace fsdpc
