// Everything outside functions: header, tables, states, parameters.
#include "ir/text/reader.h"

#include "llvm/ADT/StringExtras.h"

namespace fsdpc::text {

constexpr int64_t maxMicroSteps = int64_t(1) << 20;

bool Reader::readModule() {
  using Read = bool (Reader::*)();
  static constexpr std::pair<llvm::StringRef, Read> items[] = {
      {"setting", &Reader::readSetting},     {"decisions", &Reader::readDecisions}, {"unit", &Reader::readUnit},
      {"outline", &Reader::readOutline},     {"state", &Reader::readState},         {"func", &Reader::readFunction},
      {"parameter", &Reader::readParameter}, {"class", &Reader::readClass}};
  if (!readHeader())
    return false;
  while (token.kind != Token::Kind::end) {
    const auto *item = llvm::find_if(items, [&](const auto &row) { return token.isWord(row.first); });
    if (item == std::end(items))
      return failHere("expected setting, decisions, unit, outline, class, state, func or parameter");
    advance();
    if (!(this->*item->second)())
      return false;
  }
  return true;
}

bool Reader::readHeader() {
  if (!acceptWord("module"))
    return failHere("expected `module @name stage(...)`");
  if (!readSymbol(module->name))
    return false;
  llvm::SmallVector<llvm::StringRef, 2> seen;
  while (clauseFollows()) {
    if (!once(seen))
      return false;
    if (acceptWord("stage")) {
      if (!parenthesized([&] {
            std::optional<Stage> stage = stageFromName(token.text);
            module->stage = stage.value_or(Stage::graph);
            bool known = stage || failHere("expected a stage: graph, train, sharded, async or planned");
            advance();
            return known;
          }))
        return false;
    } else if (acceptWord("mesh")) {
      if (!parenthesized([&] { return commaSeparated([&] { return readMeshAxis(); }); }))
        return false;
    } else if (acceptWord("micro_steps")) {
      if (!parenthesized([&] { return readMicroSteps(); }))
        return false;
    } else {
      return failHere("a module has no '" + token.text + "'" +
                      didYouMean(token.text, llvm::ArrayRef<llvm::StringRef>({"stage", "mesh", "micro_steps"})));
    }
  }
  return llvm::is_contained(seen, "stage") || failHere("the module's stage(...) is missing");
}

bool Reader::readMeshAxis() {
  Token at = token;
  MeshAxis axis;
  if (!readWordOrString(axis.name) || !expect('=') || !readInteger(axis.size))
    return false;
  if (acceptWord("stride") && !readInteger(axis.stride))
    return false;
  int64_t ranks;
  if (axis.size < 1 || axis.stride < 1 || __builtin_mul_overflow(axis.stride, axis.size, &ranks) || ranks > INT32_MAX)
    return fail(at, "a mesh axis has at least 1 rank and stride, and spans fewer than 2^31 ranks");
  module->mesh.push_back(std::move(axis));
  return true;
}

bool Reader::readMicroSteps() {
  Token at = token;
  return readInteger(module->microSteps) && ((module->microSteps >= 1 && module->microSteps <= maxMicroSteps) ||
                                             fail(at, "a step has 1 to 2^20 micro-steps"));
}

bool Reader::readSetting() {
  Token at = token;
  std::string key, value;
  if (!readWordOrString(key) || !readString(value))
    return false;
  const Fact *fact = llvm::find_if(factList(), [&](const Fact &row) { return row.name == key; });
  if (fact == factList().end())
    return fail(at, "there is no setting " + key);
  if (fact->print(module->facts, fact->argument))
    return fail(at, "setting " + key + " occurs twice");
  if (fact->read(value, module->facts, fact->argument))
    return true;
  const std::string values = fact->spellings.empty() ? " of it" : " of " + llvm::join(fact->spellings, ", ");
  return fail(at, "setting " + key + ": not a value" + values + didYouMean(value, fact->spellings));
}

bool Reader::readClass() {
  Token at = token;
  std::string path, name;
  if (!readSymbol(path) || !readString(name))
    return false;
  return module->classes.emplace(path, name).second || fail(at, "class " + at.text + " occurs twice");
}

bool Reader::readBackwardPrefetch(BackwardPrefetch &prefetch) {
  return parenthesized([&] {
    Token at = token;
    std::string text;
    if (!readWordOrString(text))
      return false;
    std::optional<BackwardPrefetch> value = choiceFrom<BackwardPrefetch>(text);
    prefetch = value.value_or(prefetch);
    return value || fail(at, "backward_prefetch is " + choiceValues<BackwardPrefetch>() + ", not '" + text + "'");
  });
}

bool Reader::readDecisions() {
  Decisions &decisions = module->decisions;
  while (clauseFollows()) {
    if (acceptWord("no_forward_prefetch")) {
      decisions.forwardPrefetch = false;
    } else if (acceptWord("no_overlap_comm")) {
      decisions.overlapComm = false;
    } else if (acceptWord("own_reduce_communicator")) {
      decisions.ownReduceCommunicator = true;
    } else if (acceptWord("max_inflight_all_gathers")) {
      if (!parenthesized([&] { return readInteger(decisions.maxInflightAllGathers); }))
        return false;
    } else if (acceptWord("backward_prefetch")) {
      if (!readBackwardPrefetch(decisions.backwardPrefetch))
        return false;
    } else if (acceptWord("offload_activations")) {
      if (!parenthesized([&] { return readDouble(decisions.offloadActivations); }))
        return false;
    } else {
      return failHere("expected max_inflight_all_gathers, no_forward_prefetch, backward_prefetch, no_overlap_comm, "
                      "own_reduce_communicator or offload_activations");
    }
  }
  return true;
}

bool Reader::readUnitChoice(UnitChoices &choices) {
  const UnitChoice *choice = token.kind == Token::Kind::word ? unitChoice(token.text) : nullptr;
  if (!choice) {
    std::string known = "source";
    for (const UnitChoice &row : unitChoices())
      known += ", " + row.name.str();
    return failHere("a unit has " + known + ", not '" + token.text + "'");
  }
  advance();
  return parenthesized([&] {
    Token at = token;
    std::string value;
    return readWordOrString(value) &&
           (choice->read(value, choices) ||
            fail(at, choice->name.str() + " is " + choice->values() + ", not '" + value + "'"));
  });
}

bool Reader::readUnit() {
  Token at = token;
  Unit unit;
  if (!readSymbol(unit.name))
    return false;
  while (clauseFollows()) {
    if (acceptWord("source")) {
      if (!parenthesized([&] { return readWordOrString(unit.source); }))
        return false;
    } else if (!readUnitChoice(unit.choices)) {
      return false;
    }
  }
  if (!units.try_emplace(unit.name, static_cast<int32_t>(module->units.size())).second)
    return fail(at, "unit " + at.text + " is declared twice");
  module->addUnit(std::move(unit));
  return true;
}

bool Reader::readOutline() {
  Token at = token;
  std::string name;
  if (!readSymbol(name))
    return false;
  if (!outlines.try_emplace(name, static_cast<int32_t>(module->outlines.size())).second)
    return fail(at, "outline " + at.text + " is declared twice");
  module->outlines.push_back(std::move(name));
  return true;
}

bool Reader::readState() {
  Token at = token;
  State state;
  if (!readSymbol(state.name))
    return false;
  if (module->state(state.name))
    return fail(at, "state " + at.text + " is declared twice");
  bool known = false;
  for (StateRole role : {StateRole::parameter, StateRole::segment, StateRole::replica, StateRole::optimizer,
                         StateRole::scalar, StateRole::buffer, StateRole::accumulator, StateRole::table})
    if (!known && token.isWord(nameOf(role))) {
      state.role = role;
      known = true;
    }
  if (!known)
    return failHere(
        "expected the state's role: parameter, segment, replica, optimizer, scalar, buffer, accumulator or table");
  advance();
  if (!expect(':') || !readTensorType(state.type))
    return false;
  llvm::SmallVector<llvm::StringRef, 8> seen;
  while (clauseFollows())
    if (!once(seen) || !readStateClause(state))
      return false;
  module->addState(std::move(state));
  return true;
}

bool Reader::readStateClause(State &state) {
  if (acceptWord("frozen")) {
    state.trainable = false;
    return true;
  }
  if (acceptWord("host"))
    return state.onHost = true;
  Token clause = token;
  advance();
  return parenthesized([&] {
    if (clause.isWord("owner"))
      return readSymbol(state.owner);
    if (clause.isWord("field"))
      return readWordOrString(state.field);
    if (clause.isWord("init"))
      return readDouble(state.initialValue);
    if (clause.isWord("factor"))
      return readDouble(state.factor.emplace());
    if (clause.isWord("unit"))
      return readSymbol(state.unit);
    if (clause.isWord("over"))
      return readSymbol(state.over);
    if (clause.isWord("padded"))
      return readInteger(state.paddedElements);
    if (clause.isWord("at"))
      return readPlace(state.place);
    if (clause.isWord("slots"))
      return commaSeparated([&] { return readSlot(state); });
    return fail(clause,
                "a state has owner, field, init, factor, unit, over, padded, frozen, host, at and slots, not '" +
                    clause.text + "'");
  });
}

bool Reader::readSlot(State &state) {
  SegmentSlot slot;
  if (!readSymbol(slot.parameter))
    return false;
  if (!acceptWord("at"))
    return failHere("expected `at OFFSET size ELEMENTS`");
  if (!readInteger(slot.offsetElements))
    return false;
  if (!acceptWord("size"))
    return failHere("expected `size ELEMENTS`");
  if (!readInteger(slot.elements))
    return false;
  state.slots.push_back(std::move(slot));
  return true;
}

bool Reader::readParameter() {
  Token at = token;
  Parameter parameter;
  if (!readSymbol(parameter.name) || !expect(':') || !readTensorType(parameter.type))
    return false;
  if (!parameters.insert(parameter.name).second)
    return fail(at, "parameter " + at.text + " is declared twice");
  parameter.initializer = parameter.name;
  llvm::SmallVector<llvm::StringRef, 8> seen;
  while (clauseFollows())
    if (!once(seen) || !readParameterClause(parameter))
      return false;
  module->parameters.push_back(std::move(parameter));
  return true;
}

bool Reader::readParameterClause(Parameter &parameter) {
  if (acceptWord("frozen")) {
    parameter.trainable = false;
    return true;
  }
  if (acceptWord("no_value")) {
    parameter.hasValue = false;
    return true;
  }
  if (acceptWord("ignored"))
    return parameter.ignored = true;
  if (acceptWord("buffer"))
    return parameter.isBuffer = true;
  Token clause = token;
  advance();
  return parenthesized([&] {
    if (clause.isWord("initializer"))
      return readString(parameter.initializer);
    if (clause.isWord("permutation"))
      return readDims(parameter.permutation);
    if (clause.isWord("file_shape"))
      return readDims(parameter.fileShape);
    if (clause.isWord("unit"))
      return readSymbol(parameter.unit);
    if (clause.isWord("recovered"))
      return readString(parameter.recovered);
    if (clause.isWord("other_names"))
      return commaSeparated([&] { return readString(parameter.otherNames.emplace_back()); });
    if (clause.isWord("initial"))
      return readInitialValues(parameter.initial.emplace());
    if (clause.isWord("file_dtype"))
      return readDType(parameter.fileDType.emplace());
    if (clause.isWord("adapter"))
      return readAdapter(parameter.adapter.emplace());
    if (clause.isWord("uses"))
      return commaSeparated([&] { return readParameterUse(parameter); });
    return fail(clause,
                "a parameter has frozen, no_value, buffer, ignored, initial, initializer, adapter, other_names, "
                "permutation, file_shape, file_dtype, unit, recovered and uses, not '" +
                    clause.text + "'");
  });
}

/// Reads adapter(@down, @up, 2.0, 0.1, input_first): the scale, then the dropout.
bool Reader::readAdapter(Adapter &adapter) {
  if (!readSymbol(adapter.down) || !expect(',') || !readSymbol(adapter.up) || !expect(',') ||
      !readDouble(adapter.scale) || !expect(',') || !readDouble(adapter.dropout))
    return false;
  if (!accept(','))
    return true;
  adapter.inputFirst = acceptWord("input_first");
  return adapter.inputFirst || failHere("expected input_first");
}

/// Reads initial(uniform -0.5, 0.5, "origin").
bool Reader::readInitialValues(InitialValues &initial) {
  Token kind = token;
  advance();
  bool isKnown = false;
  for (InitialKind each : {InitialKind::constant, InitialKind::uniform, InitialKind::normal})
    if (kind.isWord(nameOf(each))) {
      initial.kind = each;
      isKnown = true;
    }
  if (!isKnown)
    return fail(kind, "initial values are constant, uniform or normal, not '" + kind.text + "'");
  if (!readDouble(initial.first))
    return false;
  if (initial.kind != InitialKind::constant && (!expect(',') || !readDouble(initial.second)))
    return false;
  return !accept(',') || readString(initial.origin);
}

bool Reader::readParameterUse(Parameter &parameter) {
  ParameterUse use;
  if (!readString(use.node) || !expect(':') || !readInteger(use.input))
    return false;
  parameter.uses.push_back(std::move(use));
  return true;
}

} // namespace fsdpc::text
