#include "frontend/onnx/lost_statements.h"

#include "llvm/ADT/StringExtras.h"
#include <algorithm>
#include <set>

namespace fsdpc {

namespace {

/// Of so many lost modules around a reader, nobody can tell which it reads.
constexpr size_t largestChoice = 64;

/// A parameter of the twin's place and the lost one's: everything within `from` is at the same place within `to`.
struct Substitution {
  std::string from, to;

  std::optional<std::string> apply(llvm::StringRef name) const {
    if (from.empty() || !isWithin(name, from))
      return std::nullopt;
    return to + name.drop_front(from.size()).str();
  }
};

size_t commonTail(llvm::StringRef a, llvm::StringRef b) {
  size_t count = 0;
  while (!a.empty() && !b.empty() && leafOf(a) == leafOf(b)) {
    ++count;
    a = moduleOf(a);
    b = moduleOf(b);
  }
  return count;
}

/// Without the components that both end in: a.layers.norm and b.layers.norm give a and b.
Substitution substitutionOf(llvm::StringRef from, llvm::StringRef to) {
  llvm::StringRef a = from, b = to;
  while (!a.empty() && !b.empty() && leafOf(a) == leafOf(b)) {
    a = moduleOf(a);
    b = moduleOf(b);
  }
  return a.empty() || b.empty() ? Substitution{from.str(), to.str()} : Substitution{a.str(), b.str()};
}

class LostFinder {
public:
  LostFinder(const GraphIndex &index, const ExportSignature &signature, const TracedGraph &traced,
             llvm::function_ref<bool(const onnx::TensorProto &)> isUniform)
      : index(index), signature(signature), traced(traced), isUniform(isUniform),
        nodesOf(nodesOfStatements(index, traced)) {
    listHeld();
    listLostParameters();
    listLostModules();
  }

  LostValues run() {
    if (lost.empty())
      return {};
    countReaders();
    for (size_t s = 0; s < traced.statements.size(); ++s)
      findLostArguments(static_cast<int>(s));
    LostValues result;
    for (LostValue &value : values)
      if (value.twin >= 0)
        resolve(value);
    dropConflicts();
    for (LostValue &value : values)
      if (value.twin >= 0 && !value.statements.empty())
        result.values.push_back(std::move(value));
    result.ambiguous.assign(ambiguous.begin(), ambiguous.end());
    return result;
  }

private:
  // ---- What is lost

  /// Parameters that the nodes of each statement read.
  void listHeld() {
    held.resize(traced.statements.size());
    for (const onnx::TensorProto &tensor : index.graph.initializer()) {
      std::string parameter = parameterOf(signature, tensor);
      if (parameter.empty())
        continue;
      holder.try_emplace(parameter, &tensor);
      for (const InitializerRead &read : index.readsOf(tensor.name()))
        if (int s = traced.statementOf(read.node); s >= 0 && !llvm::is_contained(held[s], parameter))
          held[s].push_back(parameter);
    }
  }

  llvm::StringRef scopeOf(int statement) const { return index.scopes[nodesOf[statement].front()]; }

  /// A parameter that no statement quotes is lost, unless a node of its own module reads another of its name: those two
  /// are tied.
  void listLostParameters() {
    for (const std::string &name : missingParameters(index.graph, signature))
      if (!traced.isMentioned(name))
        lost.insert(name);
    for (size_t s = 0; s < traced.statements.size(); ++s)
      for (const std::string &parameter : traced.statements[s].parameters) {
        llvm::StringRef scope = scopeOf(static_cast<int>(s));
        std::string own = (scope.empty() ? "" : scope.str() + ".") + leafOf(parameter).str();
        if (own != parameter)
          lost.erase(own);
      }
  }

  void listLostModules() {
    std::map<std::string, bool> isWhollyLost;
    for (const auto *list : {&signature.parameters, &signature.buffers})
      for (const std::string &name : *list) {
        std::string module = moduleOf(name).str();
        leaves[module].insert(leafOf(name).str());
        auto [known, isNew] = isWhollyLost.try_emplace(module, true);
        known->second &= lost.contains(name);
        if (lost.contains(name))
          lostBeside[module].push_back(name);
      }
    for (const auto &[module, isLost] : isWhollyLost)
      if (isLost)
        lostModules[leavesText(module)].insert(module);
  }

  std::string leavesText(const std::string &module) const {
    auto found = leaves.find(module);
    return found == leaves.end() ? "" : llvm::join(found->second, " ");
  }

  // ---- Who reads what is lost

