#include "runtime/common/batch_feeder.h"

#include "runtime/common/arena_access.h"

#include "runtime/common/safetensors.h"
#include "runtime/common/spelling.h"

#include <algorithm>
#include <cstring>

namespace fsdpc::rt {
namespace {

std::int64_t rowElements(const InputInfo &input) { return input.shape.elements() / input.shape.dims[0]; }
std::int64_t rowBytes(const InputInfo &input) { return rowElements(input) * byteSize(input.dtype); }

std::vector<std::int64_t> rowDims(const InputInfo &input) {
  return {input.shape.dims + 1, input.shape.dims + input.shape.rank};
}

std::string inputText(const InputInfo &input) {
  return std::string(input.name) + " " + safetensorsName(elementType(input.dtype)) + dimsText(rowDims(input));
}

std::vector<std::int64_t> withoutOnes(std::vector<std::int64_t> dims) {
  std::erase(dims, 1);
  return dims;
}

struct Pair {
  std::string left, right;
};

Pair split(const std::string &text, const char *option) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    throw Failure(ExitCode::usage, std::string(option) + " '" + text + "': expected INPUT=VALUE");
  return {text.substr(0, equals), text.substr(equals + 1)};
}

/// True for integer inputs. Boolean masks do not count.
bool takesIntegers(const InputInfo &input) { return !isFloat(input.dtype) && input.dtype != DType::boolean; }

bool hasRange(const InputInfo &input) {
  return (input.indexLimit > 0 || !input.ranges.empty()) && !isFloat(input.dtype);
}

bool inRange(const IndexRangeInfo &range, std::int64_t value) {
  return (value >= 0 && value < range.limit) || (range.hasIgnoreIndex && value == range.ignoreIndex);
}

/// Finds an element of `values` (one sample) that is out of range. Returns its range, and null if every element is in
/// range.
const IndexRangeInfo *findOutOfRange(std::span<const IndexRangeInfo> ranges, DType dtype, const std::byte *values,
                                     std::int64_t &element) {
  for (const IndexRangeInfo &range : ranges)
    for (element = range.first; element < range.first + range.count; ++element)
      if (!inRange(range, loadInteger(dtype, values, element)))
        return &range;
  return nullptr;
}

/// Fields of a token file. Labels that the graph shifts itself are fed from `unshiftedField`.
constexpr const char *shiftedField = "labels", *unshiftedField = "tokens";

} // namespace

std::int64_t tokensPerSample(const ProgramInfo &program, const FeedOptions &options) {
  const auto named = [](const std::vector<std::string> &pairs, const char *option, const InputInfo &input) {
    return std::any_of(pairs.begin(), pairs.end(),
                       [&](const std::string &pair) { return split(pair, option).left == input.name; });
  };
  const auto length = [](const InputInfo &input) { return input.shape.rank == 2 ? input.shape.dims[1] : 0; };
  std::int64_t found = 0;
  int candidates = 0;
  for (const InputInfo &input : program.inputs) {
    for (const std::string &map : options.maps)
      if (split(map, "--map").left == input.name && split(map, "--map").right == unshiftedField)
        return length(input);
    const bool takesLabels = input.kind != InputKind::data || std::string_view(input.name) == shiftedField;
    if (takesLabels || !takesIntegers(input) || named(options.fills, "--fill", input) ||
        named(options.maps, "--map", input))
      continue;
    ++candidates;
    found = length(input);
  }
  return candidates == 1 ? found : 0;
}

std::string integerInputs(const ProgramInfo &program) {
  std::string text;
  for (const InputInfo &input : program.inputs)
    if (input.kind == InputKind::data && takesIntegers(input) && std::string_view(input.name) != shiftedField)
      text += (text.empty() ? "" : ", ") + inputText(input);
  return text.empty() ? "none" : text;
}

