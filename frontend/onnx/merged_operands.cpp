#include "frontend/onnx/merged_operands.h"

#include "llvm/ADT/STLExtras.h"
#include <set>

namespace fsdpc {

namespace {

/// Two candidates make a read ambiguous, so the search stops at two.
constexpr size_t enough = 2;

/// True for the weight or bias of a layer that has both.
bool isOfLayer(const ExportSignature &signature, llvm::StringRef parameter) {
  llvm::StringRef leaf = leafOf(parameter);
  if (leaf != "weight" && leaf != "bias")
    return false;
  const std::string prefix = parameter.drop_back(leaf.size()).str();
  return signature.isParameter.contains(prefix + "weight") && signature.isParameter.contains(prefix + "bias");
}

} // namespace

MergedOperands::MergedOperands(const GraphIndex &index, const ExportSignature &signature, const TracedGraph &traced)
    : index(index), signature(signature), traced(traced) {
  if (!traced.known())
    return;
  listMissing();
  for (int node = 0; node < index.graph.node_size() && !missingBelow.empty(); ++node)
    findTwin(node);
  for (int node = 0; node < index.graph.node_size() && !twins.empty(); ++node)
    noteReads(node);
}

std::string MergedOperands::parameterOf(const InitializerRead &read) const {
  auto meant = meaning.find({read.node, read.input});
  auto twin = meant == meaning.end() ? twins.end() : twins.find(meant->second);
  return twin == twins.end() ? "" : twin->second.parameter;
}

void MergedOperands::listMissing() {
  llvm::StringSet<> modulesWithNodes;
  for (llvm::StringRef scope : index.scopes)
    while (modulesWithNodes.insert(scope).second && !scope.empty())
      scope = moduleOf(scope);
  for (const std::string &name : missingParameters(index.graph, signature)) {
    if (!signature.isParameter.contains(name) || traced.isMentioned(name) || isOfLayer(signature, name))
      continue;
    missingBelow[moduleOf(name).str()].push_back(name);
    if (missingInUnusedModules.size() < enough && !modulesWithNodes.contains(moduleOf(name)))
      missingInUnusedModules.push_back(name);
  }
}

/// The only operand that the statement quotes by the name of a lost value; -1 if there is none or several. Requires as
/// many operands as quoted names, and the other operands to have the quoted names.
int MergedOperands::lostOperand(int node) const {
  const onnx::NodeProto &proto = index.graph.node(node);
  const int position = traced.statementOf(node);
  if (position < 0)
    return -1;
  llvm::ArrayRef<llvm::StringRef> arguments = traced.statements[position].arguments;
  if (arguments.size() != static_cast<size_t>(proto.input_size()))
    return -1;
  int found = -1;
  for (int i = 0; i < proto.input_size(); ++i) {
    if (arguments[i] == proto.input(i) || signature.placeholders.contains(arguments[i]))
      continue;
    if (found >= 0 || !traced.isLost(arguments[i]))
      return -1;
    found = i;
  }
  return found;
}

void MergedOperands::findTwin(int node) {
  const int operand = lostOperand(node);
  if (operand < 0)
    return;
  const onnx::NodeProto &proto = index.graph.node(node);
  const std::string &read = proto.input(operand);
  const onnx::TensorProto *tensor = index.initializer(read);
  const std::string parameter = tensor ? fsdpc::parameterOf(signature, *tensor) : "";
  llvm::StringRef lost = traced.statements[traced.statementOf(node)].arguments[operand];
  const bool isMade = index.initializerPosition(lost) >= 0 || index.producerPosition(lost) >= 0;
  if (parameter.empty() || parameter == read || isMade || withoutNumber(lost) != withoutNumber(read) ||
      isReadByAlias(read))
    return;
  std::string other = onlyCandidate(moduleOf(parameter), index.scopes[node]);
  // Applying the same operation twice to the same parameter looks the same, except if the module has another parameter
  // that nothing reads.
  const bool isBoth = llvm::count(proto.input(), read) == 2;
  if (!isBoth && (other.empty() || moduleOf(other) != moduleOf(parameter)))
    return;
  auto [twin, isNew] = twins.try_emplace(lost, Twin{read, std::move(other)});
  if (!isNew && twin->second.tensor != read)
    twin->second.parameter.clear();
}

bool MergedOperands::isReadByAlias(llvm::StringRef tensor) {
  auto [known, isNew] = readByAlias.try_emplace(tensor, false);
  if (isNew)
    known->second = llvm::any_of(index.readsOf(tensor), [&](const InitializerRead &read) {
      return !read.permutation.empty() || index.node(read).input(read.input) != tensor;
    });
  return known->second;
}

std::string MergedOperands::onlyCandidate(llvm::StringRef tensorModule, llvm::StringRef scope) const {
  std::set<std::string> candidates(missingInUnusedModules.begin(), missingInUnusedModules.end());
  auto add = [&](const std::vector<std::string> &names) {
    candidates.insert(names.begin(), names.begin() + static_cast<ptrdiff_t>(std::min(names.size(), enough)));
  };
  for (llvm::StringRef module : {tensorModule, scope})
    if (auto own = missingBelow.find(module.str()); own != missingBelow.end())
      add(own->second);
  // Names below a scope are neighbours in the sorted map. All modules are below the root.
  const std::string below = scope.empty() ? "" : scope.str() + ".";
  for (auto at = missingBelow.lower_bound(below);
       candidates.size() < enough && at != missingBelow.end() && llvm::StringRef(at->first).starts_with(below); ++at)
    add(at->second);
  return candidates.size() == 1 ? *candidates.begin() : "";
}

/// Finds the inputs that refer to a lost value. If the statement does not quote the stored value, these are all inputs
/// that read it; otherwise only the one in the lost value's position. If the inputs cannot be distinguished, no read of
/// the lost value is recorded.
void MergedOperands::noteReads(int node) {
  const int position = traced.statementOf(node);
  if (position < 0)
    return;
  const onnx::NodeProto &proto = index.graph.node(node);
  llvm::ArrayRef<llvm::StringRef> arguments = traced.statements[position].arguments;
  const int operand = lostOperand(node);
  llvm::StringMap<llvm::StringRef> lostOf; // by tensor
  for (llvm::StringRef argument : arguments)
    if (auto twin = twins.find(argument); twin != twins.end())
      if (auto [known, isNew] = lostOf.try_emplace(twin->second.tensor, argument); !isNew && known->second != argument)
        twin->second.parameter = twins[known->second].parameter = "";
  for (llvm::StringRef argument : arguments)
    if (auto lost = lostOf.find(argument); lost != lostOf.end() && operand < 0)
      twins[lost->second].parameter.clear();
  for (int i = 0; i < proto.input_size() && !lostOf.empty(); ++i)
    if (auto lost = lostOf.find(proto.input(i)); lost != lostOf.end() && (operand < 0 || operand == i))
      meaning[{node, i}] = lost->second.str();
}

} // namespace fsdpc
