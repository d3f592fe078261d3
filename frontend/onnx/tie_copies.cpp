#include "frontend/onnx/classify.h"
#include "frontend/onnx/graph_edit.h"
#include "frontend/onnx/repair.h"
#include "frontend/onnx/tensor_source.h"
#include "frontend/onnx/use_role.h"

#include <cstring>
#include <map>

namespace fsdpc {

namespace {

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
  /// The permutation by which `copy` holds `original`, empty for the same layout; nullopt if it holds something else.
  llvm::Expected<std::optional<Shape>> layoutOfCopy(const onnx::TensorProto &original,
                                                    const onnx::TensorProto &copy) const {
    Shape from = shapeOf(original), to = shapeOf(copy);
    bool sameShape = from == to, swapped = from.size() == 2 && to.size() == 2 && from[0] == to[1] && from[1] == to[0];
    if ((!sameShape && !swapped) || original.data_type() != copy.data_type() || elementsOf(original) < 4)
      return std::nullopt;
    if (isAbsent(repair.model, original) || isAbsent(repair.model, copy))
      return std::nullopt;
    llvm::Expected<TensorSource> a = TensorSource::open(repair.model, original);
    if (!a)
      return a.takeError();
    llvm::Expected<TensorSource> b = TensorSource::open(repair.model, copy);
    if (!b)
      return b.takeError();
    return sameLayout(*a, *b, sameShape, swapped, from[0]);
  }

  static llvm::Expected<std::optional<Shape>> sameLayout(const TensorSource &original, const TensorSource &copy,
                                                         bool sameShape, bool swapped, int64_t rows) {
    llvm::Expected<bool> isUniform = original.isUniform();
    if (!isUniform)
      return isUniform.takeError();
    llvm::Expected<bool> isEqual = *isUniform || !sameShape ? llvm::Expected<bool>(false) : original.equals(copy);
    if (!isEqual)
      return isEqual.takeError();
    if (*isEqual || *isUniform)
      return *isEqual ? std::optional(Shape()) : std::nullopt;
    llvm::Expected<bool> isTransposed = swapped ? original.isTransposeOf(copy, rows) : llvm::Expected<bool>(false);
    if (!isTransposed)
      return isTransposed.takeError();
    return *isTransposed ? std::optional(Shape{1, 0}) : std::nullopt;
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
    rememberTied(copy);
    edit.addNote(*repair.model.graph().mutable_initializer(index.initializerPosition(original.name())),
                 "was also stored as " + copy.name());
    edit.replaceInitializer(copy.name(), original.name(), **layout);
    repair.remarks.push_back("'" + copy.name() + "' holds the same values as '" + original.name() +
                             "': they are one parameter (--no_tie keeps them apart)");
    return llvm::Error::success();
  }

  /// The copy's parameters continue under the original's name.
  void rememberTied(const onnx::TensorProto &copy) {
    repair.model.tied.insert(copy.name());
    auto folded = signature.foldedFrom.find(copy.name());
    if (folded != signature.foldedFrom.end())
      for (const std::string &source : folded->second)
        repair.model.tied.insert(source);
  }

  /// Ties foldings of one parameter, and the parameter itself if it is also in the file.
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

  /// Ties an embedding table and the matrix that maps features to scores.
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

  /// TorchScript does not record origins. A matrix that it folded may also be in the file under its own name.
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

  /// Reads every tensor once and compares only tensors with equal checksums.
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

  /// A checksum that is the same for a matrix and its transpose: only the byte order within elements matters.
  llvm::Expected<uint64_t> sumOf(const onnx::TensorProto &tensor) const {
    llvm::Expected<TensorSource> source = TensorSource::open(repair.model, tensor);
    if (!source)
      return source.takeError();
    const int64_t width = source->elementBytes();
    uint64_t sum = 0;
    llvm::Error error = source->forEachDataRun([&](const uint8_t *run, int64_t many) {
      sum += width == 4 ? sumOf<uint32_t>(run, many) : width == 8 ? sumOf<uint64_t>(run, many) : 0;
    });
    if (error)
      return error;
    return sum;
  }

  template <class Element>
  static uint64_t sumOf(const uint8_t *run, int64_t many) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < many; ++i) {
      Element element;
      std::memcpy(&element, run + i * sizeof element, sizeof element);
      sum += element * uint64_t{0x9e3779b97f4a7c15};
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
