#include "runtime/common/adapters.h"

#include "runtime/common/json.h"

#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>

namespace fsdpc::rt {
namespace {

constexpr const char *peftPrefix = "base_model.model.";

std::string withoutEnding(std::string name, std::string_view ending) {
  return endsWith(name, ending) ? name.substr(0, name.size() - ending.size()) : name;
}

std::string moduleOf(const std::string &parameter) { return parameter.substr(0, parameter.rfind('.')); }

std::string listJson(const std::vector<std::string> &items) {
  std::string text;
  for (const std::string &item : items)
    text += (text.empty() ? "" : ", ") + jsonString(item);
  return "[" + text + "]";
}

/// What an adapter_config.json says of the computation.
struct AdapterConfig {
  double rank = 0, alpha = 0;
  bool isStable = false;
  std::string other; ///< a key whose value asks for something else
  double scale() const { return alpha / (isStable ? std::sqrt(rank) : rank); }
};

AdapterConfig readConfig(const std::string &path) {
  const std::string text = readFile(path);
  JsonReader json(text, path);
  AdapterConfig config;
  json.expect(JsonToken::beginObject, "an object");
  while (json.next() == JsonToken::key) {
    const std::string key = json.value();
    if (key == "r" || key == "lora_alpha") {
      json.expect(JsonToken::number, "a number");
      (key == "r" ? config.rank : config.alpha) = std::strtod(json.value().c_str(), nullptr);
    } else if (key == "use_rslora" || key == "use_dora" || key == "lora_bias") {
      json.expect(JsonToken::literal, "true or false");
      const bool isOn = json.value() == "true";
      if (key == "use_rslora")
        config.isStable = isOn;
      else if (isOn)
        config.other = key;
    } else if (key == "rank_pattern" || key == "alpha_pattern") {
      if (json.next() == JsonToken::beginObject && json.next() != JsonToken::endObject)
        throw Failure(ExitCode::incompatible, path + ": " + key + " gives single modules other adapters");
    } else {
      json.skipValue();
    }
  }
  return config;
}

class AdaptersTap final : public FileTap {
public:
  AdaptersTap(const ProgramInfo &program, const ModelFolder &folder, int rank)
      : FileTap(program), folder(folder), factors(adapterFactors(program)) {
    if (rank != 0)
      return;
    makeFolders(folder.path);
    std::vector<TensorSpec> specs;
    for (std::size_t i = 0; i < program.parameters.size(); ++i)
      if (const ParameterInfo &parameter = program.parameters[i]; parameter.trainable)
        specs.push_back({peftPrefix + folder.names[i], elementType(parameter.dtype), dimsOf(parameter.shape)});
    writer.emplace(folder.path + "/adapter_model.safetensors", std::move(specs), NameUntilCommit::none, "pt");
  }

  void take(int parameter, const void *data, std::int64_t first, std::int64_t elements) override {
    if (!writer)
      return;
    const auto i = static_cast<std::size_t>(parameter);
    const std::int64_t width = byteSize(program.parameters[i].dtype);
    if (const auto tensor = writer->find(peftPrefix + folder.names[i]))
      writer->writeRange(*tensor, first * width, data, elements * width);
  }

  void finish() override {
    if (!writer)
      return;
    writer->commit();
    writeFile(folder.path + "/adapter_config.json", configText());
  }

private:
  /// The scale is stated as lora_alpha / r, as for adapters that are not rsLoRA's.
  std::string configText() const {
    std::vector<std::string> targets, others;
    for (const AdapterInfo &adapter : program.adapters)
      targets.push_back(withoutEnding(folder.names[static_cast<std::size_t>(adapter.weight)], ".weight"));
    for (std::size_t i = 0; i < program.parameters.size(); ++i)
      if (program.parameters[i].trainable && !factors[i])
        if (const std::string module = moduleOf(folder.names[i]); others.empty() || others.back() != module)
          others.push_back(module);
    const AdapterInfo &first = program.adapters.front();
    const std::int64_t rank = program.parameters[static_cast<std::size_t>(first.down)].shape.dims[0];
    JsonObject config;
    config.add("peft_type", "LORA").addRaw("task_type", "null");
    config.addRaw("base_model_name_or_path", folder.source.empty() ? "null" : jsonString(folder.source));
    config.add("r", rank).add("lora_alpha", first.scale * static_cast<double>(rank));
    config.add("lora_dropout", first.dropout).add("use_rslora", false).add("bias", "none");
    config.add("fan_in_fan_out", first.inputFirst).add("inference_mode", true).add("init_lora_weights", true);
    config.addRaw("target_modules", listJson(targets));
    config.addRaw("modules_to_save", others.empty() ? "null" : listJson(others));
    return config.str();
  }

