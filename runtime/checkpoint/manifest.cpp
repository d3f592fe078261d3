#include "runtime/checkpoint/manifest.h"

#include "runtime/common/checked.h"
#include "runtime/common/fingerprint.h"
#include "runtime/common/json.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <limits>

namespace fsdpc::rt {
namespace {

constexpr std::string_view hashKey = ",\"manifest_hash\":\"";

std::string listOf(const std::vector<std::int64_t> &values) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i)
    text += (i ? "," : "") + std::to_string(values[i]);
  return text + "]";
}

std::string trainingJson(const TrainingState &state) {
  JsonObject scalars;
  for (const auto &[name, value] : state.scalars)
    scalars.add(name, value);
  JsonObject json;
  json.add("step", state.step).add("epoch", state.next.epoch).add("sample", state.next.sample);
  json.add("samples_in_epoch", state.samplesInEpoch).add("global_batch", state.globalBatch);
  json.add("warmup_steps", state.warmUp.steps).add("warmup_ratio", state.warmUp.ratio);
  json.add("warmup_end_epoch", state.warmUp.end.epoch).add("warmup_end_sample", state.warmUp.end.sample);
  json.add("sample_order", state.sampleOrder);
  json.add("shuffle", state.shuffle).add("seed", state.seed).add("skipped_steps", state.skippedSteps);
  json.add("epoch_loss_sum", state.epochLossSum).add("epoch_steps", state.epochSteps);
  json.add("evaluation_due", state.evaluationDue).add("best_metric", state.bestMetric);
  json.add("evaluations", state.evaluations.count).add("evaluations_since_best", state.evaluations.sinceBest);
  json.add("best_evaluation", state.evaluations.best);
  if (state.best)
    json.add("best_step", state.best->step).add("best_value", state.best->value);
  return json.addRaw("scalars", scalars.str()).str();
}

std::string tensorJson(const ManifestTensor &tensor) {
  std::string slices = "[";
  for (const ManifestSlice &slice : tensor.slices) {
    slices += slices.size() > 1 ? ",[" : "[";
    slices += std::to_string(slice.file) + "," + std::to_string(slice.first) + "," + std::to_string(slice.elements) +
              ",\"" + hexOf(slice.hashes) + "\"]";
  }
  JsonObject json;
  json.add("name", tensor.name).add("dtype", safetensorsName(tensor.type)).addRaw("shape", listOf(tensor.dims));
  if (tensor.isState)
    json.add("state", true);
  else
    json.addRaw("onnx_permutation", listOf(tensor.onnxPermutation)).add("onnx_offset", tensor.onnxOffsetBytes);
  return json.addRaw("slices", slices + "]").str();
}

template <class Items, class Text>
std::string arrayOf(const Items &items, const Text &text) {
  std::string json = "[";
  for (const auto &item : items) {
    json += json.size() > 1 ? ",\n" : "\n";
    json += text(item);
  }
  return json + "]";
}

std::string fileJson(const ManifestFile &file) {
  return JsonObject()
      .add("name", file.name)
      .add("bytes", file.bytes)
      .add("header_hash", hexOf({file.headerHash}))
      .str();
}

/// Reads the members of objects by key. An unknown key is skipped, so that a later version may add one.
class ManifestParser {
public:
  ManifestParser(std::string_view text, const std::string &path) : path(path), json(text, path) {}

  Manifest parse() {
    Manifest result;
    object([&](const std::string &key) {
      if (key == "schema")
        requireSchema();
      else if (key == "model")
        result.modelName = string();
      else if (key == "plan_hash")
        result.planHash = string();
      else if (key == "optimizer")
        result.optimizer = string();
      else if (key == "world_size")
        result.worldSize = static_cast<int>(std::min<std::int64_t>(integer(), INT32_MAX));
      else if (key == "block_bytes")
        requireBlockBytes();
      else if (key == "training")
        result.training = training();
      else if (key == "onnx_data_file")
        result.onnx.dataFile = string();
      else if (key == "onnx_data_bytes")
        result.onnx.dataBytes = integer();
      else if (key == "files")
        array([&](JsonToken first) { result.files.push_back(file(first)); });
      else if (key == "tensors")
        array([&](JsonToken first) { result.tensors.push_back(tensor(first)); });
      else
        json.skipValue();
    });
    return result;
  }

private:
  void requireSchema() {
    const std::string schema = string();
    if (schema != checkpointSchema)
      throw Failure(ExitCode::incompatible, path + ": a checkpoint of schema " + schema.substr(0, 60) +
                                                "; this program reads " + checkpointSchema);
  }

  void requireBlockBytes() {
    if (integer() != checkpointBlockBytes)
      json.fail("hashes are of blocks of another size");
  }

