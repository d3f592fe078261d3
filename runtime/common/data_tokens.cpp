#include "runtime/common/checked.h"
#include "runtime/common/data_formats.h"

namespace fsdpc::rt {
namespace {

constexpr std::int64_t headerBytes = 256 * 4;
constexpr std::int32_t magic16 = 20240520;
constexpr std::int32_t magic32 = 20240801;

struct TokenRange {
  ElementType type = ElementType::u16;
  std::int64_t offsetBytes = 0;
  std::int64_t tokens = 0;
};

TokenRange readTokenHeader(const InputFile &file) {
  std::int32_t header[3] = {};
  if (file.sizeBytes() < headerBytes)
    throw Failure(ExitCode::corrupt, file.path() + ": ends at byte " + std::to_string(file.sizeBytes()) +
                                         ", inside the header of 1024 bytes");
  file.read(0, header, sizeof header);
  const bool wide = header[0] == magic32;
  const std::int32_t version = wide ? 7 : 1;
  if (header[1] != version)
    throw Failure(ExitCode::corrupt, file.path() + ": byte 4: version " + std::to_string(header[1]) + ", expected " +
                                         std::to_string(version));
  const TokenRange run{wide ? ElementType::u32 : ElementType::u16, headerBytes, header[2]};
  const std::int64_t expected =
      checkedAdd(headerBytes, checkedMultiply(run.tokens, byteSize(run.type), file.path()), file.path());
  if (file.sizeBytes() != expected)
    throw Failure(ExitCode::corrupt, file.path() + ": byte 8: the header counts " + std::to_string(run.tokens) +
                                         " tokens, a file of " + std::to_string(expected) + " bytes; this one has " +
                                         std::to_string(file.sizeBytes()));
  return run;
}

TokenRange readTokenRange(const InputFile &file, bool headerless) {
  if (hasTokenMagic(file))
    return readTokenHeader(file);
  if (!headerless)
    throw Failure(ExitCode::corrupt, file.path() + ": byte 0: not the magic of a token file (20240520 or 20240801)");
  if (file.sizeBytes() % 2 != 0)
    throw Failure(ExitCode::corrupt, file.path() + ": " + std::to_string(file.sizeBytes()) +
                                         " bytes are not a multiple of 2, the size of a uint16 token");
  return {ElementType::u16, 0, file.sizeBytes() / 2};
}

} // namespace

bool hasTokenMagic(const InputFile &file) {
  std::int32_t magic = 0;
  if (file.sizeBytes() < 4)
    return false;
  file.read(0, &magic, 4);
  return magic == magic16 || magic == magic32;
}

void openTokenData(Dataset &data, const std::vector<std::string> &paths, const DataRequest &request) {
  const std::int64_t tokensPerSample = request.tokensPerSample;
  if (tokensPerSample <= 0)
    throw Failure(ExitCode::usage, paths.front() +
                                       " holds tokens, and nothing says which input takes them. Integer "
                                       "inputs: " +
                                       request.integerInputs +
                                       "; name one of shape [T] with --map INPUT=tokens, and feed the others with " +
                                       "--fill INPUT=1|0|iota");
  for (const std::string &path : paths) {
    const InputFile &file = data.files.emplace_back(path);
    const TokenRange run = readTokenRange(file, request.format == "tokens");
    const std::int64_t samples = run.tokens > 0 ? (run.tokens - 1) / tokensPerSample : 0;
    if (samples == 0)
      throw Failure(ExitCode::corrupt, path + ": " + std::to_string(run.tokens) +
                                           " tokens are less than one sample of " + std::to_string(tokensPerSample) +
                                           " + 1");
    const std::size_t index = data.files.size() - 1;
    data.addExtent("tokens", run.type, {tokensPerSample}, index, run.offsetBytes, samples);
    data.addExtent("labels", run.type, {tokensPerSample}, index, run.offsetBytes + byteSize(run.type), samples);
  }
  data.defaultField = "tokens";
  data.holdsTokens = true;
}

} // namespace fsdpc::rt