BatchFeeder::BatchFeeder(const ProgramInfo &program, Dataset dataset, const FeedOptions &options)
    : program(program), data(std::move(dataset)) {
  for (const InputInfo &input : program.inputs)
    if (input.kind == InputKind::sampleWeight) {
      bindings.push_back({&input, Feed::weight, 0});
      weighted = true;
    }
  bindFilled(options);
  bindMapped(options);
  bindByName();
  noteUnused();
  std::int64_t bufferBytes = 0;
  const Field *first = nullptr;
  for (const Binding &binding : bindings) {
    if (binding.feed != Feed::field)
      continue;
    const Field &field = data.fields[binding.field];
    if (first && first->samples != field.samples)
      throw Failure(ExitCode::corrupt, data.pattern + ": " + first->name + " has " + std::to_string(first->samples) +
                                           " samples, " + field.name + " has " + std::to_string(field.samples));
    first = &field;
    sampleCount = field.samples;
    // A lookup stores float32 values after the raw bytes.
    const std::int64_t lookupBytes = field.lookup.empty() ? 0 : field.sampleElements * 4;
    bufferBytes = std::max(bufferBytes, (field.sampleBytes() + lookupBytes) * program.microBatchSize);
  }
  if (!first)
    throw Failure(ExitCode::usage, data.pattern + ": nothing is read from it: --fill gives every input");
  if (sampleCount == 0)
    throw Failure(ExitCode::corrupt, data.pattern + ": holds no samples");
  buffer.resize(static_cast<std::size_t>(bufferBytes));
}

/// Notes fields that no input reads. Formats with a fixed pair of fields are exempt. For the others an unread field,
/// such as a mask that the program does not use, is worth a note.
void BatchFeeder::noteUnused() {
  if (!data.defaultField.empty())
    return;
  std::string unused;
  for (std::size_t i = 0; i < data.fields.size(); ++i)
    if (std::none_of(bindings.begin(), bindings.end(),
                     [&](const Binding &b) { return b.feed == Feed::field && b.field == i; }))
      unused += (unused.empty() ? "" : ", ") + data.fields[i].text();
  if (!unused.empty())
    remarks.push_back(data.pattern + ": no input reads " + unused);
}

const InputInfo &BatchFeeder::inputNamed(const std::string &name, const std::string &option) const {
  std::vector<std::string> names;
  for (const InputInfo &input : program.inputs) {
    if (input.kind != InputKind::sampleWeight)
      names.emplace_back(input.name);
    if (name == input.name)
      return input;
  }
  const std::string near = didYouMean(name, names);
  std::string list;
  for (const std::string &known : names)
    list += (list.empty() ? "; it has " : ", ") + known;
  throw Failure(ExitCode::usage, option + ": the program has no input '" + name + "'" + (near.empty() ? list : near));
}

bool BatchFeeder::isBound(const InputInfo &input) const {
  return std::any_of(bindings.begin(), bindings.end(), [&](const Binding &b) { return b.input == &input; });
}

void BatchFeeder::bindFilled(const FeedOptions &options) {
  for (const std::string &fill : options.fills) {
    const Pair pair = split(fill, "--fill");
    const InputInfo &input = inputNamed(pair.left, "--fill");
    if (isBound(input))
      throw Failure(ExitCode::usage, "--fill: input '" + pair.left + "' is given twice");
    if (pair.right != "0" && pair.right != "1" && pair.right != "iota")
      throw Failure(ExitCode::usage, "--fill " + fill + ": expected 1, 0 or iota");
    if (pair.right == "iota" && input.shape.rank < 2)
      throw Failure(ExitCode::usage,
                    "--fill " + fill + ": iota counts along the last axis, and the input has none but the batch");
    bindings.push_back({&input, pair.right == "0" ? Feed::zeros : pair.right == "1" ? Feed::ones : Feed::iota, 0});
  }
}

void BatchFeeder::bindMapped(const FeedOptions &options) {
  for (const std::string &map : options.maps) {
    const Pair pair = split(map, "--map");
    const InputInfo &input = inputNamed(pair.left, "--map");
    if (isBound(input))
      throw Failure(ExitCode::usage, "--map: input '" + pair.left + "' is given twice");
    const Field *field = data.find(pair.right);
    if (!field)
      throw Failure(ExitCode::usage, "--map " + map + ": " + data.pattern + " has no field '" + pair.right +
                                         "'; it has " + data.fieldList());
    hasDefault |= pair.right == data.defaultField;
    bind(input, *field);
  }
}

void BatchFeeder::bindByName() {
  std::vector<const InputInfo *> left;
  for (const InputInfo &input : program.inputs) {
    if (isBound(input))
      continue;
    const Field *field = data.find(input.name);
    // The program may have renamed its labels (--labels). In the data they are called `labels`.
    if (!field && input.kind == InputKind::labels)
      field = data.find("labels");
    if (field)
      bind(input, *field);
    else
      left.push_back(&input);
  }
  const Field *special = data.defaultField.empty() ? nullptr : data.find(data.defaultField);
  if (left.size() == 1 && special && !hasDefault && left[0]->kind == InputKind::data) {
    bind(*left[0], *special);
    return;
  }
  if (!left.empty())
    throw Failure(ExitCode::usage, missingFields(left));
}

