#include "runtime/common/data_formats.h"
#include "runtime/common/safetensors.h"

#include <string_view>

namespace fsdpc::rt {
namespace {

constexpr std::string_view boundsSuffix = ".offsets";

bool areBounds(const SafetensorsFile &file, const TensorEntry &entry) {
  return endsWith(entry.name, boundsSuffix) && entry.type == ElementType::i64 && entry.dims.size() == 1 &&
         entry.dims[0] > 0 && file.find(entry.name.substr(0, entry.name.size() - boundsSuffix.size()));
}

void addTensor(Dataset &data, const SafetensorsFile &file, const TensorEntry &entry) {
  const std::size_t index = data.files.size() - 1;
  const TensorEntry *bounds = file.find(entry.name + std::string(boundsSuffix));
  if (entry.dims.empty() || areBounds(file, entry)) // a scalar has no samples
    return;
  if (bounds && areBounds(file, *bounds) && entry.dims.size() == 1)
    data.addRagged(entry.name, entry.type, index, entry.offsetBytes, entry.dims[0], bounds->offsetBytes,
                   bounds->dims[0] - 1);
  else
    data.addExtent(entry.name, entry.type, {entry.dims.begin() + 1, entry.dims.end()}, index, entry.offsetBytes,
                   entry.dims[0]);
}

} // namespace

void openSafetensorsData(Dataset &data, const std::vector<std::string> &paths) {
  for (const std::string &path : paths) {
    const SafetensorsFile file(path);
    data.files.emplace_back(path);
    for (const TensorEntry &entry : file.tensors())
      addTensor(data, file, entry);
  }
}

} // namespace fsdpc::rt
