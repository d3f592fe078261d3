#include "runtime/common/weights.h"

#include "runtime/common/adapters.h"
#include "runtime/common/arena_access.h"
#include "runtime/common/complaints.h"
#include "runtime/common/initial_values.h"
#include "runtime/common/local_parameters.h"
#include "runtime/common/scalars.h"

#include <algorithm>
#include <cstring>
#include <regex>

namespace fsdpc::rt {
namespace {

constexpr std::int64_t chunkElements = 1 << 16;
constexpr std::int64_t chunkBytes = 1 << 24;
/// std::regex calls itself for each character; names come from files of others.
constexpr std::size_t longestMatchedName = 4096;

void readRange(const InputFile &file, const TensorEntry &entry, DType dtype, const ShardRange &range,
               std::byte *destination, const std::function<void()> &beat) {
  const std::int64_t sourceBytes = byteSize(entry.type);
  const std::int64_t offsetBytes = entry.offsetBytes + range.parameterElement * sourceBytes;
  if (entry.type == elementType(dtype)) {
    const std::int64_t bytes = range.elements * sourceBytes;
    for (std::int64_t done = 0; done < bytes; done += chunkBytes, beat())
      file.read(offsetBytes + done, destination + done, std::min(chunkBytes, bytes - done));
    return;
  }
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(chunkElements, range.elements) * sourceBytes));
  for (std::int64_t done = 0; done < range.elements; done += chunkElements, beat()) {
    const std::int64_t elements = std::min(chunkElements, range.elements - done);
    file.read(offsetBytes + done * sourceBytes, buffer.data(), elements * sourceBytes);
    const std::int64_t misfit =
        convertElements(entry.type, buffer.data(), dtype, destination + done * byteSize(dtype), elements);
    if (misfit >= 0)
      throw Failure(ExitCode::incompatible, file.path() + ": tensor '" + entry.name + "': element " +
                                                std::to_string(range.parameterElement + done + misfit) +
                                                " does not fit the parameter's type");
  }
}

/// The names that --load_partial allows to be missing or extra.
class PartialNames {
public:
  explicit PartialNames(const std::string &expression) : expression(expression) {
    try {
      pattern.assign(expression);
    } catch (const std::regex_error &error) {
      throw Failure(ExitCode::usage, "--load_partial " + expression + ": " + error.what());
    }
  }
  bool allows(const std::string &name) {
    if (expression.empty())
      return false;
    if (name.size() > longestMatchedName)
      throw Failure(ExitCode::incompatible, "the tensor whose name begins '" + name.substr(0, 80) + "' has a name of " +
                                                std::to_string(name.size()) + " bytes; --load_partial takes up to " +
                                                std::to_string(longestMatchedName));
    if (!std::regex_match(name, pattern))
      return false;
    return hasMatched = true;
  }
  void requireMatch() const {
    if (!expression.empty() && !hasMatched)
      throw Failure(ExitCode::usage,
                    "--load_partial " + expression + ": matches the entire name of nothing that is missing or extra");
  }

private:
  std::string expression;
  std::regex pattern;
  bool hasMatched = false;
};

std::string firstOf(const std::vector<std::string> &names, const std::string &what) {
  return std::to_string(names.size()) + " " + what + (names.size() == 1 ? ": " : ", such as ") + names.front();
}

} // namespace

Weights::Weights(const ProgramInfo &program, const std::string &path, WeightsOrigin origin, const std::string &partial)
    : program(program), files(path),
      names(origin == WeightsOrigin::compiled ? exactNames(program, files)
                                              : matchNames(program, files, origin == WeightsOrigin::adapters)) {
  Complaints complaints;
  PartialNames optional(partial);
  const std::vector<bool> factors = adapterFactors(program);
  for (std::size_t i = 0; i < program.parameters.size(); ++i) {
    const ParameterInfo &parameter = program.parameters[i];
    const bool isWanted = origin == WeightsOrigin::user       ? true
                          : origin == WeightsOrigin::compiled ? parameter.inWeightsFile
                                                              : factors[i] || has(i);
    if (names.ofParameter[i] && isWanted)
      compare(i, complaints);
    else if (factors[i] && origin == WeightsOrigin::user)
      hasNewAdapters = true;
    else if (isWanted && optional.allows(parameter.name))
      keptInitial.push_back(parameter.name);
    else if (isWanted)
      complaints.add("missing: " + std::string(parameter.name) + " " + dimsText(dimsOf(parameter.shape)));
    if (!isWanted)
      names.ofParameter[i] = nullptr;
  }
  if (origin != WeightsOrigin::compiled)
    for (const StoredTensor *tensor : names.extra) {
      if (optional.allows(tensor->name()))
        leftOut.push_back(tensor->name());
      else if (isComputedState(*tensor->entry))
        computed.push_back(tensor->name());
      else
        complaints.add("extra: " + tensor->name() + " " + dimsText(tensor->entry->dims));
    }
  complaints.throwIfAny(path + ": the weights do not fit this program");
  optional.requireMatch();
}