  ModelFolder folder;
  std::vector<bool> factors;
  std::optional<SafetensorsWriter> writer; ///< on rank 0
};

class MergingTap final : public FileTap {
public:
  MergingTap(const ProgramInfo &program, std::unique_ptr<FileTap> merged, int rank)
      : FileTap(program), merged(std::move(merged)), rank(rank), isFactor(adapterFactors(program)) {
    for (const AdapterInfo &adapter : program.adapters)
      adapterOf[adapter.weight] = &adapter;
  }

  void take(int parameter, const void *data, std::int64_t first, std::int64_t elements) override {
    if (rank != 0)
      return;
    const auto adapter = adapterOf.find(parameter);
    if (isFactor[static_cast<std::size_t>(parameter)])
      factors[parameter] = asNumbers(parameter, data, elements);
    else if (adapter == adapterOf.end())
      merged->take(parameter, data, first, elements);
    else
      takeWeight(*adapter->second, static_cast<const std::byte *>(data));
  }

  void finish() override { merged->finish(); }

private:
  std::vector<double> asNumbers(int parameter, const void *data, std::int64_t elements) const {
    std::vector<double> numbers(static_cast<std::size_t>(elements));
    convertElements(elementType(program.parameters[static_cast<std::size_t>(parameter)].dtype),
                    static_cast<const std::byte *>(data), DType::f64, reinterpret_cast<std::byte *>(numbers.data()),
                    elements);
    return numbers;
  }

  /// Row by row: row i of the weight changes by the sum over the rank of left[i, r] * right[r, :].
  void takeWeight(const AdapterInfo &adapter, const std::byte *data) {
    const ParameterInfo &weight = program.parameters[static_cast<std::size_t>(adapter.weight)];
    const auto down = factors.extract(adapter.down), up = factors.extract(adapter.up);
    if (down.empty() || up.empty())
      throw Failure(ExitCode::internal, std::string(weight.name) + " is tapped before its adapter");
    const std::int64_t rows = weight.shape.dims[0], columns = weight.shape.dims[1];
    const auto ranks = static_cast<std::int64_t>(down.mapped().size()) / (adapter.inputFirst ? rows : columns);
    const std::int64_t rowBytes = columns * byteSize(weight.dtype);
    std::vector<std::byte> changed(static_cast<std::size_t>(rows * rowBytes));
    for (std::int64_t i = 0; i < rows; ++i) {
      std::vector<double> sum = asNumbers(adapter.weight, data + i * rowBytes, columns);
      for (std::int64_t r = 0; r < ranks; ++r)
        if (adapter.inputFirst)
          addScaled(sum, adapter.scale * down.mapped()[at(r * rows + i)], up.mapped().data() + r, ranks);
        else
          addScaled(sum, adapter.scale * up.mapped()[at(i * ranks + r)], down.mapped().data() + r * columns, 1);
      convertElements(ElementType::f64, reinterpret_cast<const std::byte *>(sum.data()), weight.dtype,
                      changed.data() + i * rowBytes, columns);
    }
    merged->take(adapter.weight, changed.data(), 0, rows * columns);
  }

  static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

  static void addScaled(std::vector<double> &sum, double scale, const double *values, std::int64_t stride) {
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] += scale * values[static_cast<std::int64_t>(i) * stride];
  }

  std::unique_ptr<FileTap> merged;
  int rank;
  std::vector<bool> isFactor;
  std::map<int, const AdapterInfo *> adapterOf; ///< by weight
  std::map<int, std::vector<double>> factors;   ///< until their weight comes
};

} // namespace

std::vector<bool> adapterFactors(const ProgramInfo &program) {
  std::vector<bool> factors(program.parameters.size(), false);
  for (const AdapterInfo &adapter : program.adapters)
    factors[static_cast<std::size_t>(adapter.down)] = factors[static_cast<std::size_t>(adapter.up)] = true;
  return factors;
}

void requireSameAdapters(const ProgramInfo &program, const std::string &folder) {
  const std::string path = folder + "/adapter_config.json";
  if (!fileExists(path))
    return;
  const AdapterConfig config = readConfig(path);
  if (!config.other.empty())
    throw Failure(ExitCode::incompatible, path + ": " + config.other + " is on, which this program does not compute");
  const double scale = program.adapters.front().scale;
  if (!(std::abs(config.scale() - scale) <= 1e-6 * scale))
    throw Failure(ExitCode::incompatible, path + ": these adapters are scaled by " + jsonNumber(config.scale()) +
                                              ", those of this program by " + jsonNumber(scale) +
                                              " (alpha and rank of --lora)");
}

std::unique_ptr<FileTap> adaptersTap(const ProgramInfo &program, const ModelFolder &folder, int rank) {
  return std::make_unique<AdaptersTap>(program, folder, rank);
}

std::unique_ptr<FileTap> mergingTap(const ProgramInfo &program, std::unique_ptr<FileTap> merged, int rank) {
  return std::make_unique<MergingTap>(program, std::move(merged), rank);
}

} // namespace fsdpc::rt