  void countReaders() {
    for (const TracedStatement &statement : traced.statements) {
      llvm::StringSet<> counted;
      for (llvm::StringRef argument : statement.arguments)
        if (counted.insert(argument).second)
          ++readers[argument];
    }
    for (const onnx::ValueInfoProto &output : index.graph.output())
      ++readers[output.name()];
  }

  int producerStatement(llvm::StringRef value) const {
    int producer = index.producerPosition(value);
    return producer < 0 ? -1 : traced.statementOf(producer);
  }

  /// Inputs of a statement's nodes that come from other statements or from outside.
  std::vector<Read> inputsOf(int statement) const {
    std::vector<Read> result;
    for (int node : nodesOf[statement])
      for (int k = 0; k < index.graph.node(node).input_size(); ++k) {
        const std::string &value = index.graph.node(node).input(k);
        int producer = index.producerPosition(value);
        bool isConstant = producer >= 0 && traced.statementOf(producer) < 0;
        if (!value.empty() && !isConstant && index.initializerPosition(value) < 0 &&
            producerStatement(value) != statement)
          result.push_back({node, k});
      }
    return result;
  }

  llvm::StringRef valueOf(const Read &read) const { return index.graph.node(read.node).input(read.input); }

  void findLostArguments(int s) {
    const TracedStatement &statement = traced.statements[s];
    if (llvm::none_of(statement.arguments, [&](llvm::StringRef name) { return traced.isLost(name); }))
      return;
    std::vector<Read> inputs = inputsOf(s);
    if (!alignInputs(s, inputs))
      matchInputs(s, inputs);
  }

  /// One node that reads as many values as its statement reads them in the same order.
  bool alignInputs(int s, llvm::ArrayRef<Read> inputs) {
    std::vector<llvm::StringRef> arguments;
    for (llvm::StringRef name : traced.statements[s].arguments)
      if (!signature.placeholders.contains(name))
        arguments.push_back(name);
    if (nodesOf[s].size() != 1 || arguments.size() != inputs.size())
      return false;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!traced.isLost(arguments[i]) && producerStatement(valueOf(inputs[i])) != traced.find(arguments[i]))
        return false;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (traced.isLost(arguments[i]))
        addReader(arguments[i], inputs[i]);
    return true;
  }

  /// Otherwise an input from a statement that is no argument is the lost argument of the same kind.
  void matchInputs(int s, llvm::ArrayRef<Read> inputs) {
    llvm::StringSet<> arguments;
    std::map<std::string, std::vector<llvm::StringRef>> lostOfKind;
    for (llvm::StringRef name : traced.statements[s].arguments)
      if (arguments.insert(name).second && traced.isLost(name))
        lostOfKind[withoutNumber(name).str()].push_back(name);
    std::map<std::string, std::vector<Read>> readsOfKind;
    for (const Read &read : inputs) {
      int producer = producerStatement(valueOf(read));
      if (producer >= 0 && !arguments.contains(traced.statements[producer].name) &&
          valueOf(read) == traced.statements[producer].name)
        readsOfKind[withoutNumber(traced.statements[producer].name).str()].push_back(read);
    }
    for (const auto &[kind, names] : lostOfKind) {
      const std::vector<Read> &reads = readsOfKind[kind];
      bool isOneValue = llvm::all_of(
          reads, [&, &reads = reads](const Read &read) { return valueOf(read) == valueOf(reads.front()); });
      if (names.size() != 1 ? names.size() != reads.size() : !isOneValue)
        continue;
      for (size_t i = 0; i < reads.size(); ++i)
        addReader(names[names.size() == 1 ? 0 : i], reads[i]);
    }
  }

  void addReader(llvm::StringRef name, const Read &read) {
    int twin = producerStatement(valueOf(read));
    bool isSameKind = twin >= 0 && withoutNumber(traced.statements[twin].name) == withoutNumber(name) &&
                      valueOf(read) == traced.statements[twin].name;
    if (!isSameKind)
      return;
    auto [known, isNew] = valueByName.try_emplace(name, values.size());
    if (isNew)
      values.push_back({name.str(), twin, {}, {}});
    LostValue &value = values[known->second];
    if (value.twin != twin)
      value.twin = -1;
    value.readers.push_back(read);
  }

  // ---- What a lost value is made of

  struct Visit {
    int statement = -1;
    bool isCertain = false;
    Substitution inherited;
  };