void Weights::compare(std::size_t parameter, Complaints &complaints) const {
  const ParameterInfo &info = program.parameters[parameter];
  const TensorEntry &entry = *names.ofParameter[parameter]->entry;
  const std::vector<std::int64_t> dims = dimsOf(info.shape);
  const bool isTransposed = dims.size() == 2 && entry.dims == std::vector{dims[1], dims[0]};
  const bool hasSomeRows =
      dims.size() == 2 && entry.dims.size() == 2 && dims[0] < entry.dims[0] && dims[1] == entry.dims[1];
  if (entry.dims != dims)
    complaints.add(entry.name + " is " + dimsText(entry.dims) + " there, " + dimsText(dims) + " here" +
                   (isTransposed ? " (transposed)"
                    : hasSomeRows
                        ? " (the exporter kept the rows in use; torch.onnx.export with optimize=False keeps all)"
                        : ""));
  else if (!isConvertible(entry.type, info.dtype))
    complaints.add(entry.name + ": " + safetensorsName(entry.type) + " cannot become " +
                   safetensorsName(elementType(info.dtype)));
}

void Weights::requireEqualCopies(const std::function<void()> &beat) const {
  Complaints complaints;
  for (const auto &[first, second] : names.copies) {
    const TensorEntry &a = *first->entry, &b = *second->entry;
    bool areEqual = a.type == b.type && a.dims == b.dims;
    std::vector<std::byte> one(static_cast<std::size_t>(std::min(chunkBytes, a.sizeBytes))), other(one.size());
    for (std::int64_t done = 0; areEqual && done < a.sizeBytes; done += chunkBytes, beat()) {
      const std::int64_t bytes = std::min(chunkBytes, a.sizeBytes - done);
      first->file->file().read(a.offsetBytes + done, one.data(), bytes);
      second->file->file().read(b.offsetBytes + done, other.data(), bytes);
      areEqual = std::memcmp(one.data(), other.data(), static_cast<std::size_t>(bytes)) == 0;
    }
    if (!areEqual)
      complaints.add(a.name + " and " + b.name + " differ there and are one parameter here");
  }
  complaints.throwIfAny("the weights do not fit this program");
}

std::vector<std::string> Weights::notes() const {
  std::vector<std::string> result;
  if (names.programPrefix != names.filePrefix)
    result.push_back("the weights have names with '" + names.filePrefix + "' where this program has '" +
                     names.programPrefix + "'");
  if (hasNewAdapters)
    result.push_back("the adapters begin as new, and change nothing at first");
  if (!keptInitial.empty())
    result.push_back(firstOf(keptInitial, "parameter(s) keep their initial values, as --load_partial allows"));
  if (!leftOut.empty())
    result.push_back(firstOf(leftOut, "tensor(s) of the weights are left out, as --load_partial allows"));
  if (!computed.empty())
    result.push_back(firstOf(computed, "tensor(s) of the weights are left out, since models compute them"));
  return result;
}

bool Weights::areIncomplete() const {
  return std::find(names.ofParameter.begin(), names.ofParameter.end(), nullptr) != names.ofParameter.end();
}

void Weights::load(const Context &context, const std::function<void()> &beat) const {
  const LocalParameters held(program);
  for (std::size_t i = 0; i < names.ofParameter.size(); ++i)
    if (const StoredTensor *const tensor = names.ofParameter[i])
      held.write(i, context, [&](const ShardRange &range, DType dtype, std::byte *to) {
        readRange(tensor->file->file(), *tensor->entry, dtype, range, to, beat);
      });
}

void drawInitialValues(const ProgramInfo &program, const Context &context, std::uint64_t seed,
                       const std::function<bool(std::size_t)> &isWanted, const std::function<void()> &beat) {
  const LocalParameters held(program);
  for (std::size_t i = 0; i < program.parameters.size(); ++i) {
    const ParameterInfo &parameter = program.parameters[i];
    const bool isZero = parameter.initial.kind == InitialKind::constant && parameter.initial.first == 0;
    if (!parameter.inWeightsFile && !isZero && isWanted(i))
      held.write(i, context, [&](const ShardRange &range, DType dtype, std::byte *to) {
        drawRange(parameter, seed, range.parameterElement, range.elements, dtype, to);
        beat();
      });
  }
}

void resetState(const ProgramInfo &program, const Context &context) {
  const auto fill = [&](Place place, DType dtype, std::int64_t elements, double value) {
    writeArenaInPieces(context, place, elements * byteSize(dtype),
                       [&](std::byte *to, std::int64_t, std::int64_t bytes) {
                         fillElements(dtype, to, bytes / byteSize(dtype), value);
                       });
  };
  for (const SegmentInfo &segment : program.segments)
    fill(segment.place, segment.dtype, segment.shardElements, 0);
  for (const OptimizerStateInfo &state : program.optimizerStates)
    fill(state.place, state.dtype, program.segments[static_cast<std::size_t>(state.segment)].shardElements,
         state.initialValue);
  for (const AccumulatorInfo &accumulator : program.accumulators)
    fill(accumulator.place, DType::u8, accumulator.bytes, 0);
  for (const ScalarInfo &scalar : program.scalars)
    setScalar(program, context, scalar.name, scalar.defaultValue);
}

} // namespace fsdpc::rt
