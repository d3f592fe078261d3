#include "passes/shard/row_tables.h"

#include "ir/op.h"
#include "ir/reserved_names.h"
#include "passes/shard/placement.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

namespace {

bool isRounding(const Node &node) {
  return node.op() == Op::cast && isFloat(node.result()->type().dtype()) &&
         byteSize(node.result()->type().dtype()) == 2;
}

bool isRowLookup(const Use &use) {
  return use.user()->op() == Op::gather && use.index() == 0 && use.user()->get<AxisAttributes>().axis == 0;
}

/// All uses of a value, each by rows.
struct Lookups {
  bool areByRows = true;
  int64_t rows = 0; ///< looked up by one rank

  void addUsesOf(const Value &value, bool mayRound) {
    for (const Use *use = value.uses(); use; use = use->next()) {
      if (isRowLookup(*use))
        rows += use->user()->operand(1)->type().elements();
      else if (mayRound && isRounding(*use->user()))
        addUsesOf(*use->user()->result(), false);
      else
        areByRows = false;
    }
  }
};

/// True for functions whose reads of tables are not replaced: those that save the parameters.
bool readsWholeParameters(FunctionKind kind) {
  return kind == FunctionKind::exportWeights || kind == FunctionKind::update;
}

class Decider {
public:
  explicit Decider(const Module &module) : module(module) {
    for (const std::unique_ptr<Function> &function : module.functions)
      if (!readsWholeParameters(function->kind()))
        collectLookups(*function);
    collectGradients();
  }

  bool canBeByRows(const Parameter &parameter, const Unit &unit) const {
    const Placement placement = placementOf(unit);
    bool isSplit = !parameter.ignored && !axisOf(module, placement.split).empty();
    bool isGathered = placement.copy != UnshardedCopy::always && unit.choices.offload != Offload::params;
    auto found = lookups.find(parameter.name);
    return isSplit && isGathered && !keepsGradients(unit) && module.state(parameter.name) && !parameter.isBuffer &&
           parameter.type.dtype() == DType::f32 && parameter.type.rank() > 0 && found != lookups.end() &&
           found->second.areByRows && found->second.rows > 0 && !summedOtherwise.contains(parameter.name);
  }

  /// Rows that the ranks of a group exchange in one direction.
  int64_t exchangedRows(const Parameter &parameter, const Unit &unit) const {
    return lookups.find(parameter.name)->second.rows * module.axis(axisOf(module, placementOf(unit).split))->size;
  }

private:
  void collectLookups(const Function &function) {
    for (const Node *node : function)
      if (node->op() == Op::read) {
        Lookups own;
        own.addUsesOf(*node->result(), true);
        Lookups &all = lookups[node->get<StateAttributes>().state.name];
        all.areByRows &= own.areByRows;
        // Evaluations look up no more rows than steps do.
        if (function.kind() == FunctionKind::microStep)
          all.rows += own.rows;
      }
  }

  /// Trained parameters whose gradient is not the f32 sum of one scatter_add.
  void collectGradients() {
    const Node &ret = *module.function(FunctionKind::microStep)->returnNode();
    const std::vector<std::string> &results = ret.get<ReturnAttributes>().names;
    for (size_t i = 0; i < results.size(); ++i) {
      llvm::StringRef parameter = results[i];
      if (!parameter.consume_front(names::gradientPrefix))
        continue;
      const Node *sum = ret.operand(static_cast<unsigned>(i))->definer();
      const Node *local = sum && sum->op() == Op::batchSum ? sum->operand(0)->definer() : nullptr;
      bool isOneLookup = local && local->op() == Op::scatterAdd && local->get<ScatterAddAttributes>().axis == 0 &&
                         local->result()->hasOneUse() && sum->get<BatchSumAttributes>().ranks == 0 &&
                         local->result()->type() == module.parameter(parameter)->type;
      if (!isOneLookup)
        summedOtherwise.insert(parameter);
    }
  }

  const Module &module;
  llvm::StringMap<Lookups> lookups;
  llvm::StringSet<> summedOtherwise;
};

bool isWorthwhile(const Parameter &parameter, int64_t exchanged) {
  return parameter.type.bytes() >= RowTables::minTableBytes && exchanged <= parameter.type.dim(0) / 2;
}

} // namespace

RowsAttributes RowTables::attributesOf(const Module &module, const State &segment, bool accumulateF32) {
  const Type &table = module.parameter(segment.slots.front().parameter)->type;
  return {{segment.over},         module.axis(segment.over)->size,
          table.dim(0),           table.elements() / table.dim(0),
          segment.paddedElements, accumulateF32};
}

RowTables RowTables::decide(const Module &module) {
  const Decider decider(module);
  RowTables tables;
  for (const Parameter &parameter : module.parameters) {
    const Unit &unit = module.units[module.unitIndex(parameter.unit)];
    if (unit.choices.rows == RowLookup::off || !decider.canBeByRows(parameter, unit))
      continue;
    const int64_t exchanged = decider.exchangedRows(parameter, unit);
    if (unit.choices.rows == RowLookup::automatic && !isWorthwhile(parameter, exchanged))
      continue;
    tables.names[parameter.name] = exchanged;
    tables.texts.push_back(("'" + parameter.name + "' is looked up by rows: a micro-step exchanges " +
                            llvm::Twine(exchanged) + " rows instead of gathering " + llvm::Twine(parameter.type.dim(0)))
                               .str());
  }
  return tables;
}

} // namespace fsdpc
