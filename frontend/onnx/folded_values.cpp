#include "frontend/onnx/folded_values.h"

#include "frontend/onnx/folding.h"
#include "llvm/ADT/STLExtras.h"
#include <cstring>

namespace fsdpc {

FoldedValues::FoldedValues(const Repair &repair, const GraphIndex &index, const ExportSignature &signature,
                           GraphEdit &edit)
    : repair(repair), index(index), signature(signature), edit(edit), traced(index.graph, signature) {
  for (const onnx::TensorProto &tensor : index.graph.initializer()) {
    auto folded = signature.foldedFrom.find(tensor.name());
    std::string name = folded == signature.foldedFrom.end() ? "" : parameterOf(signature, tensor);
    if (name.empty())
      continue;
    const Folding folding = foldingOf(signature, tensor.name(), folded->second);
    if (!folding.computes && !folding.repeats && !folding.readsRows)
      holders.try_emplace(name, &tensor);
  }
}

const onnx::TensorProto *FoldedValues::parameter(llvm::StringRef name) const {
  auto found = made.find(name);
  return found == made.end() ? index.initializer(name) : found->second;
}

std::string FoldedValues::make(llvm::StringRef name, int32_t onnxType, llvm::ArrayRef<int64_t> shape,
                               llvm::ArrayRef<uint8_t> bytes, llvm::StringRef note) {
  std::string value = edit.addParameter(name, onnxType, shape, bytes, note);
  const auto &initializers = repair.model.graph().initializer();
  made[name] = &initializers.Get(initializers.size() - 1);
  return value;
}

llvm::Expected<std::optional<std::vector<float>>> FoldedValues::floats(const onnx::TensorProto &tensor) const {
  if (tensor.data_type() != onnx::TensorProto::FLOAT || isAbsent(repair.model, tensor))
    return std::nullopt;
  llvm::Expected<std::vector<uint8_t>> bytes = readTensor(repair.model, tensor);
  if (!bytes)
    return bytes.takeError();
  std::vector<float> values(bytes->size() / sizeof(float));
  if (!values.empty())
    std::memcpy(values.data(), bytes->data(), values.size() * sizeof(float));
  return values;
}

bool FoldedValues::hasSibling(const onnx::TensorProto &tensor, llvm::StringRef name) const {
  return llvm::any_of(signature.parameters, [&](const std::string &other) {
    if (other == name || moduleOf(other) != moduleOf(name))
      return false;
    const onnx::TensorProto *held = parameter(other) ? parameter(other) : moved(other);
    return !held || elementsOf(*held) == elementsOf(tensor);
  });
}

std::string FoldedValues::foreignReader(const onnx::TensorProto &tensor, llvm::StringRef parameter) const {
  auto [own, copied] = llvm::StringRef(tensor.name()).split('.');
  auto isMerged = [&, own = own](llvm::StringRef name) {
    return traced.isLost(name) && withoutNumber(name) == withoutNumber(own) && index.initializerPosition(name) < 0 &&
           index.producerPosition(name) < 0;
  };
  for (const Read &read : index.consumers(tensor.name())) {
    const int position = traced.statementOf(read.node);
    if (position < 0 || llvm::is_contained(traced.statements[position].arguments, own))
      continue;
    llvm::StringRef scope = index.scopes[read.node];
    const bool isOutside = !isWithin(withoutCallCount(scope), moduleOf(parameter)) && !isWithin(parameter, scope);
    // If the module has no other parameter like it, the author computed the same value twice.
    const bool mayBeTwo = copied.empty() && llvm::any_of(traced.statements[position].arguments, isMerged) &&
                          hasSibling(tensor, parameter);
    if (isOutside || mayBeTwo)
      return nameOf(index.graph.node(read.node)).str();
  }
  return "";
}

} // namespace fsdpc