  void object(const std::function<void(const std::string &)> &member) {
    json.expect(JsonToken::beginObject, "an object");
    members(member);
  }
  void members(const std::function<void(const std::string &)> &member) {
    while (json.next() == JsonToken::key)
      member(std::string(json.value()));
  }
  void array(const std::function<void(JsonToken)> &item) {
    json.expect(JsonToken::beginArray, "an array");
    for (JsonToken token = json.next(); token != JsonToken::endArray; token = json.next())
      item(token);
  }
  void requireObject(JsonToken token) {
    if (token != JsonToken::beginObject)
      json.fail("expected an object");
  }
  std::string string() {
    json.expect(JsonToken::string, "a string");
    return json.value();
  }
  std::int64_t integer() {
    json.expect(JsonToken::number, "an integer");
    return json.unsignedInteger();
  }
  std::vector<std::int64_t> integers() {
    std::vector<std::int64_t> values;
    array([&](JsonToken token) {
      if (token != JsonToken::number)
        json.fail("expected an integer");
      values.push_back(json.unsignedInteger());
    });
    return values;
  }
  double number() {
    const JsonToken token = json.next();
    const std::string &text = json.value();
    if (token == JsonToken::literal && text == "null") // not finite
      return std::numeric_limits<double>::quiet_NaN();
    double value = 0;
    if (token != JsonToken::number || std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc())
      json.fail("expected a number");
    return value;
  }
  bool boolean() {
    json.expect(JsonToken::literal, "true or false");
    return json.value() == "true";
  }
  std::vector<std::uint64_t> hashes() {
    const auto values = hashesFrom(string());
    if (!values)
      json.fail("expected hashes of 16 digits each");
    return *values;
  }
  std::uint64_t hash() {
    const std::vector<std::uint64_t> values = hashes();
    if (values.size() != 1)
      json.fail("expected one hash");
    return values.front();
  }

  TrainingState training() {
    TrainingState state;
    BestEvaluation best;
    object([&](const std::string &key) {
      const std::pair<const char *, std::int64_t *> integers[] = {
          {"step", &state.step},
          {"epoch", &state.next.epoch},
          {"sample", &state.next.sample},
          {"samples_in_epoch", &state.samplesInEpoch},
          {"global_batch", &state.globalBatch},
          {"warmup_steps", &state.warmUp.steps},
          {"warmup_end_epoch", &state.warmUp.end.epoch},
          {"warmup_end_sample", &state.warmUp.end.sample},
          {"seed", &state.seed},
          {"skipped_steps", &state.skippedSteps},
          {"epoch_steps", &state.epochSteps},
          {"best_step", &best.step},
          {"evaluations", &state.evaluations.count},
          {"evaluations_since_best", &state.evaluations.sinceBest}};
      for (const auto &[name, member] : integers)
        if (key == name) {
          *member = integer();
          return;
        }
      if (key == "shuffle" || key == "evaluation_due")
        (key == "shuffle" ? state.shuffle : state.evaluationDue) = boolean();
      else if (key == "epoch_loss_sum" || key == "best_value")
        (key == "best_value" ? best.value : state.epochLossSum) = number();
      else if (key == "best_evaluation")
        state.evaluations.best = number();
      else if (key == "warmup_ratio")
        state.warmUp.ratio = number();
      else if (key == "best_metric" || key == "sample_order")
        (key == "best_metric" ? state.bestMetric : state.sampleOrder) = string();
      else if (key == "scalars")
        object([&](const std::string &name) { state.scalars.emplace_back(name, number()); });
      else
        json.skipValue();
    });
    if (best.step > 0)
      state.best = best;
    return state;
  }

  ManifestFile file(JsonToken first) {
    requireObject(first);
    ManifestFile result;
    members([&](const std::string &key) {
      if (key == "name")
        result.name = string();
      else if (key == "bytes")
        result.bytes = integer();
      else if (key == "header_hash")
        result.headerHash = hash();
      else
        json.skipValue();
    });
    if (result.name.empty() || result.name.find('/') != std::string::npos || result.name.front() == '.')
      json.fail("the name of a file is not a plain name");
    return result;
  }

  ManifestSlice slice(JsonToken first) {
    if (first != JsonToken::beginArray)
      json.fail("expected an array");
    ManifestSlice result;
    result.file = static_cast<std::size_t>(integer());
    result.first = integer();
    result.elements = integer();
    result.hashes = hashes();
    json.expect(JsonToken::endArray, "the end of a slice");
    return result;
  }

