#include "runtime/checkpoint_tool/commands.h"
#include "runtime/common/file.h"
#include "runtime/common/json.h"
#include "runtime/common/onnx_file.h"
#include "runtime/common/safetensors.h"
#include "runtime/common/taps.h"
#include "runtime/common/weight_averages.h"

#include <cstdio>
#include <map>
#include <string_view>

namespace fsdpc::rt {
namespace {

const std::string averagePrefix = std::string("optimizer.") + averageField + ".";
constexpr std::int64_t defaultShardBytes = 5'000'000'000;

std::int64_t bytesOf(const ManifestTensor &tensor) { return tensor.elements * byteSize(tensor.type); }

/// A parameter, and the tensor that has its values: itself, or its moving average.
struct Exported {
  const ManifestTensor *parameter, *values;
  const std::string &name() const { return parameter->name; }
  std::int64_t bytes() const { return bytesOf(*values); }
};

/// The parameters, without optimizer states. Throws Failure{usage} if averages are wanted and there are none.
std::vector<Exported> parametersOf(const CheckpointReader &reader, const ExportOptions &options) {
  const Manifest &manifest = reader.manifest();
  std::map<std::string_view, const ManifestTensor *> averages;
  if (options.takesAverages)
    for (const ManifestTensor &tensor : manifest.tensors)
      if (tensor.isState && tensor.name.starts_with(averagePrefix))
        averages[std::string_view(tensor.name).substr(averagePrefix.size())] = &tensor;
  if (options.takesAverages && averages.empty())
    throw Failure(ExitCode::usage, reader.folder() + ": has no moving averages; its program was compiled without "
                                                     "--ema_decay, so leave --weights ema out");
  std::vector<Exported> parameters;
  for (const ManifestTensor &tensor : manifest.tensors)
    if (!tensor.isState) {
      const auto average = averages.find(tensor.name);
      parameters.push_back({&tensor, average == averages.end() ? &tensor : average->second});
    }
  return parameters;
}

void writeTensors(CheckpointReader &reader, const std::vector<Exported> &tensors, const std::string &path) {
  std::vector<TensorSpec> specs;
  for (const Exported &tensor : tensors)
    specs.push_back({tensor.name(), tensor.values->type, tensor.values->dims});
  SafetensorsWriter file(path, specs, NameUntilCommit::temporary, "pt");
  for (const Exported &tensor : tensors) {
    const std::size_t index = *file.find(tensor.name());
    forEachBlock(reader, *tensor.values, [&](std::int64_t first, std::int64_t bytes, const std::byte *data) {
      file.writeRange(index, first * byteSize(tensor.values->type), data, bytes);
    });
  }
  file.commit();
}

/// Fills shards in the order of the names. A tensor larger than a shard has one of its own.
std::vector<std::vector<Exported>> shardsOf(const std::vector<Exported> &tensors, std::int64_t maxBytes) {
  std::vector<std::vector<Exported>> shards(1);
  std::int64_t filled = 0;
  for (const Exported &tensor : tensors) {
    if (filled > 0 && filled + tensor.bytes() > maxBytes) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(tensor);
    filled += tensor.bytes();
  }
  return shards;
}

void exportFolder(CheckpointReader &reader, const ExportOptions &options) {
  makeFolders(options.output);
  const auto shards =
      shardsOf(parametersOf(reader, options), options.maxShardBytes > 0 ? options.maxShardBytes : defaultShardBytes);
  if (shards.size() == 1)
    return writeTensors(reader, shards[0], options.output + "/model.safetensors");
  JsonObject map;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, shards.size());
    writeTensors(reader, shards[i], options.output + "/" + name);
    for (const Exported &tensor : shards[i]) {
      map.add(tensor.name(), name);
      total += tensor.bytes();
    }
  }
  writeFile(options.output + "/model.safetensors.index.json",
            JsonObject()
                    .addRaw("metadata", JsonObject().add("total_size", total).str())
                    .addRaw("weight_map", map.str())
                    .str() +
                "\n");
}

/// As --save_onnx of the program.
void exportOnnx(CheckpointReader &reader, const ExportOptions &options) {
  const ManifestOnnx &onnx = reader.manifest().onnx;
  if (options.model.empty())
    throw Failure(ExitCode::usage,
                  "export to ONNX needs --model OUT/model.onnx, the folder of the program that wrote the checkpoint");
  if (onnx.dataFile.empty() || onnx.dataFile.find('/') != std::string::npos)
    throw Failure(ExitCode::incompatible, reader.folder() + ": does not say how its model stores parameters");
  const std::string dataPath = onnxDataPath(options.output);
  const std::string model = withDataFile(readFile(options.model), onnx.dataFile, fileNameOf(dataPath), options.model);
  OutputFile data(dataPath, onnx.dataBytes), copy(options.output, static_cast<std::int64_t>(model.size()));
  for (const auto &[tensor, tensorOfValues] : parametersOf(reader, options)) {
    if (tensor->dims.size() > maxRank || tensor->onnxPermutation.size() != tensor->dims.size())
      throw Failure(ExitCode::incompatible, reader.folder() + ": tensor '" + tensor->name +
                                                "' has no place in the model as it is stored; the program writes " +
                                                "the model with --resume, --steps 0 and --save_onnx");
    ParameterInfo parameter{};
    parameter.dtype = *dtypeOf(tensor->type);
    parameter.shape.rank = static_cast<int>(tensor->dims.size());
    for (std::size_t i = 0; i < tensor->dims.size(); ++i) {
      parameter.shape.dims[i] = tensor->dims[i];
      parameter.onnxPermutation[i] = static_cast<int>(tensor->onnxPermutation[i]);
    }
    parameter.onnxOffsetBytes = tensor->onnxOffsetBytes;
    std::vector<std::byte> values(static_cast<std::size_t>(bytesOf(*tensor)));
    reader.readStored(*tensorOfValues, 0, tensor->elements, values.data());
    writePermuted(data, parameter, values.data());
  }
  copy.write(0, model.data(), static_cast<std::int64_t>(model.size()));
  OutputFile::commitBoth(data, copy);
}

} // namespace

void exportWeights(const std::string &checkpoint, const ExportOptions &options) {
  CheckpointReader reader(checkpointAt(checkpoint));
  if (endsWith(options.output, ".onnx"))
    exportOnnx(reader, options);
  else if (endsWith(options.output, ".safetensors"))
    writeTensors(reader, parametersOf(reader, options), options.output);
  else
    exportFolder(reader, options);
  std::printf("%s: the parameters of %s\n", options.output.c_str(), reader.folder().c_str());
}

} // namespace fsdpc::rt
