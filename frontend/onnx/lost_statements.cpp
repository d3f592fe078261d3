#include "frontend/onnx/lost_statements.h"

#include "frontend/onnx/lost_modules.h"

#include "llvm/ADT/StringExtras.h"
#include <algorithm>
#include <set>

namespace fsdpc {

namespace {

class LostFinder {
public:
  LostFinder(const GraphIndex &index, const ExportSignature &signature, const TracedGraph &traced,
             llvm::function_ref<bool(const onnx::TensorProto &)> isUniform)
      : index(index), signature(signature), traced(traced), nodesOf(nodesOfStatements(index, traced)),
        modules(index, signature, traced, nodesOf, isUniform) {}

  LostValues run() {
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
  // ---- Readers of lost values

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

  /// True for a quoted value that nothing in the file makes.
  bool isLostValue(llvm::StringRef name) const {
    return traced.isLost(name) && index.producerPosition(name) < 0 && index.initializerPosition(name) < 0;
  }

  /// True if the value is the entire result of its statement. One of several results of a node (getitem_3 of a
  /// BatchNormalization) counts if nothing reads the others.
  bool isResult(llvm::StringRef value, int statement) const {
    const int position = index.producerPosition(value);
    if (value == traced.statements[statement].name || tracedOperation(value) != "getitem" ||
        position != nodesOf[statement].back())
      return value == traced.statements[statement].name;
    return llvm::all_of(index.graph.node(position).output(),
                        [&](const std::string &other) { return other == value || index.consumers(other).empty(); });
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
    if (llvm::none_of(statement.arguments, [&](llvm::StringRef name) { return isLostValue(name); }))
      return;
    std::vector<Read> inputs = inputsOf(s);
    if (!alignInputs(s, inputs))
      matchInputs(s, inputs);
  }

  /// Handles a statement with one node that reads as many values as the statement, in the same order.
  bool alignInputs(int s, llvm::ArrayRef<Read> inputs) {
    std::vector<llvm::StringRef> arguments;
    for (llvm::StringRef name : traced.statements[s].arguments)
      if (!signature.placeholders.contains(name))
        arguments.push_back(name);
    if (nodesOf[s].size() != 1 || arguments.size() != inputs.size())
      return false;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!isLostValue(arguments[i]) && valueOf(inputs[i]) != arguments[i] &&
          producerStatement(valueOf(inputs[i])) != traced.find(arguments[i]))
        return false;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (isLostValue(arguments[i]))
        addReader(arguments[i], inputs[i]);
    return true;
  }

  /// Otherwise, an input made by a statement that is not quoted stands for the lost argument of the same kind.
  void matchInputs(int s, llvm::ArrayRef<Read> inputs) {
    llvm::StringSet<> arguments;
    std::map<std::string, std::vector<llvm::StringRef>> lostOfKind;
    for (llvm::StringRef name : traced.statements[s].arguments)
      if (arguments.insert(name).second && isLostValue(name))
        lostOfKind[withoutNumber(name).str()].push_back(name);
    std::map<std::string, std::vector<Read>> readsOfKind;
    for (const Read &read : inputs) {
      int producer = producerStatement(valueOf(read));
      if (producer >= 0 && !arguments.contains(valueOf(read)) && isResult(valueOf(read), producer))
        readsOfKind[withoutNumber(valueOf(read)).str()].push_back(read);
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
    bool isSameKind = twin >= 0 && withoutNumber(valueOf(read)) == withoutNumber(name) && isResult(valueOf(read), twin);
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

  // ---- Statements that make a lost value

  struct Visit {
    int statement = -1;
    bool isCertain = false;
    Substitution inherited;
  };

  /// Walks from the twin of a lost value to the statements that it reads, as far as they are lost too.
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
      if (!modules.held(visit.statement).empty() && !findParameters(value, visit, statement))
        return;
      bool isKept = !modules.held(visit.statement).empty() && statement.parameters.empty();
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
    if (value.statements.empty())
      noteCallsOfOthers(value);
  }

  /// No lost statement made the value: it is the twin's own, or a call of a module whose other calls are in the file.
  /// If parameters were equal, these cases cannot be distinguished.
  void noteCallsOfOthers(const LostValue &value) {
    const TracedStatement &twin = traced.statements[value.twin];
    // If a reader of the twin's own value is gone, that reader was a step without effect.
    const bool mayBeStep = readers.lookup(twin.name) < twin.users && index.producer(twin.name);
    // A module that computes a value twice reads both itself.
    llvm::StringRef scope = index.scopes[nodesOf[value.twin].front()];
    const bool isWithinModule = !scope.empty() && llvm::all_of(value.readers, [&](const Read &read) {
      return isWithin(index.scopes[read.node], scope);
    });
    if (!mayBeStep && !isWithinModule && modules.hasEquals(value.twin))
      ambiguous.insert(modules.held(value.twin).begin(), modules.held(value.twin).end());
  }

  /// True if all statements that read the producer are in the file. The lost statement then read something else.
  bool hasNoOtherReader(int statement, int producer, llvm::StringRef value) const {
    const TracedStatement &source = traced.statements[producer];
    bool isArgument = llvm::is_contained(traced.statements[statement].arguments, source.name);
    auto counted = readers.find(source.name);
    return isArgument && value == source.name && source.users >= 0 && counted != readers.end() &&
           counted->second >= source.users;
  }

  /// Finds the lost statement's own parameters. Returns false if they are ambiguous.
  bool findParameters(const LostValue &value, Visit &visit, LostStatement &statement) {
    const std::vector<std::string> &own = modules.held(visit.statement);
    if (substitute(own, visit.inherited, statement))
      return true;
    if (!visit.isCertain)
      return true;
    std::vector<llvm::StringRef> scopes;
    for (const Read &reader : value.readers)
      scopes.push_back(index.scopes[reader.node]);
    std::optional<Substitution> nearest = modules.search(scopes, own, ambiguous);
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
      if (!other || !modules.isLost(*other))
        return false;
      result[name] = *other;
    }
    statement.parameters = std::move(result);
    statement.fromScope = by.from;
    statement.toScope = by.to;
    statement.place = by.to;
    return true;
  }

  /// Keeps statements with their own parameters, and those that depend on one of them.
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

  /// Drops ambiguous values: two values that would share one copy, and values with a parameter that two different
  /// parameters would map to.
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
  std::vector<std::vector<int>> nodesOf;
  LostModules modules;
  llvm::StringMap<int> readers; ///< by traced name: statements that quote it
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
