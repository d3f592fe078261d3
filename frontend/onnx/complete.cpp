#include "frontend/onnx/complete.h"

#include "frontend/onnx/folding.h"
#include "frontend/onnx/other_names.h"
#include "frontend/onnx/traced_graph.h"
#include "ir/name_pattern.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include <set>

namespace fsdpc {

namespace {

constexpr size_t maxListed = 20;

bool isBiasName(llvm::StringRef name) {
  llvm::StringRef leaf = leafOf(name);
  return leaf == "bias" || leaf.ends_with("_bias") || leaf.starts_with("bias_");
}

bool isBatchNorm(llvm::StringRef operation) { return operation.contains("batch_norm"); }

/// Operations of modules that have parameters. Such an operation has a node in the file unless it was merged with
/// another.
bool isOfLayer(llvm::StringRef operation) {
  return llvm::StringSwitch<bool>(operation)
      .Cases("layer_norm", "native_layer_norm", "rms_norm", "group_norm", "native_group_norm", true)
      .Cases("linear", "addmm", "embedding", "prelu", true)
      .Default(false);
}

class Missing {
public:
  Missing(const OnnxModel &model, const GraphIndex &index, const ExportSignature &signature)
      : model(model), index(index), signature(signature), traced(index.graph, signature) {
    readStatements();
    readParts();
    listAccounted();
    hasMerged = findMerged();
    for (int i = 0; i < index.graph.node_size(); ++i)
      noteReadInPlaceOf(i);
  }

  MissingParameters sort() {
    std::set<std::string> batchNorms;
    const std::vector<std::string> missing = missingParameters(index.graph, signature);
    listModulesInFile(missing);
    for (const std::string &name : missing) {
      if (accounted.contains(name) || !signature.isParameter.contains(name))
        continue;
      auto placeholder = signature.placeholderOf.find(name);
      std::string reader = placeholder == signature.placeholderOf.end() ? "" : readers.lookup(placeholder->second);
      if (isBatchNorm(reader) && !keptBatchNorms.contains(placeholder->second)) {
        if (std::string module = moduleOf(name).str(); batchNorms.insert(module).second)
          result.foldedBatchNorms.push_back(module);
      } else if (readsPartsOfAnother.contains(moduleOf(name).str() + "\n" + leafOf(name).str())) {
        result.lost.push_back({name, "is read as parts of another parameter of equal values: the two were merged"});
      } else if (isBiasName(name) && (!reader.empty() || hasNodes(moduleOf(name)))) {
        result.zeroBiases.push_back(name);
      } else if (!reader.empty()) {
        result.lost.push_back({name, "is read by '" + reader + "', and was merged or dropped with its equals"});
      } else if (mayBeReadAsAnother.contains(moduleOf(name))) {
        result.lost.push_back({name, "was merged with a parameter of equal values, which is read in its place"});
      } else if (isDroppedScale(name)) {
        result.lost.push_back({name, "has no node left: the exporter drops what multiplies by one or adds zero"});
      } else if (mayBeMerged(moduleOf(name))) {
        result.lost.push_back({name, "has no node left: its module was merged with another of equal parameters"});
      } else {
        result.unused.push_back(name);
      }
    }
    return std::move(result);
  }

private:
  /// Records for each placeholder an operation that reads it and is still in the file.
  void readStatements() {
    for (int i = 0; i < index.graph.node_size(); ++i) {
      const bool isKept = index.graph.node(i).op_type() == "BatchNormalization";
      if (const TracedStatement *statement = statementOf(i)) {
        llvm::StringRef operation = operationOfTarget(statement->target);
        if (isBatchNorm(operation) && !isKept)
          noteFolded(index.graph.node(i));
        for (llvm::StringRef argument : statement->arguments) {
          readers.try_emplace(argument, operation.str());
          if (isKept)
            keptBatchNorms.insert(argument);
        }
      }
      for (llvm::StringRef scope = index.scopes[i]; modulesWithNodes.insert(scope).second && !scope.empty();)
        scope = moduleOf(scope);
    }
  }

