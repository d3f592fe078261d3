#include "runtime/checkpoint/reader.h"

#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/layout.h"
#include "runtime/common/complaints.h"
#include "runtime/common/local_parameters.h"
#include "runtime/common/scalars.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace fsdpc::rt {
namespace {

/// Converted elements are read this many bytes of the destination at a time.
constexpr std::int64_t pieceBytes = 1 << 22;

std::string whereOf(const std::string &file, const ManifestTensor &tensor) {
  return file + ": tensor '" + tensor.name + "'";
}

/// The scalars whose value in a checkpoint means something to this program.
bool isRestored(const ProgramInfo &program, const TrainingState &state, std::string_view name) {
  const auto isThere = [](const auto &scalars, std::string_view wanted, const auto &nameOf) {
    return std::any_of(scalars.begin(), scalars.end(), [&](const auto &scalar) { return nameOf(scalar) == wanted; });
  };
  if (!name.starts_with("loss_scale"))
    return true;
  // A fixed scale is compiled in; only a dynamic one goes on.
  const std::string_view dynamic = "loss_scale_good_steps";
  return isThere(program.scalars, dynamic, [](const ScalarInfo &scalar) { return std::string_view(scalar.name); }) &&
         isThere(state.scalars, dynamic, [](const auto &scalar) { return std::string_view(scalar.first); });
}

void restoreScalars(const ProgramInfo &program, const Context &context, const TrainingState &state) {
  // The default of a program whose updates are guarded, while that which wrote the checkpoint applied every step.
  setIntegerScalar(program, context, "optimizer_step", state.step - state.skippedSteps + 1);
  for (const auto &[name, value] : state.scalars)
    if (isUpdatedByProgram(name) && isRestored(program, state, name))
      setScalar(program, context, name, value);
}

} // namespace

CheckpointReader::CheckpointReader(std::string folder) : path(std::move(folder)) {
  const std::string name = path + "/" + manifestName;
  contents = parseManifest(readFile(name), name);
  files.resize(contents.files.size());
  for (const ManifestFile &file : contents.files) {
    const std::int64_t bytes = InputFile(path + "/" + file.name).sizeBytes();
    if (bytes != file.bytes)
      throw Failure(ExitCode::corrupt, path + "/" + file.name + ": has " + std::to_string(bytes) +
                                           " bytes, the manifest says " + std::to_string(file.bytes));
  }
}

const ManifestTensor *CheckpointReader::find(std::string_view name) const {
  const auto &tensors = contents.tensors;
  const auto at =
      std::lower_bound(tensors.begin(), tensors.end(), name,
                       [](const ManifestTensor &tensor, std::string_view key) { return tensor.name < key; });
  return at != tensors.end() && at->name == name ? &*at : nullptr;
}

const SafetensorsFile &CheckpointReader::open(std::size_t file) {
  if (!files[file]) {
    const ManifestFile &expected = contents.files[file];
    auto opened = std::make_unique<SafetensorsFile>(path + "/" + expected.name);
    if (opened->headerHash() != expected.headerHash)
      throw Failure(ExitCode::corrupt, path + "/" + expected.name + ": the header does not have its hash");
    files[file] = std::move(opened);
  }
  return *files[file];
}

template <class Take>
void CheckpointReader::visit(const ManifestTensor &tensor, std::int64_t first, std::int64_t elements,
                             const Take &take) {
  const std::int64_t end = first + elements, width = byteSize(tensor.type);
  const std::int64_t blockElements = checkpointBlockBytes / width;
  auto slice = std::upper_bound(tensor.slices.begin(), tensor.slices.end(), first,
                                [](std::int64_t element, const ManifestSlice &s) { return element < s.first; });
  for (slice = slice == tensor.slices.begin() ? slice : slice - 1; first < end && slice != tensor.slices.end();) {
    const std::int64_t sliceEnd = slice->first + slice->elements;
    if (first >= sliceEnd) {
      ++slice;
      continue;
    }
    const std::int64_t block = (first - slice->first) / blockElements;
    const std::int64_t stop = std::min({end, sliceEnd, slice->first + (block + 1) * blockElements});
    take(readBlock(tensor, *slice, block) + (first - slice->first - block * blockElements) * width, stop - first);
    first = stop;
  }
}

void CheckpointReader::read(const ManifestTensor &tensor, std::int64_t first, std::int64_t elements, DType dtype,
                            std::byte *to) {
  visit(tensor, first, elements, [&](const std::byte *data, std::int64_t count) {
    if (convertElements(tensor.type, data, dtype, to, count) >= 0)
      throw Failure(ExitCode::incompatible, whereOf(path, tensor) + ": an element does not fit this program's type");
    to += count * byteSize(dtype);
  });
}