/// Suggests an option that feeds an unbound input, judging by its name. Returns "" if there is no suggestion.
static std::string suggestion(const InputInfo &input, const std::vector<std::string> &fields) {
  const std::string name = input.name;
  if (const std::string near = nearestName(name, fields); !near.empty())
    return " --map " + name + "=" + near;
  if (name.find("mask") != std::string::npos)
    return " --fill " + name + "=1";
  if (name.find("token_type") != std::string::npos)
    return " --fill " + name + "=0";
  return name.find("position") != std::string::npos && input.shape.rank > 1 ? " --fill " + name + "=iota" : "";
}

std::string BatchFeeder::missingFields(const std::vector<const InputInfo *> &inputs) const {
  std::vector<std::string> names;
  for (const Field &field : data.fields)
    names.push_back(field.name);
  std::string message = data.pattern + ": no field for ", examples;
  for (const InputInfo *input : inputs) {
    message += (input == inputs[0] ? "" : ", ") + inputText(*input);
    examples += suggestion(*input, names);
  }
  return message + "; the data has " + data.fieldList() + ". Use --map INPUT=FIELD or --fill INPUT=1|0|iota" +
         (examples.empty() ? "" : ", for example" + examples);
}

void BatchFeeder::bind(const InputInfo &input, const Field &given) {
  const Field *same = input.shiftsItself && data.isShifted(given) ? data.find(unshiftedField) : nullptr;
  const Field &field = same ? *same : given;
  if (same)
    remarks.push_back("the graph compares input " + std::string(input.name) +
                      " with what it predicts one position before, so it is fed the tokens of the sample, not the ones "
                      "that follow");
  const bool fits = field.anyShape ? field.sampleElements == rowElements(input)
                                   : withoutOnes(field.sampleDims) == withoutOnes(rowDims(input));
  if (!fits)
    throw Failure(ExitCode::corrupt,
                  data.pattern + ": field " + field.text() + " does not have the shape of input " + inputText(input));
  const ElementType type = field.lookup.empty() ? field.type : ElementType::f32;
  // Booleans are converted to numbers for data inputs, but never for inputs used as indices.
  const bool isMask = type == ElementType::boolean && hasRange(input);
  if (isMask || !isConvertible(type, input.dtype))
    throw Failure(ExitCode::corrupt, data.pattern + ": field " + field.text() + " does not have the type of input " +
                                         inputText(input) + "; save it as " +
                                         safetensorsName(elementType(input.dtype)));
  bindings.push_back({&input, Feed::field, static_cast<std::size_t>(&field - data.fields.data())});
}

void BatchFeeder::checkValues(const Binding &binding, std::int64_t first, std::int64_t count,
                              const std::byte *values) const {
  const InputInfo &input = *binding.input;
  if (!hasRange(input))
    return;
  const Field &field = data.fields[binding.field];
  const IndexRangeInfo whole{0, field.sampleElements, input.indexLimit, input.ignoreIndex, input.hasIgnoreIndex};
  const std::span<const IndexRangeInfo> ranges =
      input.ranges.empty() ? std::span<const IndexRangeInfo>(&whole, 1) : input.ranges;
  for (std::int64_t sample = 0; sample < count; ++sample) {
    std::int64_t element = 0;
    const IndexRangeInfo *range = findOutOfRange(ranges, input.dtype, values + sample * rowBytes(input), element);
    if (!range)
      continue;
    const std::int64_t value = loadInteger(input.dtype, values, sample * field.sampleElements + element);
    const std::string ignored = range->hasIgnoreIndex ? " (or " + std::to_string(range->ignoreIndex) + ")" : "";
    const std::string place = input.ranges.empty() ? "" : " at element " + std::to_string(element) + " of a sample";
    throw Failure(ExitCode::corrupt, data.where(field, first + sample, element) + ": " + std::to_string(value) +
                                         " is out of range for input " + input.name + ", which takes 0 to " +
                                         std::to_string(range->limit - 1) + ignored + place);
  }
}

void BatchFeeder::convert(const Binding &binding, std::int64_t first, std::int64_t count, std::byte *destination) {
  const Field &field = data.fields[binding.field];
  const InputInfo &input = *binding.input;
  const std::int64_t elements = count * field.sampleElements;
  if (field.type == elementType(input.dtype) && field.lookup.empty()) {
    data.read(field, first, count, destination);
    return;
  }
  data.read(field, first, count, buffer.data());
  const std::byte *source = buffer.data();
  ElementType type = field.type;
  if (!field.lookup.empty()) {
    std::byte *values = buffer.data() + elements;
    for (std::int64_t i = 0; i < elements; ++i)
      std::memcpy(values + i * 4, &field.lookup[static_cast<std::size_t>(source[i])], 4);
    source = values;
    type = ElementType::f32;
  }
  const std::int64_t misfit = convertElements(type, source, input.dtype, destination, elements);
  if (misfit >= 0)
    throw Failure(ExitCode::corrupt,
                  data.where(field, first + misfit / field.sampleElements, misfit % field.sampleElements) +
                      ": the value does not fit input " + input.name);
}