  /// Finds slices of a parameter (a Split of in_proj_bias) that a node of another module reads although its statement
  /// does not quote them. Such a reader had one more parameter. A slice that the statement quotes was passed there by
  /// the author, like the rows of an embedding.
  void readParts() {
    llvm::StringMap<std::string> parameterOfPart;
    for (int i = 0; i < index.graph.node_size(); ++i) {
      const onnx::NodeProto &node = index.graph.node(i);
      for (const std::string &input : node.input()) {
        auto part = parameterOfPart.find(input);
        if (part != parameterOfPart.end() && !isWithin(index.scopes[i], moduleOf(part->second)) && !quotes(i, input))
          readsPartsOfAnother.insert(index.scopes[i] + "\n" + leafOf(part->second).str());
      }
      // Rows by indices of the data are an embedding.
      const bool isLookup =
          node.op_type() == "Gather" && node.input_size() > 1 && index.initializerPosition(node.input(1)) < 0;
      if (node.input_size() == 0 || !movesElements(node.op_type()) || isLookup)
        continue;
      auto part = parameterOfPart.find(node.input(0));
      std::string parameter = part != parameterOfPart.end()                   ? part->second
                              : signature.isParameter.contains(node.input(0)) ? node.input(0)
                                                                              : "";
      if (!parameter.empty())
        for (const std::string &output : node.output())
          parameterOfPart[output] = parameter;
    }
  }

  /// True if the node's statement quotes the value, by its name in the file or by the name of the statement that made
  /// it.
  bool quotes(int node, llvm::StringRef value) const {
    const TracedStatement *statement = statementOf(node);
    const int producer = index.producerPosition(value);
    const TracedStatement *made = producer < 0 ? nullptr : statementOf(producer);
    return statement && (llvm::is_contained(statement->arguments, value) ||
                         (made && (made == statement || llvm::is_contained(statement->arguments, made->name))));
  }

  static bool movesElements(llvm::StringRef op) {
    return llvm::StringSwitch<bool>(op)
        .Cases("Split", "Slice", "Reshape", "Squeeze", "Unsqueeze", "Gather", "SplitToSequence", "SequenceAt", true)
        .Default(false);
  }

  /// A matmul or convolution that also stands for the BatchNorm after it: its bias is computed from both.
  void noteFolded(const onnx::NodeProto &node) {
    hasFoldedBatchNorm = true;
    if (node.input_size() > 1)
      accounted.insert((moduleOf(nameOfWeight(node.input(1))) + ".bias").str());
  }

  std::string nameOfWeight(llvm::StringRef initializer) const {
    auto folded = signature.foldedFrom.find(initializer);
    if (folded != signature.foldedFrom.end())
      for (const std::string &source : folded->second)
        if (signature.isParameter.contains(source))
          return source;
    return initializer.str();
  }

  const TracedStatement *statementOf(int node) const {
    const int position = traced.statementOf(node);
    return position < 0 ? nullptr : &traced.statements[position];
  }

  void listAccounted() {
    for (const LostParameter &lost : model.lost)
      accounted.insert(lost.name);
    for (const auto &name : model.tied)
      accounted.insert(name.first());
  }

  /// Lists the parents of modules that have a parameter in the file.
  void listModulesInFile(llvm::ArrayRef<std::string> missing) {
    llvm::StringSet<> isMissing;
    for (const std::string &name : missing)
      isMissing.insert(name);
    for (const std::string &name : signature.parameters)
      if (!isMissing.contains(name))
        modulesInFile.insert(moduleOf(moduleOf(name)));
  }