void CheckpointReader::readStored(const ManifestTensor &tensor, std::int64_t first, std::int64_t elements,
                                  std::byte *to) {
  visit(tensor, first, elements, [&](const std::byte *data, std::int64_t count) {
    const std::int64_t bytes = count * byteSize(tensor.type);
    std::memcpy(to, data, static_cast<std::size_t>(bytes));
    to += bytes;
  });
}

const std::byte *CheckpointReader::readBlock(const ManifestTensor &tensor, const ManifestSlice &slice,
                                             std::int64_t block) {
  if (bufferedSlice == &slice && bufferedBlock == block)
    return buffer.data();
  const SafetensorsFile &file = open(slice.file);
  const TensorEntry *entry = file.find(tensor.name);
  if (!entry || entry->type != tensor.type || entry->elements != slice.elements)
    throw Failure(ExitCode::corrupt, whereOf(file.file().path(), tensor) + ": is not the slice of the manifest");
  const std::int64_t offset = block * checkpointBlockBytes;
  bufferedBytes = std::min(checkpointBlockBytes, entry->sizeBytes - offset);
  bufferedSlice = nullptr;
  buffer.resize(static_cast<std::size_t>(checkpointBlockBytes));
  file.file().read(entry->offsetBytes + offset, buffer.data(), bufferedBytes);
  if (checkpointHash(buffer.data(), bufferedBytes) != slice.hashes[static_cast<std::size_t>(block)])
    throw Failure(ExitCode::corrupt, whereOf(file.file().path(), tensor) + ": bytes " +
                                         std::to_string(entry->offsetBytes + offset) + " to " +
                                         std::to_string(entry->offsetBytes + offset + bufferedBytes) +
                                         " of the file do not have their hash");
  bufferedSlice = &slice;
  bufferedBlock = block;
  return buffer.data();
}

void requireFits(const ProgramInfo &program, const CheckpointReader &reader) {
  const CheckpointLayout layout(program);
  Complaints complaints;
  std::set<std::string_view> known;
  for (const CheckpointTensor &tensor : layout.tensors()) {
    known.insert(tensor.name);
    const ManifestTensor *found = reader.find(tensor.name);
    if (!found)
      complaints.add("missing: " + tensor.name + " " + dimsText(tensor.dims));
    else if (found->dims != tensor.dims)
      complaints.add(tensor.name + " is " + dimsText(found->dims) + " there, " + dimsText(tensor.dims) + " here");
    else if (found->type != elementType(tensor.dtype))
      complaints.add(tensor.name + " is " + safetensorsName(found->type) + " there, " +
                     safetensorsName(elementType(tensor.dtype)) + " here");
  }
  for (const ManifestTensor &tensor : reader.manifest().tensors)
    if (!known.contains(tensor.name))
      complaints.add("extra: " + tensor.name + " " + dimsText(tensor.dims));
  complaints.throwIfAny(reader.folder() + ": is a checkpoint of another model or optimizer (" +
                        reader.manifest().modelName + ", " + reader.manifest().optimizer + ")");
}

void loadState(const ProgramInfo &program, const Context &context, CheckpointReader &reader,
               const std::function<void()> &beat) {
  const auto worldSize = static_cast<std::size_t>(context.worldSize);
  for (std::size_t file = static_cast<std::size_t>(context.rank); file < reader.manifest().files.size();
       file += worldSize)
    reader.verifyHeader(file);
  const LocalParameters held(program);
  const CheckpointLayout layout(program);
  for (const CheckpointTensor &tensor : layout.tensors()) {
    const ManifestTensor &stored = *reader.find(tensor.name);
    const auto fill = [&](const ShardRange &range, DType dtype, std::byte *to) {
      const std::int64_t step = pieceBytes / byteSize(dtype);
      for (std::int64_t done = 0; done < range.elements; done += step, beat())
        reader.read(stored, range.parameterElement + done, std::min(step, range.elements - done), dtype,
                    to + done * byteSize(dtype));
    };
    const auto index = static_cast<std::size_t>(tensor.parameter);
    if (tensor.isState)
      writeHeld(program, context, *tensor.segment, program.parameters[index], tensor.place, tensor.dtype, fill);
    else
      held.write(index, context, fill);
  }
  restoreScalars(program, context, reader.manifest().training);
}

} // namespace fsdpc::rt
