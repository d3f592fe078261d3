#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "passes/passes.h"

namespace fsdpc {

namespace {

std::optional<Op> startOf(Op op) {
  switch (op) {
  case Op::allGather: return Op::allGatherStart;
  case Op::reduceScatter: return Op::reduceScatterStart;
  case Op::allReduce: return Op::allReduceStart;
  default: return std::nullopt;
  }
}

void split(Function &function, Node &node, Op start, int64_t id, Stream stream) {
  Builder builder(function, &node);
  builder.inherit(node);
  CollectiveAttributes attributes = node.get<CollectiveAttributes>();
  attributes.id = id;
  Node *started = builder.create(start, node.operands(), attributes);
  started->unit = node.unit;
  started->schedule.stream = stream;
  if (!node.result()->name().empty())
    started->result()->setName(node.result()->name().str() + ".future");
  Node *wait = builder.create(Op::wait, {started->result()});
  wait->unit = node.unit;
  wait->schedule.stream = Stream::compute;
  wait->result()->setName(node.result()->name());
  node.result()->replaceAllUsesWith(wait->result());
  node.erase();
}

llvm::Error run(Module &module, const PassContext &) {
  int64_t id = 0;
  Stream reductions = module.decisions.ownReduceCommunicator ? Stream::reduce : Stream::comm;
  for (const std::unique_ptr<Function> &function : module.functions)
    for (Node *node : *function) {
      if (std::optional<Op> start = startOf(node->op()))
        split(*function, *node, *start, id++, start == Op::allGatherStart ? Stream::comm : reductions);
      else
        node->schedule.stream = Stream::compute;
    }
  module.stage = Stage::async;
  return llvm::Error::success();
}

} // namespace

const Pass splitCollectives = {"split_collectives", Stage::sharded, Stage::async, false, run};

} // namespace fsdpc
