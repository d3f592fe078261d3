#include "frontend/onnx/classify.h"
#include "frontend/onnx/graph_edit.h"
#include "frontend/onnx/repair.h"

#include <cstring>
#include <map>

namespace fsdpc {

namespace {

using Bytes = std::vector<uint8_t>;

bool isUniform(const Bytes &bytes, int64_t elementBytes) {
  for (size_t i = elementBytes; i < bytes.size(); ++i)
    if (bytes[i] != bytes[i - elementBytes])
      return false;
  return true;
}

/// Is b [n,m] the transpose of a [m,n]?
bool isTransposeOf(const Bytes &a, const Bytes &b, int64_t m, int64_t n, int64_t elementBytes) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t k = 0; k < n; ++k)
      if (std::memcmp(a.data() + (i * n + k) * elementBytes, b.data() + (k * m + i) * elementBytes, elementBytes) != 0)
        return false;
  return true;
}

class CopyFinder {
public:
  CopyFinder(const Repair &repair, const GraphIndex &index)
      : repair(repair), index(index), signature(exportSignature(index.graph)) {}

  llvm::Error run() {
    std::vector<InitializerRole> roles = classifyInitializers(repair.model, index, signature);
    if (llvm::Error error = tieFoldings(roles))
      return error;
    if (llvm::Error error = tieTables())
      return error;
    if (llvm::Error error = tieFoldedMatrices(roles))
      return error;
    edit.apply();
    return llvm::Error::success();
  }

private:
  /// How `copy` shows `original`: a permutation, empty for the same layout; none if it holds something else.
  llvm::Expected<std::optional<Shape>> layoutOfCopy(const onnx::TensorProto &original,
                                                    const onnx::TensorProto &copy) const {
    Shape from = shapeOf(original), to = shapeOf(copy);
    bool sameShape = from == to, swapped = from.size() == 2 && to.size() == 2 && from[0] == to[1] && from[1] == to[0];
    if ((!sameShape && !swapped) || original.data_type() != copy.data_type() || elementsOf(original) < 4)
      return std::nullopt;
    if (isAbsent(repair.model, original) || isAbsent(repair.model, copy))
      return std::nullopt;
    llvm::Expected<Bytes> a = readTensor(repair.model, original);
    if (!a)
      return a.takeError();
    llvm::Expected<Bytes> b = readTensor(repair.model, copy);
    if (!b)
      return b.takeError();
    int64_t elementBytes = static_cast<int64_t>(a->size()) / elementsOf(original);
    if (isUniform(*a, elementBytes))
      return std::nullopt;
    if (sameShape && *a == *b)
      return Shape();
    if (swapped && isTransposeOf(*a, *b, from[0], from[1], elementBytes))
      return Shape{1, 0};
    return std::nullopt;
  }

  llvm::Error tieIfCopy(const onnx::TensorProto &original, const onnx::TensorProto &copy) {
    if (tied.contains(copy.name()) || tied.contains(original.name()) || original.name() == copy.name())
      return llvm::Error::success();
    llvm::Expected<std::optional<Shape>> layout = layoutOfCopy(original, copy);
    if (!layout)
      return layout.takeError();
    if (!*layout)
      return llvm::Error::success();
    tied.insert(copy.name());
    edit.addNote(*repair.model.graph().mutable_initializer(index.initializerPosition(original.name())),
                 "was also stored as " + copy.name());
    edit.replaceInitializer(copy.name(), original.name(), **layout);
    repair.remarks.push_back("'" + copy.name() + "' holds the same values as '" + original.name() +
                             "': they are one parameter (--no_tie keeps them apart)");
    return llvm::Error::success();
  }

  /// Foldings of one parameter, and the parameter itself where it is also in the file.
  llvm::Error tieFoldings(llvm::ArrayRef<InitializerRole> roles) {
    llvm::StringMap<const onnx::TensorProto *> firstOf;
    for (int i : index.initializersByFirstRead()) {
      const onnx::TensorProto &tensor = index.graph.initializer(i);
      std::string origin = originOf(tensor, roles[i]);
      if (roles[i].kind != InitializerKind::parameter || origin.empty())
        continue;
      const onnx::TensorProto *&first = firstOf[origin];
      if (!first)
        first = index.initializer(origin) ? index.initializer(origin) : &tensor;
      if (llvm::Error error = tieIfCopy(*first, tensor))
        return error;
    }
    return llvm::Error::success();
  }

