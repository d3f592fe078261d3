#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "ir/queries.h"
#include "passes/analysis/buffers.h"
#include "passes/passes.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

namespace {

/// The last reader of every buffer that the function must free.
class FreeInserter {
public:
  FreeInserter(Function &function, const llvm::StringSet<> &carriedOn)
      : function(function), buffers(function), carriedOn(carriedOn) {}

  void run() {
    keepArguments();
    for (Node *node : function) {
      touchResults(*node);
      for (Value *operand : node->operands())
        touchOperand(*node, operand);
    }
    for (auto &[root, last] : lastUse)
      if (!kept.contains(root))
        insert(root, last);
    for (const Argument &argument : function.arguments())
      if (!kept.contains(argument.value.get()) && !lastUse.count(argument.value.get()))
        freeUnread(argument.value.get());
  }

private:
  /// Inputs belong to the runtime. A carried argument that a later function also uses is freed there.
  void keepArguments() {
    for (const Argument &argument : function.arguments())
      if (argument.kind == ArgumentKind::input || carriedOn.contains(argument.name))
        kept.insert(argument.value.get());
  }

  void touchResults(Node &node) {
    for (unsigned i = 0; i < node.resultCount(); ++i)
      if (!node.result(i)->type().isToken())
        touch(buffers.bufferOf(node.result(i)).root, &node);
  }

  void touchOperand(Node &node, Value *operand) {
    if (operand->type().isToken())
      return;
    Value *root = buffers.bufferOf(operand).root;
    bool finished = node.op() == Op::free || node.op() == Op::ret;
    if (finished)
      kept.insert(root);
    else
      touch(root, &node);
  }

  void touch(Value *root, Node *node) {
    if (!buffers.stateOf(root).empty() || isPermanentConstant(*root))
      return;
    // The transfer stream reads the operand until the wait, which may come after the other readers.
    Node *reader = infoOf(*node).has(startsTransfer) ? waitOf(*node) : node;
    Node *&last = lastUse[root];
    if (!last || last->isBefore(reader))
      last = reader;
  }

  void insert(Value *root, Node *last) {
    Builder builder(function);
    builder.setInsertionPointAfter(last);
    builder.inherit(*last);
    builder.setSource("");
    // A future's buffer is freed under the name of its wait's result.
    Value *freed = root->type().isFuture() ? root->uses()->user()->result() : root;
    builder.create(Op::free, {freed})->schedule.stream = Stream::compute;
  }

  /// The argument is carried to this function only to be freed.
  void freeUnread(Value *argument) {
    Builder builder(function, function.front());
    builder.create(Op::free, {argument})->schedule.stream = Stream::compute;
  }

  Function &function;
  BufferAnalysis buffers;
  const llvm::StringSet<> &carriedOn;
  llvm::DenseSet<Value *> kept;
  llvm::MapVector<Value *, Node *> lastUse;
};

/// Names of carried arguments that later functions use.
llvm::StringSet<> takenLater(const Module &module, FunctionKind kind) {
  llvm::StringSet<> names;
  for (const std::unique_ptr<Function> &function : module.functions)
    if (function->kind() > kind)
      for (const Argument &argument : function->arguments())
        if (argument.kind == ArgumentKind::carry)
          names.insert(argument.name);
  return names;
}

llvm::Error run(Module &module, const PassContext &) {
  for (const std::unique_ptr<Function> &function : module.functions)
    FreeInserter(*function, takenLater(module, function->kind())).run();
  return llvm::Error::success();
}

} // namespace

const Pass insertFrees = {"insert_frees", Stage::async, Stage::async, false, run};

} // namespace fsdpc
