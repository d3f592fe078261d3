#include "frontend/onnx/graph_edit.h"
#include "frontend/onnx/lost_statements.h"
#include "frontend/onnx/repair.h"

#include "llvm/ADT/StringExtras.h"

namespace fsdpc {

namespace {

using NameMap = std::map<std::string, std::string>;

/// The text with every `%name` replaced according to the map.
std::string renameQuoted(llvm::StringRef text, const NameMap &names) {
  std::string result;
  while (!text.empty()) {
    size_t at = text.find('%');
    if (at == llvm::StringRef::npos)
      break;
    result += text.take_front(at + 1);
    text = text.drop_front(at + 1);
    llvm::StringRef name = text.take_while([](char c) { return llvm::isAlnum(c) || c == '_' || c == '.'; });
    auto found = names.find(name.str());
    result += found == names.end() ? name.str() : found->second;
    text = text.drop_front(name.size());
  }
  return result + text.str();
}

void setMetadata(onnx::NodeProto &node, llvm::StringRef key, llvm::StringRef value) {
  for (onnx::StringStringEntryProto &entry : *node.mutable_metadata_props())
    if (entry.key() == key)
      entry.set_value(value.str());
}

/// Adds copies of nodes that read other parameters.
class NodeCopier {
public:
  explicit NodeCopier(const Repair &repair)
      : repair(repair), index(repair.model.graph()), signature(exportSignature(index.graph)),
        traced(index.graph, signature), nodesOf(nodesOfStatements(index, traced)), edit(repair.model.graph()) {}

  /// Splits nodes of other statements that also implement a part of a statement with the same operation.
  void splitParts() {
    for (const std::string &name : missingParameters(index.graph, signature))
      missing.insert(name);
    if (!missing.empty())
      for (size_t s = 0; s < traced.statements.size(); ++s)
        splitPartsOf(static_cast<int>(s));
    applyEdits();
  }

  /// Splits statements that others stand in for. Returns the parameters that stay missing because their readers cannot
  /// be distinguished. Errors: an unreadable weights file.
  llvm::Expected<std::vector<std::string>> splitStatements() {
    std::string unread;
    LostValues lost = findLostValues(index, signature, traced, [&](const onnx::TensorProto &tensor) {
      llvm::Expected<bool> result = isUniform(repair.model, tensor, /*ifAbsent=*/false);
      if (!result)
        unread = llvm::toString(result.takeError());
      return result && *result;
    });
    if (!unread.empty())
      return llvm::createStringError(unread);
    for (const LostValue &value : lost.values) {
      for (const LostStatement &statement : value.statements)
        copyStatement(value, statement);
      redirect(value.readers, copiesOf[{value.twin, value.statements.back().place}]);
    }
    applyEdits();
    return std::move(lost.ambiguous);
  }

private:
  /// Takes effect at the end, so that nodes copied later are copied as they are in the file.
  void redirect(llvm::ArrayRef<Read> reads, const NameMap &copies) {
    for (const Read &read : reads)
      if (auto copy = copies.find(index.graph.node(read.node).input(read.input)); copy != copies.end())
        redirected.push_back({read, copy->second});
  }

  void applyEdits() {
    for (const auto &[read, value] : redirected)
      edit.setInput(read.node, read.input, value);
    edit.apply();
  }

  // ---- Parts of statements

  /// Maps parameters that `from` reads to those that `to` reads in their positions, as far as the file lacks the
  /// latter.
  NameMap otherParameters(const TracedStatement &from, const TracedStatement &to) const {
    NameMap result;
    if (from.arguments.size() != to.arguments.size())
      return result;
    for (size_t i = 0; i < from.arguments.size(); ++i) {
      auto own = signature.placeholders.find(from.arguments[i]), other = signature.placeholders.find(to.arguments[i]);
      if (own != signature.placeholders.end() && other != signature.placeholders.end() &&
          missing.contains(other->second))
        result[own->second] = other->second;
    }
    return result;
  }

