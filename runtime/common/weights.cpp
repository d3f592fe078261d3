#include "runtime/common/weights.h"

#include "runtime/common/arena_access.h"
#include "runtime/common/complaints.h"
#include "runtime/common/initial_values.h"
#include "runtime/common/local_parameters.h"
#include "runtime/common/scalars.h"

#include <algorithm>
#include <set>

namespace fsdpc::rt {
namespace {

constexpr std::int64_t chunkElements = 1 << 16;
constexpr std::int64_t chunkBytes = 1 << 24;

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

} // namespace

Weights::Weights(const ProgramInfo &program, const std::string &path, WeightsOrigin origin)
    : program(program), file(path) {
  Complaints complaints;
  std::set<std::string_view> known;
  for (const ParameterInfo &parameter : program.parameters) {
    known.insert(parameter.name);
    const bool wanted = origin == WeightsOrigin::user || parameter.inWeightsFile;
    const TensorEntry *entry = wanted ? file.find(parameter.name) : nullptr;
    entries.push_back(entry);
    if (wanted && !entry)
      complaints.add("missing: " + std::string(parameter.name) + " " + dimsText(dimsOf(parameter.shape)));
    if (!entry)
      continue;
    if (entry->dims != dimsOf(parameter.shape))
      complaints.add(entry->name + " is " + dimsText(entry->dims) + " there, " + dimsText(dimsOf(parameter.shape)) +
                     " here");
    else if (!isConvertible(entry->type, parameter.dtype))
      complaints.add(entry->name + ": " + safetensorsName(entry->type) + " cannot become " +
                     safetensorsName(elementType(parameter.dtype)));
  }
  if (origin == WeightsOrigin::user)
    for (const TensorEntry &entry : file.tensors())
      if (!known.contains(entry.name))
        complaints.add("extra: " + entry.name + " " + dimsText(entry.dims));
  complaints.throwIfAny(path + ": the weights do not fit this program");
}

void Weights::load(const Context &context, const std::function<void()> &beat) const {
  const LocalParameters held(program);
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (entries[i])
      held.write(i, context, [&](const ShardRange &range, DType dtype, std::byte *to) {
        readRange(file.file(), *entries[i], dtype, range, to, beat);
      });
}

void drawInitialValues(const ProgramInfo &program, const Context &context, std::uint64_t seed,
                       const std::function<void()> &beat) {
  const LocalParameters held(program);
  for (std::size_t i = 0; i < program.parameters.size(); ++i) {
    const ParameterInfo &parameter = program.parameters[i];
    const bool isZero = parameter.initial.kind == InitialKind::constant && parameter.initial.first == 0;
    if (!parameter.inWeightsFile && !isZero)
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
