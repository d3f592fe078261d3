#include "frontend/onnx/classify.h"
#include "frontend/onnx/graph_edit.h"
#include "frontend/onnx/repair.h"
#include "frontend/onnx/use_role.h"

#include <map>
#include <set>

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
    const bool sameShape = from == to;
    const bool swapped = from.size() == 2 && to.size() == 2 && from[0] == to[1] && from[1] == to[0];
    if ((!sameShape && !swapped) || original.data_type() != copy.data_type() || elementsOf(original) < 4)
      return std::nullopt;
    if (isAbsent(repair.model, original) || isAbsent(repair.model, copy))
      return std::nullopt;
    llvm::Expected<bool> differ = startDifferently(original, copy);
    if (!differ || *differ)
      return differ ? llvm::Expected<std::optional<Shape>>(std::nullopt) : differ.takeError();
    llvm::Expected<TensorFacts> own = allFacts(repair.model, original);
    if (!own)
      return own.takeError();
    llvm::Expected<TensorFacts> theirs = allFacts(repair.model, copy);
    if (!theirs)
      return theirs.takeError();
    if (sameShape && own->digest == theirs->digest)
      return Shape();
    return swapped && own->digestOfTranspose == theirs->digest ? std::optional(Shape{1, 0}) : std::nullopt;
  }

  /// True if the first elements suffice to tell that it is no copy, or that the original may be uniform.
  llvm::Expected<bool> startDifferently(const onnx::TensorProto &original, const onnx::TensorProto &copy) const {
    llvm::Expected<bool> mayBeChance = isUniform(repair.model, original, /*ifAbsent=*/true);
    if (!mayBeChance)
      return mayBeChance.takeError();
    llvm::Expected<uint64_t> own = firstElement(original), theirs = firstElement(copy);
    if (llvm::Error error = llvm::joinErrors(own.takeError(), theirs.takeError()))
      return error;
    return *mayBeChance || *own != *theirs;
  }

  llvm::Expected<uint64_t> firstElement(const onnx::TensorProto &tensor) const {
    llvm::Expected<TensorFacts> facts = firstFacts(repair.model, tensor);
    return facts ? llvm::Expected<uint64_t>(facts->first) : facts.takeError();
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
    rememberTied(copy, original.name());
    edit.addNote(*repair.model.graph().mutable_initializer(index.initializerPosition(original.name())),
                 "was also stored as " + copy.name());
    edit.replaceInitializer(copy.name(), original.name(), **layout);
    repair.remarks.push_back("'" + copy.name() + "' holds the same values as '" + original.name() +
                             "': they are one parameter (--no_tie keeps them apart)");
    return llvm::Error::success();
  }

  /// The copy's parameters continue under the original's name.
  void rememberTied(const onnx::TensorProto &copy, const std::string &original) {
    repair.model.tied[copy.name()] = original;
    auto folded = signature.foldedFrom.find(copy.name());
    if (folded != signature.foldedFrom.end())
      for (const std::string &source : folded->second)
        repair.model.tied[source] = original;
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
        if (llvm::Error error = tieAlike(originals->second, copies))
          return error;
    return llvm::Error::success();
  }

  using Tensors = std::vector<const onnx::TensorProto *>;

  /// Reads only those to the end that start like one of the others.
  llvm::Error tieAlike(llvm::ArrayRef<const onnx::TensorProto *> originals,
                       llvm::ArrayRef<const onnx::TensorProto *> copies) {
    llvm::Expected<Tensors> likeCopies = startingLike(originals, copies);
    if (!likeCopies)
      return likeCopies.takeError();
    llvm::Expected<Tensors> likeOriginals = startingLike(copies, originals);
    return likeOriginals ? tieEqualDigests(*likeCopies, *likeOriginals) : likeOriginals.takeError();
  }

  llvm::Expected<Tensors> startingLike(llvm::ArrayRef<const onnx::TensorProto *> tensors,
                                       llvm::ArrayRef<const onnx::TensorProto *> others) const {
    std::set<uint64_t> firsts;
    Tensors alike;
    for (const onnx::TensorProto *other : others) {
      llvm::Expected<uint64_t> first = firstElement(*other);
      if (!first)
        return first.takeError();
      firsts.insert(*first);
    }
    for (const onnx::TensorProto *tensor : tensors) {
      llvm::Expected<uint64_t> first = firstElement(*tensor);
      if (!first)
        return first.takeError();
      if (firsts.count(*first))
        alike.push_back(tensor);
    }
    return alike;
  }

  llvm::Error tieEqualDigests(llvm::ArrayRef<const onnx::TensorProto *> originals,
                              llvm::ArrayRef<const onnx::TensorProto *> copies) {
    std::map<ElementDigest, const onnx::TensorProto *> byDigest;
    for (const onnx::TensorProto *original : originals) {
      llvm::Expected<TensorFacts> facts = allFacts(repair.model, *original);
      if (!facts)
        return facts.takeError();
      byDigest.try_emplace(facts->digest, original);
      byDigest.try_emplace(facts->digestOfTranspose, original);
    }
    for (const onnx::TensorProto *copy : copies) {
      llvm::Expected<TensorFacts> facts = allFacts(repair.model, *copy);
      if (!facts)
        return facts.takeError();
      if (auto original = byDigest.find(facts->digest); original != byDigest.end())
        if (llvm::Error error = tieIfCopy(*original->second, *copy))
          return error;
    }
    return llvm::Error::success();
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
