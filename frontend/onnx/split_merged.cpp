#include "frontend/onnx/equal_values.h"
#include "frontend/onnx/folding.h"
#include "frontend/onnx/graph_edit.h"
#include "frontend/onnx/layer_biases.h"
#include "frontend/onnx/merged_operands.h"
#include "frontend/onnx/missing_names.h"
#include "frontend/onnx/repair.h"
#include "frontend/onnx/traced_graph.h"
#include "frontend/onnx/use_role.h"

#include "llvm/ADT/StringExtras.h"
#include <algorithm>
#include <set>

namespace fsdpc {

namespace {

constexpr int64_t largestMerged = 1024;

/// Finds for every read of a shared initializer the parameter that it refers to.
class Splitter {
public:
  Splitter(const Repair &repair, const GraphIndex &index)
      : repair(repair), index(index), signature(exportSignature(index.graph)), traced(index.graph, signature),
        operands(index, signature, traced), missing(index, signature, traced) {
    for (const std::string &name : signature.parameters)
      parametersOf[moduleOf(name)].push_back(name);
    listQuotes();
    listReadsOfStatements();
    mergesNothing = !signature.known() && holdsEqualVectors(repair.model, index);
  }

  /// Rewrites the graph. The index is stale afterwards. Errors: an unreadable weights file.
  llvm::Error run() {
    std::vector<Candidate> candidates = mergedReads();
    std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate &a, const Candidate &b) {
      return std::pair(a.read->node, a.read->input) < std::pair(b.read->node, b.read->input);
    });
    // Constants are resolved last, with the parameters that are left.
    std::stable_partition(candidates.begin(), candidates.end(), [&](const Candidate &candidate) {
      return !traced.known() || !parameterOf(signature, *candidate.tensor).empty();
    });
    for (const Candidate &candidate : candidates)
      assign(candidate);
    if (!values.unread().empty())
      return llvm::createStringError(values.unread());
    edit.apply();
    return llvm::Error::success();
  }

private:
  struct Candidate {
    const onnx::TensorProto *tensor;
    const InitializerRead *read;
  };

  llvm::StringRef scopeOf(const InitializerRead &read) const { return index.scopes[read.node]; }

  /// Lists the parameters that the nodes of each statement read under their own names.
  void listReadsOfStatements() {
    ownReads.resize(traced.statements.size());
    for (const onnx::TensorProto &tensor : index.graph.initializer()) {
      std::string parameter = parameterOf(signature, tensor);
      for (const InitializerRead &read : index.readsOf(tensor.name()))
        if (int statement = statementOfRead(read); statement >= 0 && isOwnRead(read, statement, parameter))
          ownReads[statement].push_back(parameter);
    }
  }

  /// The statement that quotes the value read, -1 for none: the node's own, or that of an earlier transpose that the
  /// module wrote (x @ weight.T) and the node's statement quotes.
  int statementOfRead(const InitializerRead &read) const { return quotingStatement(read.node, read.value); }

  int quotingStatement(int node, llvm::StringRef value) const {
    const int own = traced.statementOf(node), producer = index.producerPosition(value);
    if (own < 0 || producer < 0 || producer >= static_cast<int>(quotes.size()))
      return own;
    const int before = traced.statementOf(producer);
    const bool isOther = before >= 0 && before != own;
    if (isOther && !llvm::is_contained(traced.statements[own].arguments, traced.statements[before].name))
      return own;
    return quotes[producer] >= 0 ? quotes[producer] : own;
  }

  /// Nodes are sorted: one sweep follows any chain of transposes.
  void listQuotes() {
    quotes.reserve(index.graph.node_size());
    for (int i = 0; i < index.graph.node_size(); ++i) {
      const onnx::NodeProto &node = index.graph.node(i);
      quotes.push_back(node.input_size() == 0 ? traced.statementOf(i) : quotingStatement(i, node.input(0)));
    }
  }