  /// A module without nodes was unused or merged. Where BatchNorm was folded, the convolution's statement is gone, so
  /// the quotes that would show a merge are gone too. A submodule of a module that runs is then assumed to be merged,
  /// not unused.
  bool mayBeMerged(llvm::StringRef module) const {
    const bool isOfRunning = !moduleOf(module).empty() && hasNodes(moduleOf(module));
    return !hasNodes(module) && (hasMerged || (hasFoldedBatchNorm && isOfRunning) || isMergedBatchNorm(module));
  }

  /// Two equal BatchNorms of one input become one, and no statement quotes the parameters of the second. In such a case
  /// a sibling module has a parameter in the file, or the module around the parent quotes a value that nothing in the
  /// file makes.
  bool isMergedBatchNorm(llvm::StringRef module) const {
    const llvm::StringRef parent = moduleOf(module);
    return signature.isBuffer.contains((module + ".running_mean").str()) && !parent.empty() &&
           (modulesInFile.contains(parent) || scopesThatQuoteLost.contains(moduleOf(parent)));
  }

  /// A tensor that is the only one of its module, inside a module that runs, is not an unused layer, because layers
  /// have a weight.
  bool isDroppedScale(llvm::StringRef name) const {
    llvm::StringRef module = moduleOf(name), parent = moduleOf(module);
    const bool isOfLayer = leafOf(name).contains("weight") || isBiasName(name);
    return !isOfLayer && !parent.empty() && !hasNodes(module) && hasNodes(parent);
  }

  bool hasNodes(llvm::StringRef module) const { return modulesWithNodes.contains(module); }

  void noteScopesThatQuote(const llvm::StringSet<> &undefined) {
    for (int i = 0; i < index.graph.node_size(); ++i)
      if (const TracedStatement *statement = statementOf(i))
        if (llvm::any_of(statement->arguments, [&](llvm::StringRef name) { return undefined.contains(name); }))
          scopesThatQuoteLost.insert(index.scopes[i]);
  }

  /// True if a statement quotes a value that nothing in the file makes, and either the value's operation is a layer's
  /// or the node reads a folded value of another name in its place.
  bool findMerged() {
    llvm::StringSet<> undefined;
    for (const TracedStatement &statement : traced.statements)
      for (llvm::StringRef argument : statement.arguments)
        if (traced.isLost(argument) && index.initializerPosition(argument) < 0 && index.producerPosition(argument) < 0)
          undefined.insert(argument);
    noteScopesThatQuote(undefined);
    for (const auto &argument : undefined)
      if (isOfLayer(tracedOperation(argument.first())))
        return true;
    for (int i = 0; i < index.graph.node_size(); ++i)
      if (readsForeign(i, undefined))
        return true;
    return false;
  }

  /// Notes the modules whose missing parameters the node may refer to. Its statement quotes a lost value, and the node
  /// reads a parameter that the statement does not quote, or a folded parameter of the lost value's operation.
  void noteReadInPlaceOf(int node) {
    const TracedStatement *statement = statementOf(node);
    if (!statement)
      return;
    auto quotesLost = [&](llvm::function_ref<bool(llvm::StringRef)> isLike) {
      return llvm::any_of(statement->arguments, [&](llvm::StringRef name) {
        return traced.isLost(name) && index.initializerPosition(name) < 0 && index.producerPosition(name) < 0 &&
               isLike(name);
      });
    };
    for (const std::string &input : index.graph.node(node).input()) {
      const std::string parameter = sourceParameter(input);
      if (parameter.empty())
        continue;
      if (parameter == input && !llvm::is_contained(statement->parameters, parameter) &&
          quotesLost([](llvm::StringRef) { return true; }))
        mayBeReadAsAnother.insert(index.scopes[node]);
      if (parameter != input && quotesLost([&](llvm::StringRef name) {
            return withoutNumber(name) == withoutNumber(operationOfFolded(input));
          }))
        mayBeReadAsAnother.insert(moduleOf(parameter));
    }
  }

