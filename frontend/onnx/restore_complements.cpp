// Recomputes from the parameter what the exporter stored as one minus the parameter.
#include "frontend/onnx/classify.h"
#include "frontend/onnx/graph_edit.h"
#include "frontend/onnx/repair.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/bit.h"
#include <cstring>
#include <set>

namespace fsdpc {

namespace {

/// TorchScript's constant folding does not record origins, but it folds only values that parameters and buffers
/// determine.
class Complements {
public:
  Complements(const Repair &repair, const GraphIndex &index) : repair(repair), index(index) {}

  llvm::Error run() {
    const std::vector<InitializerRole> roles = classifyInitializers(repair.model, index, exportSignature(index.graph));
    for (int i = 0; i < index.graph.initializer_size(); ++i)
      if (roles[i].kind == InitializerKind::parameter && isCandidate(index.graph.initializer(i)))
        parametersOf[moduleOf(index.graph.initializer(i).name())].push_back(i);
    for (int i = 0, many = index.graph.initializer_size(); i < many; ++i) {
      const onnx::TensorProto &tensor = index.graph.initializer(i);
      const bool isFolded = roles[i].kind == InitializerKind::constant && isExporterName(tensor.name());
      if (!isFolded || !isCandidate(tensor))
        continue;
      for (const InitializerRead &read : index.readsOf(tensor.name()))
        if (llvm::Error error = restore(tensor, read))
          return error;
    }
    edit.apply();
    return llvm::Error::success();
  }

private:
  bool isCandidate(const onnx::TensorProto &tensor) const {
    constexpr int64_t largest = 1 << 22;
    return tensor.data_type() == onnx::TensorProto::FLOAT && elementsOf(tensor) > 1 && elementsOf(tensor) <= largest &&
           !isAbsent(repair.model, tensor);
  }

  llvm::Error restore(const onnx::TensorProto &folded, const InitializerRead &read) {
    std::vector<std::string> found;
    const std::vector<int> &parameters = parametersOf[index.scopes[read.node]];
    // A module usually has few direct parameters. The limit keeps the work linear if one module has all.
    constexpr size_t maxParameters = 64;
    for (int position : llvm::ArrayRef(parameters).take_front(maxParameters)) {
      llvm::Expected<bool> isIt = isComplement(index.graph.initializer(position), folded);
      if (!isIt)
        return isIt.takeError();
      if (*isIt)
        found.push_back(index.graph.initializer(position).name());
    }
    if (found.empty() || !read.permutation.empty())
      return llvm::Error::success();
    std::string weighed = parameterOfMix(read, found);
    llvm::Expected<bool> mayBeChance = isUniform(repair.model, folded, /*ifAbsent=*/false);
    if (!mayBeChance)
      return mayBeChance.takeError();
    if (weighed.empty() && *mayBeChance)
      return llvm::Error::success();
    if (weighed.empty() && found.size() > 1)
      lose(folded, found);
    else
      readFrom(folded, read, weighed.empty() ? found.front() : weighed);
    return llvm::Error::success();
  }

  void readFrom(const onnx::TensorProto &folded, const InitializerRead &read, llvm::StringRef parameter) {
    std::string &value = valueOf[parameter];
    if (value.empty()) {
      value = edit.addScalar("Sub", parameter, 1, /*isScalarFirst=*/true);
      repair.remarks.push_back("'" + folded.name() + "' is one minus '" + parameter.str() +
                               "', which the exporter computed; it is computed from the parameter again");
    }
    edit.setInput(read.node, read.input, value);
  }

  void lose(const onnx::TensorProto &folded, llvm::ArrayRef<std::string> names) {
    for (const std::string &name : names)
      if (lost.insert(name).second)
        repair.model.lost.push_back({name, "or one of equal values was computed into '" + folded.name() +
                                               "' as one minus it, and nothing tells which"});
  }

  /// x * p + y * (1 - p): the parameter of `names` that weights the other term; "" if none does.
  std::string parameterOfMix(const InitializerRead &read, llvm::ArrayRef<std::string> names) const {
    const onnx::NodeProto &product = index.node(read);
    if (product.op_type() != "Mul" || product.output_size() != 1)
      return "";
    for (const Read &next : index.consumers(product.output(0))) {
      const onnx::NodeProto &sum = index.graph.node(next.node);
      const onnx::NodeProto *other = sum.op_type() == "Add" ? index.producer(sum.input(1 - next.input)) : nullptr;
      if (other && other->op_type() == "Mul")
        for (const std::string &input : other->input())
          if (llvm::is_contained(names, input))
            return input;
    }
    return "";
  }

  /// True if the first elements show that a tensor is not one minus the other.
  llvm::Expected<bool> startsOtherwise(const onnx::TensorProto &parameter, const onnx::TensorProto &folded) const {
    llvm::Expected<TensorFacts> of = firstFacts(repair.model, parameter);
    if (!of)
      return of.takeError();
    llvm::Expected<TensorFacts> result = firstFacts(repair.model, folded);
    if (!result)
      return result.takeError();
    return 1.0F - llvm::bit_cast<float>(static_cast<uint32_t>(of->first)) !=
           llvm::bit_cast<float>(static_cast<uint32_t>(result->first));
  }

  /// Compares exactly: the rounded difference is the same on every machine.
  llvm::Expected<bool> isComplement(const onnx::TensorProto &parameter, const onnx::TensorProto &folded) const {
    if (shapeOf(parameter) != shapeOf(folded))
      return false;
    llvm::Expected<bool> differs = startsOtherwise(parameter, folded);
    if (!differs || *differs)
      return differs ? llvm::Expected<bool>(false) : differs.takeError();
    llvm::Expected<std::vector<uint8_t>> of = readTensor(repair.model, parameter);
    if (!of)
      return of.takeError();
    llvm::Expected<std::vector<uint8_t>> result = readTensor(repair.model, folded);
    if (!result)
      return result.takeError();
    for (size_t at = 0; at < result->size(); at += sizeof(float)) {
      float one, other;
      std::memcpy(&one, of->data() + at, sizeof one);
      std::memcpy(&other, result->data() + at, sizeof other);
      if (1.0F - one != other)
        return false;
    }
    return true;
  }

  const Repair &repair;
  const GraphIndex &index;
  llvm::StringMap<std::vector<int>> parametersOf; ///< by module
  llvm::StringMap<std::string> valueOf;           ///< by parameter: one minus it
  std::set<std::string> lost;
  GraphEdit edit{repair.model.graph()};
};

} // namespace

llvm::Error restoreComplements(const Repair &repair) {
  GraphIndex index(repair.model.graph());
  if (exportSignature(index.graph).known())
    return llvm::Error::success();
  return Complements(repair, index).run();
}

} // namespace fsdpc