  void splitPartsOf(int s) {
    const TracedStatement &statement = traced.statements[s];
    if (llvm::none_of(statement.parameters, [&](llvm::StringRef name) { return missing.contains(name); }))
      return;
    std::map<int, std::vector<Read>> foreign;
    for (int node : nodesOf[s])
      for (int k = 0; k < index.graph.node(node).input_size(); ++k) {
        const std::string &value = index.graph.node(node).input(k);
        int producer = index.producerPosition(value), from = producer < 0 ? -1 : traced.statementOf(producer);
        if (from >= 0 && from != s && traced.statements[from].target == statement.target && isExporterName(value))
          foreign[from].push_back({node, k});
      }
    for (const auto &[from, reads] : foreign) {
      NameMap parameters = otherParameters(traced.statements[from], statement);
      if (parameters.empty())
        continue;
      Place place{parameters, statement.name.str(), &index.graph.node(reads.front().node), {}, {}, {}};
      redirect(reads, copyNodes(from, producersOf(reads), place));
    }
  }

  std::vector<int> producersOf(llvm::ArrayRef<Read> reads) const {
    std::vector<int> result;
    for (const Read &read : reads)
      result.push_back(index.producerPosition(index.graph.node(read.node).input(read.input)));
    return result;
  }

  // ---- Entire statements

  void copyStatement(const LostValue &value, const LostStatement &statement) {
    auto [known, isNew] = copiesOf.try_emplace({statement.twin, statement.place});
    if (!isNew)
      return;
    const TracedStatement &twin = traced.statements[statement.twin];
    Place place{statement.parameters, value.name, nullptr, statement.fromScope, statement.toScope, {}};
    for (const LostStatement &source : value.statements)
      if (auto copies = copiesOf.find({source.twin, source.place}); copies != copiesOf.end())
        place.inputs.insert(copies->second.begin(), copies->second.end());
    int last = index.producerPosition(twin.name);
    std::vector<int> wanted = {
        last >= 0 && traced.statementOf(last) == statement.twin ? last : nodesOf[statement.twin].back()};
    known->second = copyNodes(statement.twin, wanted, place);
  }

  // ---- Copies

  struct Place {
    NameMap parameters;                    ///< of the nodes -> of their copies
    std::string tag;                       ///< a suffix that makes the copies' names unique
    const onnx::NodeProto *like = nullptr; ///< a node whose metadata the copies take; null: their own, renamed
    std::string fromScope, toScope;
    NameMap inputs; ///< values -> values that the copies read instead
  };

  /// Copies the nodes of a statement that `wanted` depends on and that read other values than the originals. Returns
  /// the copy of each value.
  NameMap copyNodes(int statement, llvm::ArrayRef<int> wanted, const Place &place) {
    std::vector<int> nodes = neededNodes(statement, wanted);
    NameMap copies;
    for (int node : nodes) {
      const onnx::NodeProto &original = index.graph.node(node);
      NameMap inputs;
      for (const std::string &input : original.input())
        if (std::string other = inputOfCopy(input, original, place, copies); other != input)
          inputs[input] = other;
      if (inputs.empty())
        continue;
      onnx::NodeProto &copy = edit.addNodeAfter(node);
      copy = original;
      copy.set_name(original.name() + "_of_" + place.tag);
      for (std::string &input : *copy.mutable_input())
        if (auto other = inputs.find(input); other != inputs.end())
          input = other->second;
      for (std::string &output : *copy.mutable_output())
        if (!output.empty())
          output = copies[output] = freshName(output + "_of_" + place.tag);
      describeCopy(copy, statement, place);
    }
    return copies;
  }

  /// In order.
  std::vector<int> neededNodes(int statement, llvm::ArrayRef<int> wanted) const {
    std::set<int> needed(wanted.begin(), wanted.end());
    const std::vector<int> &nodes = nodesOf[statement];
    for (size_t i = nodes.size(); i-- > 0;)
      if (needed.count(nodes[i]))
        for (const std::string &input : index.graph.node(nodes[i]).input())
          if (int producer = index.producerPosition(input); producer >= 0 && traced.statementOf(producer) == statement)
            needed.insert(producer);
    return {needed.begin(), needed.end()};
  }

  std::string inputOfCopy(const std::string &input, const onnx::NodeProto &reader, const Place &place,
                          const NameMap &copies) {
    if (auto copy = copies.find(input); copy != copies.end())
      return copy->second;
    if (auto other = place.inputs.find(input); other != place.inputs.end())
      return other->second;
    const onnx::TensorProto *tensor = index.initializer(input);
    std::string parameter = tensor ? parameterOf(signature, *tensor) : "";
    auto other = place.parameters.find(parameter);
    return parameter.empty() || other == place.parameters.end() ? input : initializerOf(other->second, *tensor, reader);
  }