  std::string originOf(const onnx::TensorProto &tensor, const InitializerRole &role) const {
    auto folded = signature.foldedFrom.find(tensor.name());
    if (folded != signature.foldedFrom.end())
      return folded->second.size() == 1 ? folded->second.front() : "";
    if (role.name == tensor.name())
      return "";
    return (withoutCallCount(moduleOf(role.name)) + "." + leafOf(role.name)).str();
  }

  /// An embedding table and the matrix that turns features into scores.
  llvm::Error tieTables() {
    std::vector<const onnx::TensorProto *> tables, weights;
    for (const onnx::TensorProto &tensor : index.graph.initializer()) {
      bool isFloatMatrix =
          tensor.dims_size() == 2 && dtypeOf(tensor.data_type()) && isFloat(*dtypeOf(tensor.data_type()));
      if (!isFloatMatrix)
        continue;
      bool isTable = false, isWeight = false;
      for (const InitializerRead &read : index.readsOf(tensor.name())) {
        isTable |= useRole(index, read) == UseRole::table;
        isWeight |= isLinearWeight(index.node(read), read.input);
      }
      if (isTable)
        tables.push_back(&tensor);
      else if (isWeight)
        weights.push_back(&tensor);
    }
    for (const onnx::TensorProto *table : tables)
      for (const onnx::TensorProto *weight : weights)
        if (elementsOf(*table) == elementsOf(*weight))
          if (llvm::Error error = tieIfCopy(*table, *weight))
            return error;
    return llvm::Error::success();
  }

  /// TorchScript tells no origin: a matrix that it folded may be one that is in the file under its own name as well.
  llvm::Error tieFoldedMatrices(llvm::ArrayRef<InitializerRole> roles) {
    if (signature.known())
      return llvm::Error::success();
    std::map<int64_t, std::vector<const onnx::TensorProto *>> named, folded;
    for (int i = 0; i < index.graph.initializer_size(); ++i) {
      const onnx::TensorProto &tensor = index.graph.initializer(i);
      if (roles[i].kind == InitializerKind::parameter && tensor.dims_size() == 2 && !isAbsent(repair.model, tensor))
        (isExporterName(tensor.name()) ? folded : named)[elementsOf(tensor)].push_back(&tensor);
    }
    for (auto &[elements, copies] : folded)
      if (auto originals = named.find(elements); originals != named.end())
        if (llvm::Error error = tieEqualSums(originals->second, copies))
          return error;
    return llvm::Error::success();
  }

  /// Every tensor is read once; only those of one checksum are compared.
  llvm::Error tieEqualSums(llvm::ArrayRef<const onnx::TensorProto *> originals,
                           llvm::ArrayRef<const onnx::TensorProto *> copies) {
    std::map<uint64_t, const onnx::TensorProto *> bySum;
    for (const onnx::TensorProto *original : originals) {
      llvm::Expected<uint64_t> sum = sumOf(*original);
      if (!sum)
        return sum.takeError();
      bySum.try_emplace(*sum, original);
    }
    for (const onnx::TensorProto *copy : copies) {
      llvm::Expected<uint64_t> sum = sumOf(*copy);
      if (!sum)
        return sum.takeError();
      if (auto original = bySum.find(*sum); original != bySum.end())
        if (llvm::Error error = tieIfCopy(*original->second, *copy))
          return error;
    }
    return llvm::Error::success();
  }

  /// The same for a matrix and its transpose: no order counts but that of the bytes of one element.
  llvm::Expected<uint64_t> sumOf(const onnx::TensorProto &tensor) const {
    llvm::Expected<Bytes> bytes = readTensor(repair.model, tensor);
    if (!bytes)
      return bytes.takeError();
    size_t width = bytes->size() / std::max<int64_t>(1, elementsOf(tensor));
    uint64_t sum = 0;
    for (size_t i = 0; i + width <= bytes->size() && width > 0; i += width) {
      uint64_t element = 0;
      std::memcpy(&element, bytes->data() + i, std::min<size_t>(width, sizeof element));
      sum += element * 0x9e3779b97f4a7c15u;
    }
    return sum;
  }

  const Repair &repair;
  const GraphIndex &index;
  ExportSignature signature;
  llvm::StringSet<> tied;
  GraphEdit edit{repair.model.graph()};
};

} // namespace

llvm::Error tieCopies(const Repair &repair) {
  if (repair.options.noTie)
    return llvm::Error::success();
  GraphIndex index(repair.model.graph());
  return CopyFinder(repair, index).run();
}

} // namespace fsdpc
