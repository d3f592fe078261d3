#include "passes/shard/row_tables.h"

#include "ir/op.h"
#include "ir/reserved_names.h"
#include "passes/shard/placement.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

bool isRowLookup(const Use &use) {
  return use.user()->op() == Op::gather && use.index() == 0 && use.user()->get<AxisAttributes>().axis == 0;
}

namespace {

/// The size of the parts of a shard in which a table is tapped, and the largest number of them.
constexpr int64_t minPartBytes = int64_t{4} << 20, maxParts = 64;

bool isRounding(const Node &node) {
  return node.op() == Op::cast && isFloat(node.result()->type().dtype()) &&
         byteSize(node.result()->type().dtype()) == 2;
}

/// Uses of a parameter by rows.
struct Lookups {
  bool areAll = true; ///< there are no other uses
  int64_t rows = 0;   ///< looked up by one rank

  void addUsesOf(const Value &value, bool mayRound) {
    for (const Use *use = value.uses(); use; use = use->next()) {
      if (isRowLookup(*use))
        rows += use->user()->operand(1)->type().elements();
      else if (mayRound && isRounding(*use->user()))
        addUsesOf(*use->user()->result(), false);
      else
        areAll = false;
    }
  }
};

/// True for functions whose reads of tables are not replaced: those that save the parameters.
bool readsWholeParameters(FunctionKind kind) { return exportsWeights(kind) || kind == FunctionKind::update; }

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
    return isSplit && isGathered && module.state(parameter.name) && !parameter.isBuffer &&
           parameter.type.dtype() == DType::f32 && parameter.type.rank() > 0 && lookupsOf(parameter).rows > 0 &&
           parameter.permutation.empty();
  }
  bool canExchangeGradient(const Parameter &parameter, const Unit &unit) const {
    return summedByRows.contains(parameter.name) && !keepsGradients(unit);
  }
  Lookups lookupsOf(const Parameter &parameter) const {
    auto found = lookups.find(parameter.name);
    return found == lookups.end() ? Lookups() : found->second;
  }
  /// Rows that the ranks of a group exchange in one direction.
  int64_t exchangedRows(const Parameter &parameter, const Unit &unit) const {
    return lookupsOf(parameter).rows * module.axis(axisOf(module, placementOf(unit).split))->size;
  }

private:
  void collectLookups(const Function &function) {
    for (const Node *node : function)
      if (node->op() == Op::read) {
        Lookups own;
        own.addUsesOf(*node->result(), true);
        Lookups &all = lookups[node->get<StateAttributes>().state.name];
        all.areAll &= own.areAll;
        // Evaluations look up no more rows than steps do.
        if (function.kind() == FunctionKind::microStep)
          all.rows += own.rows;
      }
  }

  void collectGradients() {
    const Node &ret = *module.function(FunctionKind::microStep)->returnNode();
    const std::vector<std::string> &results = ret.get<ReturnAttributes>().names;
    for (size_t i = 0; i < results.size(); ++i) {
      llvm::StringRef parameter = results[i];
      if (!parameter.consume_front(names::gradientPrefix))
        continue;
      const Value &gradient = *ret.operand(static_cast<unsigned>(i));
      if (gradient.definer() && (lookupOf(*gradient.definer()) || splitGradientOf(gradient).add))
        summedByRows.insert(parameter);
    }
  }

  const Module &module;
  llvm::StringMap<Lookups> lookups;
  llvm::StringSet<> summedByRows;
};

bool isWorthwhile(const Parameter &parameter, int64_t exchanged) {
  return parameter.type.bytes() >= RowTables::minTableBytes && exchanged <= parameter.type.dim(0) / 2;
}

std::string remarkOn(const Parameter &parameter, int64_t exchanged, bool hasOtherUses, bool exchangesGradient) {
  std::string text = ("'" + parameter.name + "' is looked up by rows: a micro-step exchanges " +
                      llvm::Twine(exchanged) + " rows instead of gathering " + llvm::Twine(parameter.type.dim(0)))
                         .str();
  if (hasOtherUses)
    text += "; its other uses gather it";
  return text + (exchangesGradient ? "" : "; the gradient is summed unsharded");
}

} // namespace