  /// The initializer of a merged parameter, created from the other parameter's on first use.
  std::string initializerOf(const std::string &parameter, const onnx::TensorProto &from,
                            const onnx::NodeProto &reader) {
    std::string &name = madeOf[{parameter, from.name()}];
    if (!name.empty())
      return name;
    bool isFolded = signature.foldedFrom.contains(from.name());
    name = freshName(isFolded ? from.name() + "." + parameter : parameter);
    std::string other = parameterOf(signature, from);
    onnx::TensorProto &copy = edit.copyInitializer(from, name, "was merged with " + other);
    copyFolding(signature, from, copy, parameter);
    repair.remarks.push_back("'" + parameter + "' was merged with '" + other + "' into one node, " +
                             nameOf(reader).str() + ", because their values were equal; they are separate again");
    return name;
  }

  std::string freshName(std::string name) {
    while (index.producerPosition(name) >= 0 || index.initializerPosition(name) >= 0 || !freshNames.insert(name).second)
      name += "_";
    return name;
  }

  void describeCopy(onnx::NodeProto &copy, int statement, const Place &place) const {
    if (place.like) {
      *copy.mutable_metadata_props() = place.like->metadata_props();
      return;
    }
    const TracedStatement &twin = traced.statements[statement];
    NameMap names = {{twin.name.str(), place.tag}};
    for (llvm::StringRef argument : twin.arguments)
      if (auto own = signature.placeholders.find(argument); own != signature.placeholders.end())
        if (auto other = place.parameters.find(own->second); other != place.parameters.end())
          names[argument.str()] = placeholderOf(other->second);
    setMetadata(copy, statementKey, renameQuoted(metadataOf(copy, statementKey), names));
    std::string scopes;
    for (const std::string &scope : pythonStrings(metadataOf(copy, scopesKey))) {
      bool isMoved = !place.fromScope.empty() && isWithin(scope, place.fromScope);
      std::string moved = isMoved ? place.toScope + scope.substr(place.fromScope.size()) : scope;
      scopes += (scopes.empty() ? "'" : ", '") + moved + "'";
    }
    setMetadata(copy, scopesKey, "[" + scopes + "]");
  }

  std::string placeholderOf(llvm::StringRef parameter) const {
    if (placeholders.empty())
      for (const auto &entry : signature.placeholders)
        placeholders[entry.second] = entry.first().str();
    auto found = placeholders.find(parameter);
    return found == placeholders.end() ? parameter.str() : found->second;
  }

  const Repair &repair;
  GraphIndex index;
  ExportSignature signature;
  TracedGraph traced;
  std::vector<std::vector<int>> nodesOf;
  llvm::StringSet<> missing, freshNames;
  std::map<std::pair<int, std::string>, NameMap> copiesOf; ///< by statement and place: copies of its values
  std::map<std::pair<std::string, std::string>, std::string> madeOf;
  mutable llvm::StringMap<std::string> placeholders; ///< by parameter
  std::vector<std::pair<Read, std::string>> redirected;
  GraphEdit edit;
};

} // namespace

llvm::Expected<std::vector<std::string>> splitMergedNodes(const Repair &repair) {
  if (repair.options.keepShared)
    return std::vector<std::string>();
  const onnx::GraphProto &graph = repair.model.graph();
  ExportSignature signature = exportSignature(graph);
  if (!signature.known())
    return std::vector<std::string>();
  if (!missingParameters(graph, signature).empty())
    NodeCopier(repair).splitParts();
  llvm::Expected<std::vector<std::string>> ambiguous = NodeCopier(repair).splitStatements();
  if (!ambiguous)
    return ambiguous.takeError();
  if (!ambiguous->empty())
    repair.remarks.push_back(std::to_string(ambiguous->size()) + " parameters, '" + ambiguous->front() +
                             "' the first, were merged with others because their values were equal, and the file does "
                             "not tell which nodes read them");
  return ambiguous;
}

} // namespace fsdpc