  /// Walks from the twin of a lost value to what it reads, as far as that is lost too.
  void resolve(LostValue &value) {
    constexpr int largestGuess = 64, largestWalk = 4096;
    std::map<int, LostStatement> found; // by last node: a statement comes after those that it reads
    std::set<int> seen;
    std::vector<Visit> pending = {{value.twin, true, {}}};
    int guesses = 0;
    while (!pending.empty()) {
      Visit visit = std::move(pending.back());
      pending.pop_back();
      if (!seen.insert(visit.statement).second || static_cast<int>(seen.size()) > largestWalk ||
          (!visit.isCertain && ++guesses > largestGuess))
        continue;
      LostStatement &statement = found[nodesOf[visit.statement].back()];
      statement.twin = visit.statement;
      if (!held[visit.statement].empty() && !findParameters(value, visit, statement))
        return;
      bool isKept = !held[visit.statement].empty() && statement.parameters.empty();
      for (const Read &read : inputsOf(visit.statement)) {
        int producer = producerStatement(valueOf(read));
        if (producer < 0)
          continue;
        bool isCertain = visit.isCertain && hasNoOtherReader(visit.statement, producer, valueOf(read));
        bool mayBeLost = !isKept && !visit.inherited.from.empty();
        if (isCertain || mayBeLost)
          pending.push_back({producer, isCertain, visit.inherited});
      }
    }
    keepNeeded(value, found);
  }

  /// The statements that read the producer are all in the file: the lost one read something else.
  bool hasNoOtherReader(int statement, int producer, llvm::StringRef value) const {
    const TracedStatement &source = traced.statements[producer];
    bool isArgument = llvm::is_contained(traced.statements[statement].arguments, source.name);
    auto counted = readers.find(source.name);
    return isArgument && value == source.name && source.users >= 0 && counted != readers.end() &&
           counted->second >= source.users;
  }

  /// The lost statement's own parameters; false if that is ambiguous.
  bool findParameters(const LostValue &value, Visit &visit, LostStatement &statement) {
    const std::vector<std::string> &own = held[visit.statement];
    if (substitute(own, visit.inherited, statement))
      return true;
    if (!visit.isCertain)
      return true;
    std::optional<Substitution> nearest = search(value, own);
    if (!nearest)
      return false;
    if (!nearest->from.empty() && substitute(own, *nearest, statement))
      visit.inherited = *nearest;
    return true;
  }

  bool substitute(llvm::ArrayRef<std::string> own, const Substitution &by, LostStatement &statement) const {
    std::map<std::string, std::string> result;
    for (const std::string &name : own) {
      std::optional<std::string> other = by.apply(name);
      if (!other || !lost.contains(*other))
        return false;
      result[name] = *other;
    }
    statement.parameters = std::move(result);
    statement.fromScope = by.from;
    statement.toScope = by.to;
    statement.place = by.to;
    return true;
  }

  /// Nothing: ambiguous. An empty substitution: no parameter is lost there.
  std::optional<Substitution> search(const LostValue &value, llvm::ArrayRef<std::string> own) {
    std::string module = moduleOf(own.front()).str();
    bool isOneModule = llvm::all_of(own, [&](llvm::StringRef name) { return moduleOf(name) == module; });
    if (!isOneModule)
      return Substitution();
    std::set<std::string> candidates;
    size_t depth = 0;
    for (const Read &reader : value.readers) {
      std::set<std::string> nearest;
      size_t found = nearestCandidates(index.scopes[reader.node], module, own, nearest);
      if (found > depth) {
        depth = found;
        candidates.clear();
      }
      if (found == depth)
        candidates.insert(nearest.begin(), nearest.end());
    }
    return choose(module, own, candidates);
  }

  /// Lost modules like `module`, or else lost parameters beside its own, in the innermost module around `scope` that
  /// has any; how deep that is, 0 for nowhere.
  size_t nearestCandidates(llvm::StringRef scope, const std::string &module, llvm::ArrayRef<std::string> own,
                           std::set<std::string> &candidates) const {
    auto modules = lostModules.find(leavesText(module));
    auto beside = lostBeside.find(module);
    while (true) {
      if (modules != lostModules.end())
        addWithin(modules->second, scope, candidates);
      if (candidates.empty() && beside != lostBeside.end() && isWithin(module, scope) && mayStandBeside(own))
        candidates.insert(beside->second.begin(), beside->second.end());
      if (!candidates.empty())
        return scope.empty() ? 1 : scope.count('.') + 2;
      if (scope.empty())
        return 0;
      scope = moduleOf(scope);
    }
  }

