#include "frontend/onnx/equal_values.h"

#include "frontend/onnx/metadata.h"
#include <set>

namespace fsdpc {

namespace {
constexpr int64_t maxElements = 1 << 16;
} // namespace

bool holdsEqualVectors(const OnnxModel &model, const GraphIndex &index) {
  std::set<std::pair<int64_t, ElementDigest>> seen;
  for (const onnx::TensorProto &tensor : index.graph.initializer()) {
    const bool isNamedVector = tensor.dims_size() == 1 && tensor.data_type() == onnx::TensorProto::FLOAT &&
                               !isExporterName(tensor.name()) && !index.consumers(tensor.name()).empty();
    if (!isNamedVector || elementsOf(tensor) < 2 || elementsOf(tensor) > maxElements || isAbsent(model, tensor))
      continue;
    llvm::Expected<TensorFacts> facts = allFacts(model, tensor);
    if (!facts) {
      llvm::consumeError(facts.takeError()); // a reader that needs the values reports it
      continue;
    }
    if (!seen.insert({facts->elements, facts->digest}).second)
      return true;
  }
  return false;
}

bool ValueKinds::isUniform(const onnx::TensorProto &tensor) {
  auto [known, isNew] = uniform.try_emplace(tensor.name(), true);
  if (!isNew)
    return known->second;
  llvm::Expected<bool> same = fsdpc::isUniform(model, tensor, /*ifAbsent=*/true);
  if (same)
    known->second = *same;
  else
    reason = llvm::toString(same.takeError());
  return known->second;
}

bool ValueKinds::isMonotonic(const onnx::TensorProto &tensor) {
  constexpr int64_t minElements = 8;
  const int64_t elements = elementsOf(tensor);
  const bool isVector = tensor.dims_size() > 0 && tensor.dims(tensor.dims_size() - 1) == elements;
  const bool isSingle = tensor.data_type() == onnx::TensorProto::FLOAT;
  if (!isVector || !isSingle || elements < minElements || elements > maxElements || isAbsent(model, tensor))
    return false;
  auto [known, isNew] = monotonic.try_emplace(tensor.name(), false);
  if (!isNew)
    return known->second;
  llvm::Expected<TensorFacts> facts =
      model.facts->learn(model, tensor, [](const TensorFacts &seen) { return !seen.ascends && !seen.descends; });
  if (!facts) {
    llvm::consumeError(facts.takeError());
    return false;
  }
  known->second = facts->ascends || facts->descends;
  return known->second;
}

} // namespace fsdpc
