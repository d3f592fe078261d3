// --separate_documents: packed documents of one sample do not see each other.
//
// The problem. A sample of T tokens often holds several documents. Without care a query attends to keys of the
// documents before its own, and learned positions go on instead of starting again.
//
// The idea. The program takes the number of each token's document as an input, which attention has as an operand. What
// is left to prove is that positions meet in attention alone. The pass follows the axis of positions through the
// function with the rules that follow the samples of a batch (ir/batch_position.h): they are lost where elements of
// different positions are combined. Tables that are added at every position are looked up by a second input.
//
// Example: a table and an attention, for two samples of 64 tokens.
//
//   %t = broadcast %wpe : f32[2,64,32]                %t = gather %wpe, %document_positions axis(0)
//   %x = add %tokens, %t                        ->    %x = add %tokens, %t
//   %y, %l = attention %q, %k, %v causal              %y, %l = attention %q, %k, %v, %document_ids causal documents
//
// What is not changed. Rotary tables and biases of attention depend on distances alone, which are the same within a
// document.
#include "ir/batch_position.h"
#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "ir/usage_error.h"
#include "passes/graph/match.h"
#include "passes/passes.h"
#include "passes/support/clone.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc {

namespace {

using Kind = BatchFact::Kind;

/// An addend that differs from position to position and is the same for every sample.
struct PositionTable {
  Node *sum = nullptr;
  unsigned operand = 0;
};

llvm::Error refuse(const llvm::Twine &why) {
  return llvm::make_error<UsageError>(("--separate_documents: " + why).str());
}

/// Whether it is the same at every index of `axis`: one row is looked up for all of them, as is the token type of a
/// model that is given none.
bool isOneRow(const Value *value, int64_t axis) {
  const Node *lookup = definedBy(value, Op::gather);
  return lookup && lookup->get<AxisAttributes>().axis == 0 && axis < lookup->operand(1)->type().rank() &&
         splatOf(lookup->operand(1));
}

class DocumentSeparator {
public:
  explicit DocumentSeparator(Function &forward) : forward(forward), builder(forward) {}

  llvm::Expected<std::string> run() {
    if (llvm::Error error = findAttention())
      return error;
    Value *ids = forward.addArgument(ArgumentKind::input, documentIdsName, Type(DType::i64, {samples, positions}));
    for (Node *node : attention) {
      node->appendOperand(ids);
      node->get<AttentionAttributes>().documents = true;
    }
    if (llvm::Error error = provePositionsMeetInAttention())
      return error;
    for (const PositionTable &table : tables)
      if (llvm::Error error = lookUp(table))
        return error;
    eraseDeadNodes(forward); // what broadcast the tables
    const std::string restarted =
        tables.empty() ? "" : ", " + std::to_string(tables.size()) + " table(s) of positions looked up";
    return std::to_string(attention.size()) + " attention(s) keep documents apart" + restarted;
  }

private:
  static int64_t sequenceAxis(const Node &node) { return node.get<AttentionAttributes>().sequenceFirst ? 1 : 2; }

  llvm::Error findAttention() {
    for (Node *node : forward) {
      if (node->op() != Op::attention || node->get<AttentionAttributes>().documents)
        continue;
      const Type &query = node->operand(0)->type();
      const int64_t axis = sequenceAxis(*node), length = query.dim(axis);
      if (length != node->operand(1)->type().dim(axis) || (positions > 0 && length != positions))
        return refuse("attention '" + node->source + "' is not of one sequence with itself, as the others are");
      positions = length;
      samples = query.dim(0);
      attention.push_back(node);
    }
    if (attention.empty())
      return refuse("the model has no attention that fsdpc recognizes and that does not keep documents apart already");
    for (llvm::StringRef name : {documentIdsName, documentPositionsName})
      if (forward.argument(name))
        return refuse("the model has an input " + name + " of its own: feed it with --fill");
    return llvm::Error::success();
  }

  bool isInput(const Argument &argument) const {
    const Type &type = argument.value->type();
    return argument.kind == ArgumentKind::input && type.rank() >= 2 && type.dim(0) == samples &&
           type.dim(1) == positions;
  }