Node *lookupAddedBy(const Value &local) {
  Node *scatter = local.definer();
  bool isLookup = scatter && scatter->op() == Op::scatterAdd && scatter->get<ScatterAddAttributes>().axis == 0 &&
                  local.hasOneUse() && local.type().dtype() == DType::f32;
  return isLookup ? scatter : nullptr;
}

Node *lookupOf(const Node &sum) {
  bool isSum = sum.op() == Op::batchSum && sum.get<BatchSumAttributes>().ranks == 0;
  return isSum ? lookupAddedBy(*sum.operand(0)) : nullptr;
}

SplitGradient splitGradientOf(const Value &gradient) {
  Node *add = gradient.definer();
  if (!add || add->op() != Op::add)
    return {};
  Node *others = add->operand(0)->definer(), *lookup = add->operand(1)->definer();
  bool isSplit = others && lookup && others != lookup && others->op() == Op::batchSum &&
                 others->result()->hasOneUse() && lookup->result()->hasOneUse() && lookupOf(*lookup);
  return isSplit ? SplitGradient{add, others, lookup} : SplitGradient();
}

RowsAttributes RowTables::attributesOf(const Module &module, const State &segment, bool accumulateF32) {
  const Type &table = module.parameter(segment.slots.front().parameter)->type;
  return {{segment.over},         module.axis(segment.over)->size,
          table.dim(0),           table.elements() / table.dim(0),
          segment.paddedElements, accumulateF32};
}

Value *RowTables::lookUp(Builder &builder, Value &indices, const State &segment, const State &source) {
  const Module &module = *builder.function().module();
  const CollectiveAttributes axis = overAxis(module, segment.over);
  Value *own = builder.reshape(&indices, {indices.type().elements()});
  Value *all = builder.create(Op::allGather, {own}, axis)->result();
  Value *shard = builder.readState(source);
  Value *answers = builder.create(Op::gatherRows, {shard, all}, attributesOf(module, segment))->result();
  return builder.create(Op::reduceScatter, {answers}, axis)->result();
}

void RowTables::tapParts(Builder &builder, Value &shard, const State &segment, llvm::StringRef prefix) {
  const Module &module = *builder.function().module();
  const int64_t own = shard.type().elements(), width = attributesOf(module, segment).width;
  const int64_t bytes = std::max(minPartBytes, shard.type().bytes() / maxParts);
  const int64_t part = std::max<int64_t>(1, bytes / (width * byteSize(shard.type().dtype()))) * width;
  const std::string &parameter = segment.slots.front().parameter;
  for (int64_t from = 0; from < own; from += part) {
    const int64_t elements = std::min(part, own - from);
    Value *piece = builder.create(Op::view, {&shard}, ViewAttributes{from, {elements}})->result();
    Value *full = builder.create(Op::allGather, {piece}, overAxis(module, segment.over))->result();
    full->setName((prefix + parameter + ".part").str());
    builder.create(Op::tap, {full}, TapAttributes{{parameter}, from, elements, own});
  }
}

RowTables RowTables::decide(const Module &module) {
  const Decider decider(module);
  RowTables result;
  for (const Parameter &parameter : module.parameters) {
    const Unit &unit = module.units[module.unitIndex(parameter.unit)];
    if (unit.choices.rows == RowLookup::off || !decider.canBeByRows(parameter, unit))
      continue;
    const int64_t exchanged = decider.exchangedRows(parameter, unit);
    if (unit.choices.rows == RowLookup::automatic && !isWorthwhile(parameter, exchanged))
      continue;
    const bool isTrained = module.state(parameter.name)->trainable;
    const bool exchangesGradient = isTrained && decider.canExchangeGradient(parameter, unit);
    result.tables[parameter.name] = exchangesGradient;
    result.texts.push_back(
        remarkOn(parameter, exchanged, !decider.lookupsOf(parameter).areAll, exchangesGradient || !isTrained));
  }
  return result;
}

} // namespace fsdpc
