#include "runtime/common/batch_feeder.h"

#include "runtime/common/input_rows.h"
#include "runtime/common/safetensors.h"
#include "runtime/common/spelling.h"

#include <algorithm>
#include <cstring>

namespace fsdpc::rt {
namespace {

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
    const bool isFilled = options.samplePacking && isOfDocuments(input);
    if (takesLabels || isFilled || !takesIntegers(input) || named(options.fills, "--fill", input) ||
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
    : program(program), data(std::move(dataset)), documentEnd(options.documentEnd), truncate(options.truncate),
      packsSamples(options.samplePacking) {
  for (const InputInfo &input : program.inputs)
    if (input.kind == InputKind::sampleWeight) {
      bindings.push_back({&input, Feed::weight, 0});
      weighted = true;
    }
  bindFilled(options);
  bindMapped(options);
  bindByName();
  noteUnused();
  requireOneLength();
  if (packsSamples)
    packRows();
  std::int64_t bufferBytes = 0;
  for (const Binding &binding : bindings)
    if (binding.isOfField()) {
      const Field &field = data.fields[binding.field];
      // A lookup stores float32 values after the raw bytes.
      const std::int64_t lookupBytes = field.lookup.empty() ? 0 : field.sampleElements * 4;
      bufferBytes = std::max(bufferBytes, (field.sampleBytes() + lookupBytes) * program.microBatchSize);
    }
  buffer.resize(static_cast<std::size_t>(bufferBytes));
}

/// Every field that feeds an input, or from which one is made, has the same number of samples.
void BatchFeeder::requireOneLength() {
  const Field *first = nullptr;
  bool isRead = false;
  for (const Binding &binding : bindings) {
    if (!binding.isOfField())
      continue;
    const Field &field = data.fields[binding.field];
    if (first && first->samples != field.samples)
      throw Failure(ExitCode::corrupt, data.pattern + ": " + first->name + " has " + std::to_string(first->samples) +
                                           " samples, " + field.name + " has " + std::to_string(field.samples));
    first = &field;
    if (binding.feed != Feed::field)
      continue;
    mainField = binding.field;
    sampleCount = field.samples;
    isRead = true;
  }
  if (!isRead)
    throw Failure(ExitCode::usage, data.pattern + ": nothing is read from it: --fill gives every input");
  for (const SampleSource &source : sources())
    if (source.samples() == 0)
      throw Failure(ExitCode::corrupt,
                    data.pattern + ": holds no samples" + (data.sourceEnds.empty() ? "" : " in one of its sources"));
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
    static constexpr std::pair<std::string_view, Feed> feeds[] = {{"0", Feed::zeros},
                                                                  {"1", Feed::ones},
                                                                  {"iota", Feed::iota},
                                                                  {"mask", Feed::mask},
                                                                  {"positions", Feed::positions},
                                                                  {"documents", Feed::documents}};
    const auto *feed =
        std::find_if(std::begin(feeds), std::end(feeds), [&](const auto &f) { return f.first == pair.right; });
    if (feed == std::end(feeds))
      throw Failure(ExitCode::usage, "--fill " + fill + ": expected 1, 0, iota, mask, positions or documents");
    if (feed->second != Feed::zeros && feed->second != Feed::ones && input.shape.rank < 2)
      throw Failure(ExitCode::usage, "--fill " + fill + ": " + pair.right +
                                         " counts along the last axis, and the input has none but the batch");
    bindings.push_back(feed->second >= Feed::mask ? madeOf(input, feed->second, fill)
                                                  : Binding{&input, feed->second, 0});
  }
}

/// Masks, positions and documents follow the samples of one field.
BatchFeeder::Binding BatchFeeder::madeOf(const InputInfo &input, Feed feed, const std::string &fill) const {
  const auto field = std::find_if(data.fields.begin(), data.fields.end(), [&](const Field &f) {
    return f.ragged || (data.holdsTokens && f.name == data.defaultField);
  });
  if (field == data.fields.end() || isFloat(field->type))
    throw Failure(ExitCode::usage,
                  "--fill " + fill + ": " + data.pattern + " has neither tokens nor integer samples of unequal length");
  if (!field->ragged && feed != Feed::mask && !documentEnd)
    throw Failure(ExitCode::usage, "--fill " + fill + ": --document_end says which token ends a document");
  if (input.shape.rank != 2 || (!field->ragged && rowElements(input) != field->sampleElements))
    throw Failure(ExitCode::usage,
                  "--fill " + fill + ": the input does not have the shape of a sample of " + field->text());
  return {&input, feed, static_cast<std::size_t>(field - data.fields.begin())};
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
    else if (!bindDocuments(input))
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
static std::string suggestion(const InputInfo &input, const std::vector<std::string> &fields, bool hasRagged) {
  const std::string name = input.name;
  if (const std::string near = nearestName(name, fields); !near.empty())
    return " --map " + name + "=" + near;
  if (name.find("mask") != std::string::npos)
    return " --fill " + name + (hasRagged ? "=mask" : "=1");
  if (name.find("token_type") != std::string::npos)
    return " --fill " + name + "=0";
  const bool isPosition = name.find("position") != std::string::npos && input.shape.rank > 1;
  if (name.find("document") != std::string::npos)
    return " --fill " + name + (isPosition ? "=positions" : "=documents") + (hasRagged ? "" : " --document_end TOKEN");
  return isPosition ? " --fill " + name + "=iota" : "";
}

std::string BatchFeeder::missingFields(const std::vector<const InputInfo *> &inputs) const {
  std::vector<std::string> names;
  bool hasRagged = false;
  for (const Field &field : data.fields) {
    names.push_back(field.name);
    hasRagged |= field.ragged;
  }
  std::string message = data.pattern + ": no field for ", examples;
  for (const InputInfo *input : inputs) {
    message += (input == inputs[0] ? "" : ", ") + inputText(*input);
    examples += suggestion(*input, names, hasRagged);
  }
  return message + "; the data has " + data.fieldList() + ". Use --map INPUT=FIELD or --fill INPUT=1|0|iota|..." +
         (examples.empty() ? "" : ", for example" + examples);
}

void BatchFeeder::bind(const InputInfo &input, const Field &given) {
  const Field *same = input.shiftsItself && data.isShifted(given) ? data.find(unshiftedField) : nullptr;
  const Field &field = same ? *same : given;
  if (same)
    remarks.push_back("the graph compares input " + std::string(input.name) +
                      " with what it predicts one position before, so it is fed the tokens of the sample, not the ones "
                      "that follow");
  if (field.ragged)
    bindRagged(input, field);
  const bool fits = field.ragged     ? true
                    : field.anyShape ? field.sampleElements == rowElements(input)
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

/// Checks what is particular to samples of unequal length.
void BatchFeeder::bindRagged(const InputInfo &input, const Field &field) {
  const std::string inputHas = "input " + inputText(input);
  if (input.shape.rank != 2)
    throw Failure(ExitCode::corrupt,
                  data.pattern + ": field " + field.text() + " does not have the shape of " + inputHas);
  const std::int64_t elements = rowElements(input);
  if (field.sampleElements > elements && !truncate)
    throw Failure(ExitCode::corrupt, data.where(field, field.longest, 0) + ": has " +
                                         std::to_string(field.sampleElements) + " elements, more than " + inputHas +
                                         "; --truncate takes the first ones of longer samples");
  if (field.shortestElements >= elements)
    return;
  const IndexRangeInfo whole = wholeRange(input);
  const bool isIgnored =
      std::ranges::all_of(rangesOf(input, whole), [](const IndexRangeInfo &range) { return range.hasIgnoreIndex; });
  if ((input.kind == InputKind::labels || input.shiftsItself) && !isIgnored)
    throw Failure(ExitCode::usage, data.pattern + ": the labels of shorter samples are padded, and the loss of " +
                                       inputHas + " ignores none: compile with --ignore_index");
  if (!packsSamples)
    remarks.push_back("samples of " + field.name + " shorter than " + std::to_string(elements) + " are padded with " +
                      (isIgnored ? "the ignored label" : "0"));
}

} // namespace fsdpc::rt