void BatchFeeder::checkRanges(int rank, int worldSize, const std::function<void()> &beat) const {
  for (const Binding &binding : bindings) {
    if (binding.feed != Feed::field || !hasRange(*binding.input))
      continue;
    const Field &field = data.fields[binding.field];
    const std::int64_t block = std::max<std::int64_t>(1, (1 << 20) / std::max<std::int64_t>(1, field.sampleBytes()));
    std::vector<std::byte> raw(static_cast<std::size_t>(block * field.sampleBytes()));
    std::vector<std::byte> values(static_cast<std::size_t>(block * rowBytes(*binding.input)));
    std::int64_t scannedBytes = 0;
    for (std::int64_t first = rank * block; first < field.samples && scannedBytes < scanLimitBytes;
         first += worldSize * block) {
      const std::int64_t count = std::min(block, field.samples - first);
      data.read(field, first, count, raw.data());
      const std::int64_t misfit =
          convertElements(field.type, raw.data(), binding.input->dtype, values.data(), count * field.sampleElements);
      if (misfit >= 0)
        throw Failure(ExitCode::corrupt,
                      data.where(field, first + misfit / field.sampleElements, misfit % field.sampleElements) +
                          ": the value does not fit input " + binding.input->name);
      checkValues(binding, first, count, values.data());
      scannedBytes += count * field.sampleBytes();
      beat();
    }
  }
}

void BatchFeeder::padRow(const InputInfo &input, std::byte *row) const {
  std::memset(row, 0, static_cast<std::size_t>(rowBytes(input)));
  if (input.kind == InputKind::labels && input.hasIgnoreIndex && !isFloat(input.dtype))
    fillElements(input.dtype, row, rowElements(input), static_cast<double>(input.ignoreIndex));
}

void BatchFeeder::fillField(const Binding &binding, std::span<const std::int64_t> rows, std::byte *destination) {
  const InputInfo &input = *binding.input;
  for (std::size_t i = 0; i < rows.size();) {
    std::byte *row = destination + static_cast<std::int64_t>(i) * rowBytes(input);
    if (rows[i] < 0) {
      padRow(input, row);
      ++i;
      continue;
    }
    std::size_t run = 1; // consecutive samples are read in one call
    while (i + run < rows.size() && rows[i + run] == rows[i] + static_cast<std::int64_t>(run))
      ++run;
    convert(binding, rows[i], static_cast<std::int64_t>(run), row);
    checkValues(binding, rows[i], static_cast<std::int64_t>(run), row);
    i += run;
  }
}

void BatchFeeder::fill(const Context &context, std::span<const std::int64_t> rows, Inputs which) {
  for (const Binding &binding : bindings) {
    const InputInfo &input = *binding.input;
    if (which == Inputs::ofPrologue && !input.isInPrologue)
      continue;
    writeArena(context, input.place, input.shape.elements() * byteSize(input.dtype),
               [&](std::byte *destination) { fillInput(binding, rows, destination); });
  }
}

void BatchFeeder::fillInput(const Binding &binding, std::span<const std::int64_t> rows, std::byte *destination) {
  const InputInfo &input = *binding.input;
  const std::int64_t elements = input.shape.elements();
  switch (binding.feed) {
  case Feed::field: fillField(binding, rows, destination); break;
  case Feed::zeros:
  case Feed::ones: fillElements(input.dtype, destination, elements, binding.feed == Feed::ones ? 1 : 0); break;
  case Feed::iota: {
    const std::int64_t length = input.shape.dims[input.shape.rank - 1];
    for (std::int64_t i = 0; i < elements; ++i)
      fillElements(input.dtype, destination + i * byteSize(input.dtype), 1, static_cast<double>(i % length));
    break;
  }
  case Feed::weight:
    for (std::size_t i = 0; i < rows.size(); ++i)
      fillElements(input.dtype, destination + static_cast<std::int64_t>(i) * byteSize(input.dtype), 1,
                   rows[i] < 0 ? 0 : 1);
    break;
  }
}

} // namespace fsdpc::rt
