#include "frontend/onnx/lost_modules.h"

#include "llvm/ADT/StringExtras.h"
#include <algorithm>

namespace fsdpc {

namespace {

/// With this many lost modules around a reader, its module is ambiguous.
constexpr size_t largestChoice = 64;

size_t commonTail(llvm::StringRef a, llvm::StringRef b) {
  size_t count = 0;
  while (!a.empty() && !b.empty() && leafOf(a) == leafOf(b)) {
    ++count;
    a = moduleOf(a);
    b = moduleOf(b);
  }
  return count;
}

/// Strips the common trailing components: a.layers.norm and b.layers.norm yield a and b.
Substitution substitutionOf(llvm::StringRef from, llvm::StringRef to) {
  llvm::StringRef a = from, b = to;
  while (!a.empty() && !b.empty() && leafOf(a) == leafOf(b)) {
    a = moduleOf(a);
    b = moduleOf(b);
  }
  return a.empty() || b.empty() ? Substitution{from.str(), to.str()} : Substitution{a.str(), b.str()};
}

/// Equal for modules at the same position of repeated blocks. Two modules of one Sequential have different positions.
std::string placeInBlock(llvm::StringRef module) {
  return withoutDigits(moduleOf(module)) + "." + leafOf(module).str();
}

} // namespace

std::optional<std::string> Substitution::apply(llvm::StringRef name) const {
  if (from.empty() || !isWithin(name, from))
    return std::nullopt;
  return to + name.drop_front(from.size()).str();
}

LostModules::LostModules(const GraphIndex &index, const ExportSignature &signature, const TracedGraph &traced,
                         const std::vector<std::vector<int>> &nodesOf,
                         llvm::function_ref<bool(const onnx::TensorProto &)> isUniform)
    : index(index), signature(signature), traced(traced), nodesOf(nodesOf), isUniform(isUniform) {
  listHeld();
  listLost();
  listModules();
  listEquals();
}

void LostModules::listHeld() {
  heldBy.resize(traced.statements.size());
  for (const onnx::TensorProto &tensor : index.graph.initializer()) {
    std::string parameter = parameterOf(signature, tensor);
    if (parameter.empty())
      continue;
    holder.try_emplace(parameter, &tensor);
    for (const InitializerRead &read : index.readsOf(tensor.name()))
      if (int s = traced.statementOf(read.node); s >= 0 && !llvm::is_contained(heldBy[s], parameter))
        heldBy[s].push_back(parameter);
  }
}

/// A parameter that no statement quotes is lost, unless a node of its own module reads another parameter under this
/// name: those two are tied.
void LostModules::listLost() {
  for (const std::string &name : missingParameters(index.graph, signature))
    if (!traced.isMentioned(name))
      lost.insert(name);
  for (size_t s = 0; s < traced.statements.size(); ++s)
    for (const std::string &parameter : traced.statements[s].parameters) {
      llvm::StringRef scope = index.scopes[nodesOf[s].front()];
      std::string own = (scope.empty() ? "" : scope.str() + ".") + leafOf(parameter).str();
      if (own != parameter)
        lost.erase(own);
    }
}

void LostModules::listModules() {
  std::map<std::string, bool> isWhollyLost;
  for (const auto *list : {&signature.parameters, &signature.buffers})
    for (const std::string &name : *list) {
      std::string module = moduleOf(name).str();
      leaves[module].insert(leafOf(name).str());
      auto [known, isNew] = isWhollyLost.try_emplace(module, true);
      known->second &= lost.contains(name);
      if (lost.contains(name))
        lostInModule[module].push_back(name);
    }
  for (const auto &[module, isLost] : isWhollyLost)
    if (isLost)
      lostModules[leavesText(module)].insert(module);
  for (const auto &[module, name] : moduleClasses(index.graph)) {
    auto [known, isNew] = classes.try_emplace(placeInBlock(module), name);
    if (!isNew && known->second != name)
      known->second.clear();
  }
}

void LostModules::listEquals() {
  std::set<std::vector<std::string>> seen;
  for (size_t s = 0; s < traced.statements.size(); ++s)
    if (!heldBy[s].empty() && seen.insert(heldBy[s]).second)
      ++placesWithValues[valuesOf(static_cast<int>(s))];
}

/// Equal values were one initializer before splitMerged, and the note of each copy names it.
std::string LostModules::valuesOf(int statement) const {
  std::vector<llvm::StringRef> values;
  for (const std::string &parameter : heldBy[statement]) {
    llvm::StringRef note = metadataOf(*holder.lookup(parameter), recoveredKey);
    values.push_back(note.consume_front("was merged with ") ? note : holder.lookup(parameter)->name());
  }
  llvm::sort(values);
  return traced.statements[statement].target.str() + "\n" + llvm::join(values, "\n");
}

std::string LostModules::leavesText(const std::string &module) const {
  auto found = leaves.find(module);
  return found == leaves.end() ? "" : llvm::join(found->second, " ");
}

/// The class of a module. A module without nodes has the class of those at the same position of other blocks. "" if the
/// file does not tell.
std::string LostModules::classOf(llvm::StringRef module) const { return classes.lookup(placeInBlock(module)); }

std::optional<Substitution> LostModules::search(llvm::ArrayRef<llvm::StringRef> readers,
                                                llvm::ArrayRef<std::string> own,
                                                std::set<std::string> &ambiguous) const {
  std::string module = moduleOf(own.front()).str();
  bool isOneModule = llvm::all_of(own, [&](llvm::StringRef name) { return moduleOf(name) == module; });
  if (!isOneModule)
    return Substitution();
  std::set<std::string> candidates;
  size_t depth = 0;
  for (llvm::StringRef reader : readers) {
    std::set<std::string> nearest;
    size_t found = nearestCandidates(reader, module, own, nearest);
    if (found > depth) {
      depth = found;
      candidates.clear();
    }
    if (found == depth)
      candidates.insert(nearest.begin(), nearest.end());
  }
  return choose(module, own, candidates, ambiguous);
}

/// Collects lost modules like `module`, or else lost parameters of `module` itself, in the innermost module around
/// `scope` that has any. Returns the depth of that module, 0 if there is none.
size_t LostModules::nearestCandidates(llvm::StringRef scope, const std::string &module, llvm::ArrayRef<std::string> own,
                                      std::set<std::string> &candidates) const {
  auto modules = lostModules.find(leavesText(module));
  auto beside = lostInModule.find(module);
  while (true) {
    if (modules != lostModules.end())
      addWithin(modules->second, scope, classOf(module), candidates);
    if (candidates.empty() && beside != lostInModule.end() && isWithin(module, scope) && mayBeSibling(own))
      candidates.insert(beside->second.begin(), beside->second.end());
    if (!candidates.empty())
      return scope.empty() ? 1 : scope.count('.') + 2;
    if (scope.empty())
      return 0;
    scope = moduleOf(scope);
  }
}

/// Adds `scope` and the modules below it, which are neighbours in the set except for names like `scope-2`. Modules of
/// another class than `like` run other operations.
void LostModules::addWithin(const std::set<std::string> &modules, llvm::StringRef scope, const std::string &like,
                            std::set<std::string> &result) const {
  auto add = [&](const std::string &module) {
    std::string other = classOf(module);
    if (like.empty() || other.empty() || other == like)
      result.insert(module);
  };
  if (modules.count(scope.str()))
    add(scope.str());
  std::string below = scope.empty() ? "" : scope.str() + ".";
  for (auto at = modules.lower_bound(below);
       at != modules.end() && llvm::StringRef(*at).starts_with(below) && result.size() < largestChoice; ++at)
    add(*at);
}

/// Only uniform values are equal by chance.
bool LostModules::mayBeSibling(llvm::ArrayRef<std::string> own) const {
  auto found = holder.find(own.front());
  return own.size() == 1 && found != holder.end() && isUniform(*found->second);
}

std::optional<Substitution> LostModules::choose(const std::string &module, llvm::ArrayRef<std::string> own,
                                                const std::set<std::string> &candidates,
                                                std::set<std::string> &ambiguous) const {
  if (candidates.empty())
    return Substitution();
  const std::string &from = lost.contains(*candidates.begin()) ? own.front() : module;
  size_t best = 0;
  std::vector<std::string> chosen;
  for (const std::string &candidate : candidates) {
    size_t tail = commonTail(from, candidate);
    if (tail > best)
      chosen.clear();
    if (tail >= best)
      chosen.push_back(candidate);
    best = std::max(best, tail);
  }
  if (candidates.size() >= largestChoice)
    chosen.assign(candidates.begin(), candidates.end());
  if (chosen.size() == 1)
    return lost.contains(chosen.front()) ? Substitution{from, chosen.front()} : substitutionOf(from, chosen.front());
  for (const std::string &candidate : chosen)
    noteAmbiguous(candidate, ambiguous);
  return std::nullopt;
}

void LostModules::noteAmbiguous(const std::string &candidate, std::set<std::string> &ambiguous) const {
  if (lost.contains(candidate))
    ambiguous.insert(candidate);
  else if (auto found = lostInModule.find(candidate); found != lostInModule.end())
    ambiguous.insert(found->second.begin(), found->second.end());
}

} // namespace fsdpc