  /// If a parameter of the statement is missing, a read that does not fit its own name may refer to that parameter.
  bool isOwnRead(const InitializerRead &read, int statement, llvm::StringRef parameter) const {
    return fits(read, parameter) || llvm::none_of(traced.statements[statement].parameters,
                                                  [&](llvm::StringRef name) { return missing.contains(name); });
  }

  std::vector<Candidate> mergedReads() const {
    std::vector<Candidate> result;
    for (const onnx::TensorProto &tensor : index.graph.initializer()) {
      llvm::ArrayRef<InitializerRead> reads = index.readsOf(tensor.name());
      std::optional<DType> dtype = dtypeOf(tensor.data_type());
      if (!dtype || !isFloat(*dtype))
        continue;
      if (traced.known()) {
        for (const InitializerRead &read : reads)
          if (traced.statementOf(read.node) >= 0)
            result.push_back({&tensor, &read});
      }
      if (reads.size() < 2 || (elementsOf(tensor) < 2 && !isNamed(tensor)))
        continue;
      bool hasTable =
          llvm::any_of(reads, [&](const InitializerRead &read) { return useRole(index, read) == UseRole::table; });
      for (const InitializerRead &read : reads)
        if (traced.statementOf(read.node) < 0 && maySplit(tensor, read, hasTable))
          result.push_back({&tensor, &read});
    }
    return result;
  }

  /// True if a module of the author's has the tensor: constants of one element have the exporter's names.
  static bool isNamed(const onnx::TensorProto &tensor) {
    return !isExporterName(tensor.name()) && llvm::StringRef(tensor.name()).contains('.');
  }

  bool maySplit(const onnx::TensorProto &tensor, const InitializerRead &read, bool hasTable) const {
    bool tied = hasTable && !repair.options.noTie &&
                (useRole(index, read) == UseRole::table || isLinearWeight(index.node(read), read.input));
    bool isSmall = tensor.dims_size() <= 1 || elementsOf(tensor) <= largestMerged;
    return !tied && (isSmall || !read.alias.empty() || repair.options.noTie);
  }

  void assign(const Candidate &candidate) {
    llvm::StringRef own = candidate.tensor->name();
    if (traced.statementOf(candidate.read->node) >= 0) {
      if (std::string name = nameByStatement(candidate); name != own)
        redirect(candidate, name);
      return;
    }
    std::string name = signature.known()               ? nameBySignature(candidate)
                       : candidate.read->alias.empty() ? nameByScope(candidate)
                                                       : nameByAlias(candidate);
    if (name == own)
      return;
    if (!repair.options.noTie && isTie(candidate, name))
      noteTie(own, name);
    else
      redirect(candidate, name);
  }

  /// Equal values that are neither uniform nor made by a formula are not a coincidence. Modules at the same position of
  /// repeated blocks are copies of one another that train separately. Others share a parameter on purpose.
  bool isTie(const Candidate &candidate, llvm::StringRef name) {
    llvm::StringRef own = candidate.tensor->name();
    std::string parameter = parameterOf(signature, *candidate.tensor);
    std::string home = !parameter.empty()    ? moduleOf(parameter).str()
                       : isExporterName(own) ? scopeOf(index.readsOf(own).front()).str()
                                             : moduleOf(own).str();
    std::string other = isExporterName(name) ? scopeOf(*candidate.read).str() : moduleOf(name).str();
    return withoutDigits(home) != withoutDigits(other) && !values.isUniform(*candidate.tensor) &&
           (signature.known() || !values.isMonotonic(*candidate.tensor));
  }

  void noteTie(llvm::StringRef own, llvm::StringRef name) {
    repair.model.tied[name] = own.str();
    if (made.insert(name).second)
      repair.remarks.push_back("'" + name.str() + "' and '" + own.str() +
                               "' have the same values and are one parameter (--no_tie keeps them apart)");
  }