  /// The parameter that an initializer holds, or from which the repairs make the value. Nodes of repairs have no
  /// statement.
  std::string sourceParameter(llvm::StringRef value) const {
    constexpr int maxNodes = 6;
    for (int step = 0; step < maxNodes; ++step) {
      if (const onnx::TensorProto *tensor = index.initializer(value))
        return parameterOf(signature, *tensor);
      const int producer = index.producerPosition(value);
      if (producer < 0 || statementOf(producer) || index.graph.node(producer).input_size() == 0)
        return "";
      const onnx::NodeProto &node = index.graph.node(producer);
      // A node that recomputes a value from its parameter may also have a scalar operand.
      const onnx::TensorProto *first = index.initializer(node.input(0));
      const bool isNumber = first && node.input_size() > 1 && parameterOf(signature, *first).empty();
      value = node.input(isNumber ? 1 : 0);
    }
    return "";
  }

  bool isFoldedParameter(llvm::StringRef initializer) const {
    auto folded = signature.foldedFrom.find(initializer);
    return folded != signature.foldedFrom.end() && llvm::any_of(folded->second, [&](const std::string &source) {
             return signature.isParameter.contains(source);
           });
  }

  bool readsForeign(int node, const llvm::StringSet<> &undefined) const {
    const TracedStatement *statement = statementOf(node);
    if (!statement)
      return false;
    for (const std::string &input : index.graph.node(node).input()) {
      llvm::StringRef operation = tracedOperation(input);
      bool isFolded = !operation.empty() && index.initializerPosition(input) >= 0 && isFoldedParameter(input);
      if (!isFolded || llvm::is_contained(statement->arguments, llvm::StringRef(input)))
        continue;
      for (llvm::StringRef argument : statement->arguments)
        if (undefined.contains(argument) && tracedOperation(argument) == operation)
          return true;
    }
    return false;
  }

