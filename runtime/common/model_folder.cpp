#include "runtime/common/model_folder.h"

#include "runtime/common/json.h"

#include <algorithm>
#include <filesystem>
#include <set>

namespace fsdpc::rt {
namespace {

constexpr const char *indexName = "model.safetensors.index.json";

bool isWeightsFile(const std::string &name) {
  const bool isNamed = name == "model.safetensors" || name.rfind("model-", 0) == 0;
  return name == indexName || (isNamed && endsWith(name, ".safetensors"));
}

/// Configuration, tokenizer, preprocessor: text that goes along with weights.
bool goesAlong(const std::string &name) {
  static constexpr std::string_view endings[] = {".json", ".txt", ".model", ".jinja"};
  return !endsWith(name, ".index.json") && std::any_of(std::begin(endings), std::end(endings),
                                                       [&](std::string_view ending) { return endsWith(name, ending); });
}

std::vector<std::string> filesOf(const std::string &folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto &entry : std::filesystem::directory_iterator(folder, error))
    if (entry.is_regular_file(error))
      names.push_back(entry.path().filename().string());
  if (error)
    throw Failure(ExitCode::storage, folder + ": " + error.message());
  return names;
}

/// model-00002-of-00003.safetensors
std::string fileName(std::size_t file, std::size_t files) {
  if (files == 1)
    return "model.safetensors";
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", file + 1, files);
  return name;
}

class FolderTap final : public FileTap {
public:
  FolderTap(const ProgramInfo &program, const ModelFolder &folder, int rank) : FileTap(program), folder(folder) {
    if (rank != 0)
      return;
    makeFolders(folder.path);
    std::vector<std::vector<TensorSpec>> specs(1);
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < program.parameters.size(); ++i) {
      const ParameterInfo &parameter = program.parameters[i];
      fileOf.push_back(specs.size() - 1);
      if (folder.names[i].empty())
        continue;
      const std::int64_t own = parameter.shape.elements() * byteSize(parameter.dtype);
      if (!specs.back().empty() && bytes + own > folder.maxFileBytes) {
        specs.emplace_back();
        bytes = 0;
      }
      bytes += own;
      totalBytes += own;
      fileOf.back() = specs.size() - 1;
      specs.back().push_back({folder.names[i], elementType(parameter.dtype), dimsOf(parameter.shape)});
    }
    for (std::size_t i = 0; i < specs.size(); ++i)
      writers.push_back(std::make_unique<SafetensorsWriter>(folder.path + "/" + fileName(i, specs.size()),
                                                            std::move(specs[i]), NameUntilCommit::none, "pt"));
  }

  void take(int parameter, const void *data, std::int64_t first, std::int64_t elements) override {
    if (writers.empty())
      return;
    const auto i = static_cast<std::size_t>(parameter);
    const std::int64_t width = byteSize(program.parameters[i].dtype);
    SafetensorsWriter &writer = *writers[fileOf[i]];
    if (const auto tensor = writer.find(folder.names[i]))
      writer.writeRange(*tensor, first * width, data, elements * width);
  }

  void finish() override {
    if (writers.empty())
      return;
    std::set<std::string> written;
    for (std::size_t i = 0; i < writers.size(); ++i) {
      writers[i]->commit();
      written.insert(fileName(i, writers.size()));
    }
    if (writers.size() > 1) {
      writeFile(folder.path + "/" + indexName, indexText());
      written.insert(indexName);
    }
    for (const std::string &name : filesOf(folder.path))
      if (isWeightsFile(name) && !written.contains(name))
        removeFile(folder.path + "/" + name);
    copyOthers();
  }

private:
  std::string indexText() const {
    JsonObject map;
    for (std::size_t i = 0; i < fileOf.size(); ++i)
      if (!folder.names[i].empty())
        map.add(folder.names[i], fileName(fileOf[i], writers.size()));
    return JsonObject()
        .addRaw("metadata", JsonObject().add("total_size", totalBytes).str())
        .addRaw("weight_map", map.str())
        .str();
  }

  void copyOthers() const {
    std::error_code error;
    if (folder.source.empty() || std::filesystem::equivalent(folder.source, folder.path, error))
      return;
    for (const std::string &name : filesOf(folder.source))
      if (goesAlong(name))
        writeFile(folder.path + "/" + name, readFile(folder.source + "/" + name));
  }

  ModelFolder folder;
  std::int64_t totalBytes = 0;
  std::vector<std::size_t> fileOf; ///< by parameter; on rank 0, as is the next
  std::vector<std::unique_ptr<SafetensorsWriter>> writers;
};

} // namespace

bool isFolderName(const std::string &path) { return endsWith(path, "/") || folderExists(path); }

std::unique_ptr<FileTap> folderTap(const ProgramInfo &program, const ModelFolder &folder, int rank) {
  return std::make_unique<FolderTap>(program, folder, rank);
}

} // namespace fsdpc::rt