  /// The name of the Identity's output. A name made up by the exporter is no other parameter if the same module, called
  /// twice, reads it, unless it is the bias of another layer in the module (the slices of in_proj_bias, which are
  /// zeros). If the file has equal values twice, the exporter merged nothing (in training mode), and Identity nodes are
  /// true ties.
  std::string nameByAlias(const Candidate &candidate) {
    llvm::StringRef own = candidate.tensor->name(), alias = candidate.read->alias;
    if (!isExporterName(alias))
      return (mergesNothing ? own : alias).str();
    if (const std::string weight = weightOfBias(index, *candidate.read); !weight.empty())
      return biases.nameForWeight(own, weight);
    return (isReadAlikeInModule(*candidate.read, own) ? own : alias).str();
  }

  /// True if the initializer itself is the same operand of the same operation in the same module, which is then called
  /// twice. A norm whose scale and shift are equal reads them by two operations.
  bool isReadAlikeInModule(const InitializerRead &read, llvm::StringRef own) const {
    llvm::ArrayRef<InitializerRead> reads = index.readsOf(own);
    const auto *itself = llvm::find_if(reads, [](const InitializerRead &other) { return other.alias.empty(); });
    const InitializerRead &first = itself == reads.end() ? reads.front() : *itself;
    return withoutCallCount(scopeOf(read)) == withoutCallCount(scopeOf(first)) && read.input == first.input &&
           index.node(read).op_type() == index.node(first).op_type();
  }

  /// True if a node of the initializer's own module reads it.
  bool isReadByOwner(llvm::StringRef own) {
    auto [known, isNew] = readsByOwner.try_emplace(own, false);
    if (isNew)
      known->second = llvm::any_of(index.readsOf(own), [&](const InitializerRead &read) {
        return withoutCallCount(scopeOf(read)) == withoutCallCount(moduleOf(own));
      });
    return known->second;
  }

  std::string nameByScope(const Candidate &candidate) {
    llvm::StringRef own = candidate.tensor->name(), scope = scopeOf(*candidate.read), module = moduleOf(own);
    bool isForeign = own.contains('.') && !scope.empty() && !isWithin(scope, module) && !isWithin(module, scope) &&
                     withoutCallCount(scope) != withoutCallCount(module) &&
                     (!isScopeOf(withoutCallCount(scope), module) || isReadByOwner(own)) &&
                     moduleOf(weightOfBias(index, *candidate.read)) != module; // scopes may lack `layers.0`
    std::string name = (scope + "." + leafOf(own)).str();
    return isForeign && index.initializerPosition(name) < 0 ? name : own.str();
  }

  /// The innermost scope of a reader that contains the initializer's own name.
  std::string owningScope(const onnx::TensorProto &tensor, llvm::StringRef name) const {
    std::string best;
    bool found = false;
    for (const InitializerRead &read : index.readsOf(tensor.name())) {
      llvm::StringRef scope = scopeOf(read);
      if (isWithin(name, scope) && (!found || scope.size() > best.size())) {
        best = scope.str();
        found = true;
      }
    }
    return found ? best : moduleOf(name).str();
  }

  /// The parameter that the read's statement quotes and that none of its nodes reads under its own name.
  std::string nameByStatement(const Candidate &candidate) {
    const InitializerRead &read = *candidate.read;
    std::string own = candidate.tensor->name(), parameter = parameterOf(signature, *candidate.tensor);
    int position = statementOfRead(read);
    const TracedStatement &statement = traced.statements[position];
    // The BatchNorm was folded into the convolution: the node reads the convolution's parameter, with other values.
    bool isFolded = statement.target.contains("batch_norm") && index.node(read).op_type() != "BatchNormalization";
    // A folded value that the statement itself quotes is read as itself, in any position. But if the statement also
    // quotes a lost value of the same operation, two values may have been merged.
    const bool mayBeTwo = llvm::any_of(statement.arguments, [&](llvm::StringRef name) {
      return name != own && traced.isLost(name) && withoutNumber(name) == withoutNumber(own);
    });
    const bool isQuoted = !mayBeTwo && !signature.isParameter.contains(own) &&
                          llvm::is_contained(statement.arguments, llvm::StringRef(own));
    if (isFolded || isQuoted)
      return own;
    if (std::string name = operands.parameterOf(read); !name.empty() && values.isUniform(*candidate.tensor))
      return name;
    bool isOwn = llvm::is_contained(statement.parameters, parameter);
    if (isOwn && fits(read, parameter))
      return repair.options.noTie ? nameWithoutTie(candidate) : own;
    std::string &previous = assigned[own + '\n' + std::to_string(position)];
    for (const std::string &name : statement.parameters) {
      bool isTaken = llvm::is_contained(ownReads[position], name);
      bool isConstant = parameter.empty() && !isReadByLayer(index, read, statement);
      if (isTaken || isConstant || !fits(read, name) || !mayStandFor(*candidate.tensor, name))
        continue;
      ownReads[position].push_back(name);
      return previous = name;
    }
    if (!previous.empty() || isOwn || parameter.empty())
      return previous.empty() ? own : previous;
    bool isComputed = llvm::any_of(statement.arguments, [&](llvm::StringRef name) { return traced.isLost(name); });
    return isComputed ? nameOfComputed(candidate) : previous = own + ".constant";
  }