  llvm::Error provePositionsMeetInAttention() {
    for (const Argument &argument : forward.arguments())
      if (isInput(argument))
        facts[argument.value.get()] = {Kind::found, {1, positions, 1}};
    for (Node *node : forward) {
      if (llvm::none_of(node->operands(), [&](const Value *operand) { return facts.contains(operand); }))
        continue;
      if (node->op() == Op::add)
        noteTable(*node);
      for (unsigned i = 0; i < node->resultCount(); ++i)
        if (llvm::Error error = follow(*node, i))
          return error;
    }
    return llvm::Error::success();
  }

  llvm::Error follow(Node &node, unsigned result) {
    const Value *value = node.result(result);
    BatchFact fact = factOf(node, result);
    if (fact.kind == Kind::found)
      facts[value] = fact;
    // A single number, such as the loss, may be of all positions.
    else if (node.op() != Op::ret && value->type().rank() > 0)
      return refuse("'" + node.source + "' (" + infoOf(node).name +
                    ") combines positions of a sample, and not by attention that keeps documents apart");
    return llvm::Error::success();
  }

  BatchFact factOf(const Node &node, unsigned result) const {
    if (node.op() == Op::attention && node.get<AttentionAttributes>().documents) {
      const int64_t axis = result == 0 ? sequenceAxis(node) : 2;
      return isSequence(node) ? BatchFact{Kind::found, {axis, positions, 1}} : BatchFact{Kind::lost, {}};
    }
    llvm::SmallVector<BatchFact, 4> operands;
    for (const Value *operand : node.operands())
      operands.push_back(facts.lookup(operand));
    const BatchRule rule = infoOf(node).batch;
    return rule ? rule(node, operands, result) : BatchFact{Kind::lost, {}};
  }

  /// Whether q, k and v have the positions on their axis of the sequence.
  bool isSequence(const Node &node) const {
    return llvm::all_of(llvm::ArrayRef<Value *>(node.operands()).take_front(3), [&](const Value *operand) {
      const BatchFact fact = facts.lookup(operand);
      return fact.kind == Kind::found && fact.position == BatchPosition{sequenceAxis(node), positions, 1};
    });
  }

  void noteTable(Node &sum) {
    for (unsigned i = 0; i < 2; ++i) {
      const BatchFact other = facts.lookup(sum.operand(1 - i));
      if (other.kind != Kind::found || facts.contains(sum.operand(i)))
        continue;
      const Value *addend = belowBroadcasts(sum.operand(i));
      const Type &table = addend->type();
      const int64_t axis = other.position.axis - (sum.result()->type().rank() - table.rank());
      if (axis >= 0 && table.dim(axis) > 1 && !isOneRow(addend, axis))
        tables.push_back({&sum, i});
    }
  }

  llvm::Error lookUp(const PositionTable &table) {
    const Type sum = table.sum->result()->type();
    Value *rows = belowBroadcasts(table.sum->operand(table.operand));
    const bool fits = sum.rank() >= 2 && sum.dim(0) == samples && sum.dim(1) == positions &&
                      rows->type().elements() == sum.elements() / samples;
    if (!fits)
      return refuse("'" + table.sum->source + "' adds " + toString(rows->type()) + " at positions of " + toString(sum) +
                    ", which is no table of positions; give the model an input for positions");
    if (!places)
      places = forward.addArgument(ArgumentKind::input, documentPositionsName, Type(DType::i64, {samples, positions}));
    builder.setInsertionPoint(table.sum);
    builder.inherit(*table.sum);
    Value *flat = builder.reshape(rows, {positions, sum.elements() / samples / positions});
    Value *found = builder.create(Op::gather, {flat, places}, AxisAttributes{0})->result();
    table.sum->setOperand(table.operand, builder.reshape(found, sum.shape()));
    return llvm::Error::success();
  }

  Function &forward;
  Builder builder;
  llvm::SmallVector<Node *, 16> attention;
  int64_t samples = 0, positions = 0;
  llvm::DenseMap<const Value *, BatchFact> facts; ///< of values with the axis of positions
  llvm::SmallVector<PositionTable, 2> tables;
  Value *places = nullptr;
};

llvm::Error run(Module &module, const PassContext &context) {
  Function *forward = module.function(FunctionKind::forward);
  if (!context.options.separateDocuments || !forward || forward->argument(documentIdsName))
    return llvm::Error::success();
  llvm::Expected<std::string> remark = DocumentSeparator(*forward).run();
  if (!remark)
    return remark.takeError();
  context.remarks.push_back(*remark);
  return llvm::Error::success();
}

} // namespace

const Pass separateDocuments = {"separate_documents", Stage::graph, Stage::graph, false, run};

} // namespace fsdpc