  const OnnxModel &model;
  const GraphIndex &index;
  const ExportSignature &signature;
  TracedGraph traced;
  llvm::StringMap<std::string> readers;
  llvm::StringSet<> accounted, keptBatchNorms, modulesWithNodes;
  llvm::StringSet<> mayBeReadAsAnother;  ///< modules
  llvm::StringSet<> readsPartsOfAnother; ///< "module\nleaf"
  llvm::StringSet<> modulesInFile, scopesThatQuoteLost;
  bool hasMerged = false, hasFoldedBatchNorm = false;
  MissingParameters result;
};

std::string listed(llvm::ArrayRef<std::string> names) {
  std::string text = "'" + llvm::join(names.take_front(maxListed), "', '") + "'";
  return names.size() > maxListed ? text + " and " + std::to_string(names.size() - maxListed) + " more" : text;
}

/// Removes names of which the file states that a parameter that is in it has them, too.
void removeOtherNames(std::vector<std::string> &unused, const OnnxModel &model, const ExportSignature &signature) {
  llvm::StringSet<> isUnused, hasOtherName;
  for (const std::string &name : unused)
    isUnused.insert(name);
  const auto isInFile = [&](llvm::StringRef name) {
    return signature.isParameter.contains(name) && !isUnused.contains(name);
  };
  for (const auto &[name, other] : statedNames(model.proto))
    if (isInFile(name) || isInFile(other))
      hasOtherName.insert(isInFile(name) ? other : name);
  llvm::erase_if(unused, [&](const std::string &name) { return hasOtherName.contains(name); });
}

/// Removes from `lost` the parameters that the user accepts as they are in the file.
llvm::Error acceptChanged(std::vector<LostParameter> &lost, const MissingParameters &missing, llvm::StringRef text) {
  if (text.empty())
    return llvm::Error::success();
  llvm::Expected<NamePattern> pattern = NamePattern::make("accept_changed", text);
  if (!pattern)
    return pattern.takeError();
  std::vector<std::string> names = missing.foldedBatchNorms;
  for (const LostParameter &one : lost)
    names.push_back(one.name);
  if (llvm::none_of(names, [&](const std::string &name) { return pattern->matches(name); }))
    return pattern->matchesNone("parameter that the exporter changed", names);
  llvm::erase_if(lost, [&](const LostParameter &one) { return pattern->matches(one.name); });
  return llvm::Error::success();
}

} // namespace

MissingParameters findMissing(const OnnxModel &model, const GraphIndex &index, const ExportSignature &signature) {
  return Missing(model, index, signature).sort();
}

llvm::Error accountForAll(const Repair &repair) {
  GraphIndex index(repair.model.graph());
  const ExportSignature signature = exportSignature(index.graph);
  MissingParameters missing = findMissing(repair.model, index, signature);
  std::vector<LostParameter> &lost = repair.model.lost;
  lost.insert(lost.end(), missing.lost.begin(), missing.lost.end());
  llvm::append_range(lost, findLostDerivatives(index.graph));
  if (!missing.foldedBatchNorms.empty())
    repair.model.notes.push_back(
        "warning: the exporter folded BatchNorm into the convolution before it; what trains are the "
        "folded weights and biases, without batch statistics: " +
        listed(missing.foldedBatchNorms) + ". torch.onnx.export(..., dynamo=True, optimize=False) keeps BatchNorm");
  removeOtherNames(missing.unused, repair.model, signature);
  if (!missing.unused.empty())
    repair.model.notes.push_back("nothing in the file reads " + listed(missing.unused) +
                                 " of the signature: unused, or the file has another name for them");
  return acceptChanged(lost, missing, repair.options.acceptChanged);
}

void findTracedSeparately(OnnxModel &model, llvm::ArrayRef<Parameter> parameters) {
  TracedGraph traced(model.graph(), exportSignature(model.graph()));
  llvm::StringSet<> names;
  for (const TracedStatement &statement : traced.statements)
    if (statement.isTracedSeparately)
      for (const std::string &name : statement.parameters)
        names.insert(name);
  for (const Parameter &parameter : parameters)
    if (parameter.trainable && names.contains(parameter.name))
      model.tracedSeparately.push_back(parameter.name);
}

namespace {

/// One line per name, followed by the text of `describe`. A long list is cut.
template <class T, class Describe>
std::string listed(const std::vector<T> &all, Describe describe) {
  std::string text;
  for (const T &one : llvm::ArrayRef(all).take_front(maxListed))
    text += "\n  " + describe(one);
  if (all.size() > maxListed)
    text += "\n  and " + std::to_string(all.size() - maxListed) + " more";
  return text;
}

} // namespace

llvm::Error refuseLost(const OnnxModel &model) {
  const std::string lost = listed(model.lost, [](const LostParameter &one) { return "'" + one.name + "' " + one.why; });
  if (!model.lost.empty() && llvm::all_of(model.lost, [](const LostParameter &one) { return one.isFunction; }))
    return llvm::createStringError(std::to_string(model.lost.size()) +
                                   " functions cannot be differentiated as the model was written:" + lost +
                                   "\ntrain with the derivatives of what they compute: --accept_changed REGEX");
  if (!model.lost.empty())
    return llvm::createStringError(
        std::to_string(model.lost.size()) +
        " parameters cannot be trained as the model was written, for the exporter changed them:" + lost +
        "\nexport again with torch.onnx.export(..., dynamo=True, optimize=False), which keeps parameters as they are, "
        "or train what the file holds in their place: --accept_changed REGEX");
  if (!model.tracedSeparately.empty())
    return llvm::createStringError(
        std::to_string(model.tracedSeparately.size()) +
        " parameters are read in a part of the model that stood under torch.no_grad() or torch.autocast(), and the "
        "file does not say which, so not whether they train:" +
        listed(model.tracedSeparately, [](const std::string &name) { return "'" + name + "'"; }) +
        "\nuse --frozen REGEX for those that do not train, or --trainable REGEX for all that do");
  return llvm::Error::success();
}

} // namespace fsdpc