  /// Tied parameters have one placeholder. Only the reading module shows which of them is meant.
  std::string nameWithoutTie(const Candidate &candidate) {
    std::string name = nameBySignature(candidate);
    return missing.contains(name) ? name : candidate.tensor->name();
  }

  /// True if a read of the initializer may refer to the parameter: it is missing, or an initializer of the same shape
  /// and type.
  bool mayStandFor(const onnx::TensorProto &tensor, llvm::StringRef name) const {
    if (missing.contains(name))
      return true;
    const onnx::TensorProto *other = index.initializer(name);
    return other && shapeOf(*other) == shapeOf(tensor) && other->data_type() == tensor.data_type();
  }

  /// The statement reads a value that the exporter computed from the initializer's own parameter, or from the one at
  /// the same position in the statement's module.
  std::string nameOfComputed(const Candidate &candidate) {
    std::string own = candidate.tensor->name(), parameter = parameterOf(signature, *candidate.tensor);
    std::string name = nameBySignature(candidate);
    if (llvm::StringRef(name).ends_with(".constant"))
      return mayBeComputedIn(scopeOf(*candidate.read), *candidate.tensor) ? own : own + ".constant";
    bool isAtSamePlace =
        withoutDigits(leafOf(name)) == withoutDigits(leafOf(parameter)) || !fits(*candidate.read, parameter);
    bool isMeant = isAtSamePlace || isAllOfModule(candidate, name);
    return isMeant && missing.contains(name) && !isTie(candidate, name) ? name : own;
  }

  /// True if the only lost value of the statement is a parameter in another shape (scale.view(-1)), and this parameter
  /// is the only one of the statement's own module. No statement quotes it.
  bool isAllOfModule(const Candidate &candidate, llvm::StringRef name) const {
    llvm::StringRef scope = scopeOf(*candidate.read);
    const TracedStatement &statement = traced.statements[statementOfRead(*candidate.read)];
    std::set<llvm::StringRef> lost;
    for (llvm::StringRef argument : statement.arguments)
      if (traced.isLost(argument) && index.producerPosition(argument) < 0)
        lost.insert(argument);
    auto own = parametersOf.find(scope);
    return lost.size() == 1 && keepsElements(tracedOperation(*lost.begin())) && !scope.empty() &&
           moduleOf(name) == scope && own != parametersOf.end() && own->second.size() == 1;
  }

  /// True if the module has a parameter with the same number of elements, from which it may have computed the same
  /// values.
  bool mayBeComputedIn(llvm::StringRef module, const onnx::TensorProto &tensor) const {
    auto folded = signature.foldedFrom.find(tensor.name());
    if (folded == signature.foldedFrom.end() || !foldingOf(signature, tensor.name(), folded->second).computes)
      return false;
    auto own = parametersOf.find(module);
    return own != parametersOf.end() && llvm::any_of(own->second, [&](const std::string &name) {
             const onnx::TensorProto *other = index.initializer(name);
             return missing.contains(name) || (other && elementsOf(*other) == elementsOf(tensor));
           });
  }

