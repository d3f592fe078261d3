#include "runtime/common/weight_files.h"

#include "runtime/common/json.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

namespace fsdpc::rt {
namespace {

constexpr const char *indexSuffix = ".safetensors.index.json";

std::map<std::string, std::string> readWeightMap(JsonReader &json) {
  std::map<std::string, std::string> fileOf;
  json.expect(JsonToken::beginObject, "an object");
  while (json.next() == JsonToken::key) {
    const std::string tensor = json.value();
    json.expect(JsonToken::string, "the name of a file");
    if (json.value().empty() || json.value().find('/') != std::string::npos || json.value() == "..")
      json.fail("tensor '" + tensor + "': '" + json.value().substr(0, 80) + "' is no file of this folder");
    if (!fileOf.emplace(tensor, json.value()).second)
      json.fail("two entries for tensor '" + tensor + "'");
  }
  return fileOf;
}

/// The file of each tensor.
std::map<std::string, std::string> readIndex(const std::string &path) {
  const std::string text = readFile(path);
  JsonReader json(text, path);
  std::map<std::string, std::string> fileOf;
  bool hasMap = false;
  json.expect(JsonToken::beginObject, "an object");
  while (json.next() == JsonToken::key) {
    if (json.value() != "weight_map") {
      json.skipValue();
      continue;
    }
    fileOf = readWeightMap(json);
    hasMap = true;
  }
  json.expect(JsonToken::end, "the end of the file");
  if (!hasMap)
    throw Failure(ExitCode::corrupt, path + ": has no weight_map, so it is no index of safetensors files");
  return fileOf;
}

std::vector<std::string> filesIn(const std::string &folder, const std::string &suffix) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto &entry : std::filesystem::directory_iterator(folder, error))
    if (endsWith(entry.path().filename().string(), suffix))
      names.push_back(entry.path().string());
  if (error)
    throw Failure(ExitCode::corrupt, folder + ": " + error.message());
  std::sort(names.begin(), names.end());
  return names;
}

bool precedes(const StoredTensor &a, const StoredTensor &b) { return a.name() < b.name(); }

} // namespace

WeightFiles::WeightFiles(const std::string &path) {
  if (folderExists(path))
    openFolder(path);
  else if (endsWith(path, ".index.json"))
    openIndex(path);
  else
    add(path);
  std::sort(stored.begin(), stored.end(), precedes);
  for (std::size_t i = 1; i < stored.size(); ++i)
    if (stored[i].name() == stored[i - 1].name())
      throw Failure(ExitCode::corrupt, stored[i].file->file().path() + ": tensor '" + stored[i].name() +
                                           "' is also in " + stored[i - 1].file->file().path());
}

const StoredTensor *WeightFiles::find(std::string_view name) const {
  const auto it =
      std::lower_bound(stored.begin(), stored.end(), name,
                       [](const StoredTensor &tensor, std::string_view key) { return tensor.name() < key; });
  return it != stored.end() && it->name() == name ? &*it : nullptr;
}

void WeightFiles::openFolder(const std::string &path) {
  folderPath = path;
  if (const std::string whole = path + "/model.safetensors"; fileExists(whole))
    return add(whole);
  const std::vector<std::string> indices = filesIn(path, indexSuffix);
  if (indices.size() > 1)
    throw Failure(ExitCode::corrupt, path + ": has several indices; name the one to read: " + indices.front());
  if (indices.size() == 1)
    return openIndex(indices.front());
  const std::vector<std::string> all = filesIn(path, ".safetensors");
  const bool hasPickles = !filesIn(path, ".bin").empty();
  if (all.empty())
    throw Failure(ExitCode::corrupt,
                  path + ": has no safetensors files" +
                      (hasPickles ? "; save the model with safe_serialization=True, since .bin files "
                                    "are Python pickles, which are not read"
                                  : ""));
  for (const std::string &file : all)
    add(file);
}

void WeightFiles::openIndex(const std::string &path) {
  folderPath = parentDirectory(path);
  const std::map<std::string, std::string> fileOf = readIndex(path);
  std::set<std::string> names;
  for (const auto &[tensor, file] : fileOf)
    names.insert(file);
  for (const std::string &name : names)
    add(folderPath + "/" + name);
  std::size_t found = 0;
  for (const StoredTensor &tensor : stored) {
    const auto expected = fileOf.find(tensor.name());
    const std::string &file = tensor.file->file().path();
    if (expected == fileOf.end() || folderPath + "/" + expected->second != file)
      throw Failure(ExitCode::corrupt, path + ": does not say that tensor '" + tensor.name() + "' is in " + file);
    ++found;
  }
  if (found == fileOf.size())
    return;
  for (const auto &[tensor, file] : fileOf)
    if (std::none_of(stored.begin(), stored.end(), [&](const StoredTensor &s) { return s.name() == tensor; }))
      throw Failure(ExitCode::corrupt,
                    folderPath + "/" + file + ": lacks tensor '" + tensor + "', which " + path + " expects there");
}

void WeightFiles::add(const std::string &path) {
  files.push_back(std::make_unique<SafetensorsFile>(path));
  for (const TensorEntry &entry : files.back()->tensors())
    stored.push_back({files.back().get(), &entry});
}

} // namespace fsdpc::rt
