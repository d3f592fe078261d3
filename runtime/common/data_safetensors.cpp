#include "runtime/common/data_formats.h"
#include "runtime/common/safetensors.h"

namespace fsdpc::rt {

void openSafetensorsData(Dataset &data, const std::vector<std::string> &paths) {
  for (const std::string &path : paths) {
    const SafetensorsFile file(path);
    data.files.emplace_back(path);
    for (const TensorEntry &entry : file.tensors())
      if (!entry.dims.empty()) // a scalar has no samples
        data.addExtent(entry.name, entry.type, {entry.dims.begin() + 1, entry.dims.end()}, data.files.size() - 1,
                       entry.offsetBytes, entry.dims[0]);
  }
}

} // namespace fsdpc::rt