  std::string nameBySignature(const Candidate &candidate) {
    const InitializerRead &read = *candidate.read;
    std::string source = parameterOf(signature, *candidate.tensor);
    llvm::StringRef own = traced.known() && !source.empty() ? source : candidate.tensor->name(), scope = scopeOf(read);
    std::string home = owningScope(*candidate.tensor, own);
    std::string &previous = assigned[own.str() + '\n' + scope.str()];
    bool isHome = scope == home;
    // A factor is not a bias. If the initializer's own name does not fit and a missing parameter's does, that parameter
    // was merged.
    const bool isForOwn = fits(read, own) || missing.best(read, moduleOf(own), leafOf(own), true).empty();
    if (isHome && previous.empty() && isForOwn)
      return previous = own.str();
    llvm::StringRef suffix = isWithin(own, home) ? own.drop_front(home.empty() ? 0 : home.size() + 1) : own;
    if (std::string found = missing.best(read, isHome ? moduleOf(own) : scope, suffix, isHome); !found.empty()) {
      missing.take(found);
      return previous = found;
    }
    if (!previous.empty())
      return isHome && !fits(read, previous) && fits(read, own) ? own.str() : previous;
    bool related = scope.empty() || isHome || isWithin(own, scope) || isWithin(scope, moduleOf(own));
    return previous = related ? own.str() : own.str() + ".constant";
  }

  bool fits(const InitializerRead &read, llvm::StringRef name) const { return fitsName(index, read, name); }

  /// Makes the read use initializer `name`, which is created from the shared one on first use.
  void redirect(const Candidate &candidate, llvm::StringRef name) {
    const InitializerRead &read = *candidate.read;
    llvm::StringRef own = candidate.tensor->name();
    // A constant of a layer has the shape that the layer's node needs, as folded values do: [C, 1, 1].
    bool isOfLayer = signature.isParameter.contains(name) && parameterOf(signature, *candidate.tensor).empty() &&
                     candidate.tensor->dims_size() > 1;
    bool isFolded = isOfLayer || (signature.known() && signature.foldedFrom.contains(own));
    std::string value = isFolded ? (own + "." + name).str() : name.str();
    if (index.initializerPosition(value) < 0 && made.insert(value).second) {
      // The initializer replaces an Identity node of that name.
      if (int producer = index.producerPosition(value); producer >= 0)
        edit.removeNode(producer);
      onnx::TensorProto &copy = edit.copyInitializer(*candidate.tensor, value, ("was merged with " + own).str());
      copyFolding(signature, *candidate.tensor, copy, name);
      if (isOfLayer)
        setFoldedFrom(copy, name.str());
      repair.remarks.push_back("'" + name.str() + "' was merged with '" + own.str() +
                               "' because their values were equal; they are separate again");
    }
    if (!read.permutation.empty()) {
      std::string source = std::move(value);
      value = name.str() + "_permuted_for_" + std::to_string(read.node) + "_" + std::to_string(read.input);
      edit.addAlias(value, source, read.permutation);
    }
    edit.setInput(read.node, read.input, value);
  }

  const Repair &repair;
  const GraphIndex &index;
  ExportSignature signature;
  TracedGraph traced;
  MergedOperands operands;
  MissingNames missing;
  std::vector<int> quotes;                        ///< of Identity and Transpose nodes: the statement of their operand
  std::vector<std::vector<std::string>> ownReads; ///< of statements: parameters that are accounted for
  llvm::StringMap<std::vector<std::string>> parametersOf; ///< by module: its own, not those of submodules
  bool mergesNothing = false;
  llvm::StringMap<std::string> assigned;
  llvm::StringMap<bool> readsByOwner; ///< by initializer
  llvm::StringSet<> made;
  ValueKinds values{repair.model};
  LayerBiases biases{index};
  GraphEdit edit{repair.model.graph()};
};

} // namespace

llvm::Error splitMerged(const Repair &repair) {
  if (repair.options.keepShared)
    return llvm::Error::success();
  GraphIndex index(repair.model.graph());
  return Splitter(repair, index).run();
}

} // namespace fsdpc
