#include "frontend/onnx/equal_values.h"

#include "frontend/onnx/metadata.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

namespace {
constexpr int64_t mostElements = 1 << 16;
} // namespace

bool holdsEqualVectors(const OnnxModel &model, const GraphIndex &index) {
  llvm::StringSet<> seen;
  for (const onnx::TensorProto &tensor : index.graph.initializer()) {
    const bool isNamedVector = tensor.dims_size() == 1 && tensor.data_type() == onnx::TensorProto::FLOAT &&
                               !isExporterName(tensor.name()) && !index.consumers(tensor.name()).empty();
    if (!isNamedVector || elementsOf(tensor) < 2 || elementsOf(tensor) > mostElements || isAbsent(model, tensor))
      continue;
    llvm::Expected<std::vector<uint8_t>> bytes = readTensor(model, tensor);
    if (!bytes) {
      llvm::consumeError(bytes.takeError()); // whoever needs the values says so
      continue;
    }
    if (!seen.insert(llvm::StringRef(reinterpret_cast<const char *>(bytes->data()), bytes->size())).second)
      return true;
  }
  return false;
}

} // namespace fsdpc