  /// `scope` and what is below it, which are neighbours in the set but for names like `scope-2`.
  static void addWithin(const std::set<std::string> &modules, llvm::StringRef scope, std::set<std::string> &result) {
    if (modules.count(scope.str()))
      result.insert(scope.str());
    std::string below = scope.empty() ? "" : scope.str() + ".";
    for (auto at = modules.lower_bound(below);
         at != modules.end() && llvm::StringRef(*at).starts_with(below) && result.size() < largestChoice; ++at)
      result.insert(*at);
  }

  /// Values other than one constant are not equal by chance.
  bool mayStandBeside(llvm::ArrayRef<std::string> own) const {
    auto found = holder.find(own.front());
    return own.size() == 1 && found != holder.end() && isUniform(*found->second);
  }

  std::optional<Substitution> choose(const std::string &module, llvm::ArrayRef<std::string> own,
                                     const std::set<std::string> &candidates) {
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
      noteAmbiguous(candidate);
    return std::nullopt;
  }

  void noteAmbiguous(const std::string &candidate) {
    if (lost.contains(candidate))
      ambiguous.insert(candidate);
    else if (auto found = lostBeside.find(candidate); found != lostBeside.end())
      ambiguous.insert(found->second.begin(), found->second.end());
  }

  /// Statements with parameters of their own, and those that read one of them.
  void keepNeeded(LostValue &value, std::map<int, LostStatement> &found) const {
    std::map<int, std::string> placeOf;
    for (auto &[last, statement] : found) {
      for (const Read &read : inputsOf(statement.twin))
        if (auto producer = placeOf.find(producerStatement(valueOf(read)));
            producer != placeOf.end() && statement.place.empty())
          statement.place = producer->second;
      if (statement.place.empty())
        continue;
      placeOf[statement.twin] = statement.place;
      value.statements.push_back(statement);
    }
    if (!placeOf.count(value.twin))
      value.statements.clear();
  }

  /// Two values that would be one copy, and parameters that would come from two others, are ambiguous.
  void dropConflicts() {
    std::map<std::pair<int, std::string>, std::set<size_t>> valuesOf;
    std::map<std::string, std::set<std::string>> sourcesOf;
    for (size_t i = 0; i < values.size(); ++i)
      for (const LostStatement &statement : values[i].statements) {
        if (statement.twin == values[i].twin)
          valuesOf[{statement.twin, statement.place}].insert(i);
        for (const auto &[own, other] : statement.parameters)
          sourcesOf[other].insert(own);
      }
    for (LostValue &value : values) {
      bool isConflict = llvm::any_of(value.statements, [&](const LostStatement &statement) {
        bool isShared = statement.twin == value.twin && valuesOf[{statement.twin, statement.place}].size() > 1;
        return isShared || llvm::any_of(statement.parameters,
                                        [&](const auto &entry) { return sourcesOf[entry.second].size() > 1; });
      });
      if (!isConflict)
        continue;
      for (const LostStatement &statement : value.statements)
        for (const auto &entry : statement.parameters)
          ambiguous.insert(entry.second);
      value.statements.clear();
    }
  }

  const GraphIndex &index;
  const ExportSignature &signature;
  const TracedGraph &traced;
  llvm::function_ref<bool(const onnx::TensorProto &)> isUniform;
  std::vector<std::vector<int>> nodesOf;
  std::vector<std::vector<std::string>> held;
  llvm::StringMap<const onnx::TensorProto *> holder;
  llvm::StringSet<> lost;
  std::map<std::string, std::set<std::string>> leaves;        ///< by module: names of its own parameters
  std::map<std::string, std::set<std::string>> lostModules;   ///< by names of parameters: modules without any left
  std::map<std::string, std::vector<std::string>> lostBeside; ///< by module: its own parameters that are lost
  llvm::StringMap<int> readers;                               ///< by traced name: statements that quote it
  std::vector<LostValue> values;
  llvm::StringMap<size_t> valueByName;
  std::set<std::string> ambiguous;
};

} // namespace

std::vector<std::vector<int>> nodesOfStatements(const GraphIndex &index, const TracedGraph &traced) {
  std::vector<std::vector<int>> result(traced.statements.size());
  for (int i = 0; i < index.graph.node_size(); ++i)
    if (int s = traced.statementOf(i); s >= 0)
      result[s].push_back(i);
  return result;
}

LostValues findLostValues(const GraphIndex &index, const ExportSignature &signature, const TracedGraph &traced,
                          llvm::function_ref<bool(const onnx::TensorProto &)> isUniform) {
  return LostFinder(index, signature, traced, isUniform).run();
}

} // namespace fsdpc