  ManifestTensor tensor(JsonToken first) {
    requireObject(first);
    ManifestTensor result;
    members([&](const std::string &key) {
      if (key == "name")
        result.name = string();
      else if (key == "dtype")
        result.type = type();
      else if (key == "shape")
        result.dims = integers();
      else if (key == "onnx_permutation")
        result.onnxPermutation = integers();
      else if (key == "onnx_offset")
        result.onnxOffsetBytes = integer();
      else if (key == "state")
        result.isState = boolean();
      else if (key == "slices")
        array([&](JsonToken token) { result.slices.push_back(slice(token)); });
      else
        json.skipValue();
    });
    return result;
  }

  ElementType type() {
    const auto found = elementTypeFromSafetensors(string());
    if (!found)
      json.fail("unknown element type");
    return *found;
  }

  const std::string &path;
  JsonReader json;
};

void requireCovered(const ManifestTensor &tensor, std::size_t files, const std::string &where) {
  std::int64_t end = 0;
  for (const ManifestSlice &slice : tensor.slices) {
    const std::int64_t bytes = checkedMultiply(slice.elements, byteSize(tensor.type), where);
    if (slice.file >= files || slice.first != end || slice.elements == 0 ||
        static_cast<std::int64_t>(slice.hashes.size()) != blockCount(bytes))
      throw Failure(ExitCode::corrupt, where + ": its slices do not cover it once");
    end = checkedAdd(end, slice.elements, where);
  }
  if (end != tensor.elements)
    throw Failure(ExitCode::corrupt, where + ": its slices do not cover it once");
}

} // namespace

std::uint64_t checkpointHash(const void *data, std::int64_t bytes) {
  return Fingerprint().addBytes(data, bytes).value();
}

std::string hexOf(const std::vector<std::uint64_t> &hashes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(hashes.size() * 16);
  for (const std::uint64_t hash : hashes)
    for (int shift = 60; shift >= 0; shift -= 4)
      text += digits[hash >> shift & 15];
  return text;
}

std::optional<std::vector<std::uint64_t>> hashesFrom(std::string_view text) {
  if (text.size() % 16 != 0)
    return std::nullopt;
  std::vector<std::uint64_t> hashes;
  for (; !text.empty(); text.remove_prefix(16)) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + 16, value, 16);
    if (error != std::errc() || end != text.data() + 16)
      return std::nullopt;
    hashes.push_back(value);
  }
  return hashes;
}

std::int64_t blockCount(std::int64_t sliceBytes) {
  return (sliceBytes + checkpointBlockBytes - 1) / checkpointBlockBytes;
}

std::string manifestText(const Manifest &manifest) {
  JsonObject json;
  json.add("schema", checkpointSchema).add("model", manifest.modelName).add("plan_hash", manifest.planHash);
  json.add("optimizer", manifest.optimizer).add("world_size", manifest.worldSize);
  json.add("block_bytes", checkpointBlockBytes).addRaw("compiled", manifest.compiledJson);
  json.addRaw("training", trainingJson(manifest.training));
  json.add("onnx_data_file", manifest.onnx.dataFile).add("onnx_data_bytes", manifest.onnx.dataBytes);
  json.addRaw("files", arrayOf(manifest.files, fileJson)).addRaw("tensors", arrayOf(manifest.tensors, tensorJson));
  std::string text = json.str();
  text.pop_back();
  const std::uint64_t hash = checkpointHash(text.data(), static_cast<std::int64_t>(text.size()));
  return text + std::string(hashKey) + hexOf({hash}) + "\"}\n";
}

Manifest parseManifest(std::string_view text, const std::string &path) {
  const std::size_t at = text.rfind(hashKey);
  const std::string wanted =
      at == std::string_view::npos
          ? ""
          : std::string(hashKey) + hexOf({checkpointHash(text.data(), static_cast<std::int64_t>(at))}) + "\"}\n";
  if (wanted.empty() || text.substr(at) != wanted)
    throw Failure(ExitCode::corrupt, path + ": the bytes of the manifest do not have its hash");
  Manifest manifest = ManifestParser(text, path).parse();
  for (ManifestTensor &tensor : manifest.tensors) {
    const std::string where = path + ": tensor '" + tensor.name + "'";
    tensor.elements = 1;
    for (const std::int64_t dim : tensor.dims)
      tensor.elements = checkedMultiply(tensor.elements, dim, where);
    std::sort(tensor.slices.begin(), tensor.slices.end(),
              [](const ManifestSlice &a, const ManifestSlice &b) { return a.first < b.first; });
    requireCovered(tensor, manifest.files.size(), where);
  }
  std::sort(manifest.tensors.begin(), manifest.tensors.end(),
            [](const ManifestTensor &a, const ManifestTensor &b) { return a.name < b.name; });
  return manifest;
}

} // namespace fsdpc::rt
