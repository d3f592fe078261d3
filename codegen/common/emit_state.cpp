// State, memory, collectives, optimizers.
#include "codegen/common/emitter.h"
#include "codegen/common/program_text.h"
#include "ir/carried.h"
#include "ir/op.h"
#include "ir/queries.h"

namespace fsdpc {

namespace {

/// A copy, unless operand and result have the same address. Then the result is only declared as a pointer to it.
void emitMove(SectionWriter &writer, const Node &node, llvm::StringRef comment) {
  const Value *from = node.operand(0), *to = node.result();
  if (from->place == to->place) {
    writer.defineAlias(to, from, comment);
    return;
  }
  std::string source = writer.use(from), destination = writer.define(to, comment);
  writer.line("copyBytes(c, " + source + ", " + destination + ", " + llvm::Twine(to->type().bytes()) + ");");
}

void emitReshape(SectionWriter &writer, const Node &node) { emitMove(writer, node, "reshape"); }
void emitCopyNode(SectionWriter &writer, const Node &node) { emitMove(writer, node, "copy"); }

void emitRead(SectionWriter &writer, const Node &node) {
  const State *state = stateOf(node);
  const Value *value = node.result();
  if (!state || !state->place.isPlaced() || state->place == value->place) {
    writer.define(value, "read");
    return;
  }
  std::string destination = writer.define(value, "read");
  writer.line("copyBytes(c, c.at<std::byte>(" + writer.placeAt("state", state->place) + "), " + destination + ", " +
              llvm::Twine(value->type().bytes()) + ");");
}

void emitWrite(SectionWriter &writer, const Node &node) {
  const State *state = stateOf(node);
  const Value *value = node.operand(0);
  if (!state || state->place == value->place)
    return;
  std::string source = writer.use(value);
  writer.line("copyBytes(c, " + source + ", c.at<std::byte>(" + writer.placeAt("state", state->place) + "), " +
              llvm::Twine(value->type().bytes()) + ");");
}

void emitView(SectionWriter &writer, const Node &node) {
  const Value *flat = node.operand(0), *part = node.result();
  int64_t offsetBytes = node.get<ViewAttributes>().offset * byteSize(part->type().dtype());
  std::string view = writer.define(part, "view");
  if (part->place.space == flat->place.space && part->place.offsetBytes == flat->place.offsetBytes + offsetBytes)
    return;
  std::string source = writer.placeAt("part", {flat->place.space, flat->place.offsetBytes + offsetBytes});
  writer.line("copyBytes(c, c.at<std::byte>(" + source + "), " + view + ", " + llvm::Twine(part->type().bytes()) +
              ");");
}

/// Copies the parts that are not in place already and clears the gaps between parts.
void emitPack(SectionWriter &writer, const Node &node) {
  const auto &pack = node.get<PackAttributes>();
  const Value *whole = node.result();
  int64_t width = byteSize(whole->type().dtype());
  std::string name = writer.define(whole, "pack");
  auto clear = [&](int64_t from, int64_t to) {
    if (from < to)
      writer.line("zeroBytes(c, " + name + " + " + writer.hole("std::int64_t", "gap", llvm::Twine(from)) + ", " +
                  writer.hole("std::int64_t", "gapBytes", llvm::Twine((to - from) * width)) + ");");
  };
  int64_t end = 0;
  for (unsigned i = 0; i < node.operandCount(); ++i) {
    const Value *part = node.operand(i);
    clear(end, pack.offsets[i]);
    end = pack.offsets[i] + part->type().elements();
    if (part->place.space == whole->place.space &&
        part->place.offsetBytes == whole->place.offsetBytes + pack.offsets[i] * width)
      continue;
    std::string source = writer.use(part), offset = writer.hole("std::int64_t", "part", llvm::Twine(pack.offsets[i]));
    writer.line("copyBytes(c, " + source + ", " + name + " + " + offset + ", " + llvm::Twine(part->type().bytes()) +
                ");");
  }
  clear(end, pack.elements);
}

/// Which shard belongs to this rank is known only at run time.
void emitTakeShard(SectionWriter &writer, const Node &node) {
  const auto &attributes = node.get<CollectiveAttributes>();
  const MeshAxis &axis = *writer.program.module.axis(attributes.over.name);
  int64_t bytes = node.result()->type().bytes();
  std::string source = writer.use(node.operand(0)), destination = writer.define(node.result(), "take_shard");
  writer.line("takeShard(c, " + source + ", " + destination + ", " + llvm::Twine(bytes) + ", " +
              llvm::Twine(axis.size) + ", " + llvm::Twine(axis.stride) + ");");
}

void emitFree(SectionWriter &writer, const Node &node) {
  const Value *freed = node.operand(0);
  writer.end(freed);
  if (writer.program.poisons(node))
    writer.line("poison(c, " + writer.place(freed) + ", " + llvm::Twine(freed->type().bytes()) + ");");
}

void emitTap(SectionWriter &writer, const Node &node) {
  int parameter = writer.program.parameterOf(node.get<TapAttributes>().parameter.name);
  if (parameter < 0)
    return;
  std::string data = writer.operand(node, 0);
  const auto &tap = node.get<TapAttributes>();
  std::string parts = CppFields().number("from", tap.from, 0).number("part", tap.part).number("every", tap.every).str();
  writer.line("tap(c, " + writer.hole("int", "parameter", llvm::Twine(parameter)) + ", " + data + ", " +
              llvm::Twine(node.operand(0)->type().bytes()) + (tap.part == 0 ? "" : ", " + parts) + ");");
}

void emitStash(SectionWriter &writer, const Node &node) {
  std::string data = writer.operand(node, 0);
  int segment = writer.program.segmentOf(node.get<StateAttributes>().state.name);
  writer.line("stash(c, " + writer.hole("int", "segment", llvm::Twine(segment)) + ", " + data + ", " +
              llvm::Twine(node.operand(0)->type().bytes()) + ");");
}

void emitUnstash(SectionWriter &writer, const Node &node) {
  std::string data = writer.define(node.result(), "unstash");
  int segment = writer.program.segmentOf(node.get<StateAttributes>().state.name);
  writer.line("unstash(c, " + writer.hole("int", "segment", llvm::Twine(segment)) + ", " + data + ", " +
              llvm::Twine(node.result()->type().bytes()) + ");");
}

void emitReturn(SectionWriter &, const Node &) {}

// ---- collectives

/// The channel that program_info.cpp gives the collective.
llvm::StringRef channelOf(const Node &start) {
  return start.schedule.stream == Stream::reduce ? "Channel::reduce" : "Channel::comm";
}

/// `after 2 frees`: the edges that order the reuse of memory. On cpu they always hold, since the thread that frees also
/// issues the start. Omitted in sections that stand for several, since their edges may differ.
std::string edgesComment(const SectionWriter &writer, const Node &node) {
  if (writer.program.dialect.hasEvents())
    return "";
  size_t count = node.afterTokens().size();
  return count == 0 || node.schedule.outline >= 0
             ? ""
             : " // after " + std::to_string(count) + (count == 1 ? " free" : " frees");
}

std::string collective(SectionWriter &writer, const Node &start) {
  return writer.hole("int", "collective", llvm::Twine(writer.program.collectiveOf(start)));
}

std::string copyText(SectionWriter &writer, const Node &start) {
  return "copies[" + writer.hole("int", "copy", llvm::Twine(writer.program.copyOf(start))) + "]";
}

/// The last argument of a sum that needs space for the parts of all members.
std::string staging(SectionWriter &writer, const Node &node) {
  return node.schedule.workspaceBytes == 0
             ? ""
             : ", c.at<std::byte>(" + writer.placeAt("staging", node.schedule.workspace) + ")";
}

/// tickets[3] = reduceScatterStart(c, 3, W + 0x40, t5, 32, DType::f32);
std::string startText(SectionWriter &writer, const Node &start, const std::string &index, const std::string &source,
                      const std::string &destination) {
  const Type &type = start.result()->type();
  bool gathers = start.op() == Op::allGatherStart;
  llvm::StringRef function = gathers                            ? "allGatherStart"
                             : start.op() == Op::allReduceStart ? "allReduceStart"
                                                                : "reduceScatterStart";
  std::string amount = gathers
                           ? std::to_string(start.operand(0)->type().bytes())
                           : std::to_string(type.elements()) + ", " + cppDType(type.dtype()) + staging(writer, start);
  return ("tickets[" + index + "] = " + function + "(c, " + index + ", " + source + ", " + destination + ", " + amount +
          ");")
      .str();
}

/// offloadStart(c, copies[3], t5, t6, 4096);
void emitCopyStart(SectionWriter &writer, const Node &node) {
  std::string from = writer.use(node.operand(0)), to = writer.define(node.result(), "arrives");
  if (node.schedule.awaits >= 0 && writer.program.dialect.hasEvents())
    writer.line("await(c, Channel::copy, " + writer.event(node.schedule.awaits) + ");");
  llvm::StringRef function = node.op() == Op::offloadStart ? "offloadStart" : "reloadStart";
  writer.line(function + "(c, " + copyText(writer, node) + ", " + from + ", " + to + ", " +
              llvm::Twine(node.operand(0)->type().bytes()) + ");" + edgesComment(writer, node));
}

void emitStart(SectionWriter &writer, const Node &node) {
  std::string source = writer.place(node.operand(0)), destination = writer.define(node.result(), "arrives");
  std::string index = collective(writer, node);
  if (node.schedule.awaits >= 0 && writer.program.dialect.hasEvents())
    writer.line("await(c, " + channelOf(node) + ", " + writer.event(node.schedule.awaits) + ");");
  writer.line(startText(writer, node, index, source, destination) + edgesComment(writer, node));
}

/// Where a value is stored after its function has ended: in the state that it was read from or written to, if there is
/// one.
Place placeBetweenSteps(const Module &module, const Value *value) {
  auto placeOf = [&](const Node *node) { return stateOf(*node)->place; };
  if (value->definer() && value->definer()->op() == Op::read)
    return placeOf(value->definer());
  for (const Use *use = value->uses(); use; use = use->next())
    if (use->user()->op() == Op::write)
      return placeOf(use->user());
  return value->place;
}

/// Starts a collective that the previous step normally starts. In the first step, and after an evaluation, it has not
/// been started.
void emitFirstStart(SectionWriter &writer, const Node &wait, const Node &start, const std::string &index) {
  std::string source = writer.placeAt("source", placeBetweenSteps(writer.program.module, start.operand(0)));
  std::string destination = writer.use(wait.operand(0));
  writer.line("if (tickets[" + index + "].sequence == 0) // no step before");
  writer.line(startText(writer, start, index, source, destination), 2);
}

void emitWait(SectionWriter &writer, const Node &node) {
  const Node *start = writer.program.startOf(node.operand(0));
  assert(start && "a future comes from a start of this step or of the one before");
  const bool isExecuted = !node.schedule.implied || !writer.program.dialect.hasEvents();
  if (startsCollective(*start)) {
    std::string index = collective(writer, *start);
    if (waitsForStepBefore(node, *start))
      emitFirstStart(writer, node, *start, index);
    if (isExecuted)
      writer.line("wait(c, tickets[" + index + "]);");
  } else if (isExecuted) {
    writer.line("wait(c, " + copyText(writer, *start) + ");");
  }
  writer.defineAlias(node.result(), node.operand(0), "complete");
}

// ---- optimizers

/// Adds the guard of a guarded optimizer as the last field of its scalars. The guard is the last two operands.
void addGuard(SectionWriter &writer, const Node &node, CppFields &scalars) {
  if (!node.get<OptimizerAttributes>().guarded)
    return;
  std::string scale = writer.operand(node, node.operandCount() - 2),
              applies = writer.operand(node, node.operandCount() - 1);
  scalars.text("guard", "{" + scale + ", " + applies + "}");
}

/// {from, to, decay, count} of the moving average: the last state, and the last numbers but for the guard.
std::string averageText(SectionWriter &writer, const Node &node) {
  const auto &attributes = node.get<OptimizerAttributes>();
  const unsigned result = node.resultCount() - 1 - attributes.copies,
                 decay = node.operandCount() - 2 - 2 * attributes.guarded;
  std::string from = writer.operand(node, result + 1), to = writer.define(node.result(result));
  return "{" + from + ", " + to + ", " + writer.operand(node, decay) + ", " + writer.operand(node, decay + 1) + "}";
}

/// kernel(c, count, {scalars}, tensors..., results...[, copy][, average]); absent ones are null.
void emitOptimizer(SectionWriter &writer, const Node &node, llvm::StringRef kernel, CppFields &scalars,
                   llvm::ArrayRef<std::string> tensors, llvm::ArrayRef<int> results) {
  addGuard(writer, node, scalars);
  std::string text = (kernel + "(c, " + llvm::Twine(node.operand(0)->type().elements()) + ", " + scalars.str()).str();
  for (const std::string &tensor : tensors)
    text += ", " + tensor;
  for (int result : results)
    text += ", " + (result < 0 ? std::string("nullptr") : writer.define(node.result(result)));
  const auto &attributes = node.get<OptimizerAttributes>();
  if (attributes.copies)
    text += ", " + writer.define(node.result(node.resultCount() - 1));
  if (attributes.averages)
    text += std::string(attributes.copies ? ", " : ", nullptr, ") + averageText(writer, node);
  text += ");";
  if (node.schedule.stream == Stream::host && !writer.program.dialect.hostIsDevice()) {
    std::string task = "hostTasks[" + writer.hole("int", "task", llvm::Twine(writer.program.hostTaskOf(node))) + "]";
    text = "onHost(c, " + task + ", [=](const Context &c) { host::" + text + " });";
  }
  writer.line(text);
}

/// The index of the first scalar operand. It follows p, g, the states and the copy.
unsigned firstNumber(const Node &node) { return node.resultCount() + 1; }

void emitSgd(SectionWriter &writer, const Node &node) {
  const auto &attributes = node.get<OptimizerAttributes>();
  unsigned next = firstNumber(node);
  std::string p = writer.operand(node, 0), g = writer.operand(node, 1),
              buffer = attributes.momentum ? writer.operand(node, 2) : "nullptr";
  CppFields fields;
  fields.text("lr", writer.operand(node, next)).text("weightDecay", writer.operand(node, next + 1));
  if (attributes.momentum)
    fields.text("momentum", writer.operand(node, next + 2))
        .text("dampening", writer.operand(node, next + 3))
        .text("step", writer.operand(node, next + 4))
        .flag("nesterov", attributes.nesterov);
  emitOptimizer(writer, node, "sgd", fields, {p, g, buffer}, {0, attributes.momentum ? 1 : -1});
}

void emitAdam(SectionWriter &writer, const Node &node) {
  std::string p = writer.operand(node, 0), g = writer.operand(node, 1), m = writer.operand(node, 2),
              v = writer.operand(node, 3);
  unsigned next = firstNumber(node);
  CppFields fields;
  fields.text("lr", writer.operand(node, next))
      .text("beta1", writer.operand(node, next + 1))
      .text("beta2", writer.operand(node, next + 2))
      .text("epsilon", writer.operand(node, next + 3))
      .text("weightDecay", writer.operand(node, next + 4))
      .text("step", writer.operand(node, next + 5))
      .flag("decoupled", node.get<OptimizerAttributes>().decoupled);
  emitOptimizer(writer, node, "adam", fields, {p, g, m, v}, {0, 1, 2});
}

void emitAdadelta(SectionWriter &writer, const Node &node) {
  std::string p = writer.operand(node, 0), g = writer.operand(node, 1), square = writer.operand(node, 2),
              delta = writer.operand(node, 3);
  unsigned next = firstNumber(node);
  CppFields fields;
  fields.text("lr", writer.operand(node, next))
      .text("rho", writer.operand(node, next + 1))
      .text("epsilon", writer.operand(node, next + 2))
      .text("weightDecay", writer.operand(node, next + 3));
  emitOptimizer(writer, node, "adadelta", fields, {p, g, square, delta}, {0, 1, 2});
}

void emitAdagrad(SectionWriter &writer, const Node &node) {
  std::string p = writer.operand(node, 0), g = writer.operand(node, 1), sum = writer.operand(node, 2);
  unsigned next = firstNumber(node);
  CppFields fields;
  fields.text("lr", writer.operand(node, next))
      .text("lrDecay", writer.operand(node, next + 1))
      .text("epsilon", writer.operand(node, next + 2))
      .text("weightDecay", writer.operand(node, next + 3))
      .text("step", writer.operand(node, next + 4));
  emitOptimizer(writer, node, "adagrad", fields, {p, g, sum}, {0, 1});
}

void emitLion(SectionWriter &writer, const Node &node) {
  std::string p = writer.operand(node, 0), g = writer.operand(node, 1), m = writer.operand(node, 2);
  unsigned next = firstNumber(node);
  CppFields fields;
  fields.text("lr", writer.operand(node, next))
      .text("beta1", writer.operand(node, next + 1))
      .text("beta2", writer.operand(node, next + 2))
      .text("weightDecay", writer.operand(node, next + 3));
  emitOptimizer(writer, node, "lion", fields, {p, g, m}, {0, 1});
}

void emitRmsprop(SectionWriter &writer, const Node &node) {
  const auto &attributes = node.get<OptimizerAttributes>();
  std::string p = writer.operand(node, 0), g = writer.operand(node, 1), square = writer.operand(node, 2);
  std::string buffer = attributes.momentum ? writer.operand(node, 3) : "nullptr";
  std::string average = attributes.centered ? writer.operand(node, attributes.momentum ? 4 : 3) : "nullptr";
  unsigned next = firstNumber(node);
  CppFields fields;
  fields.text("lr", writer.operand(node, next))
      .text("alpha", writer.operand(node, next + 1))
      .text("epsilon", writer.operand(node, next + 2))
      .text("weightDecay", writer.operand(node, next + 3));
  if (attributes.momentum)
    fields.text("momentum", writer.operand(node, next + 4));
  int bufferResult = attributes.momentum ? 2 : -1,
      averageResult = attributes.centered ? (attributes.momentum ? 3 : 2) : -1;
  emitOptimizer(writer, node, "rmsprop", fields, {p, g, square, buffer, average}, {0, 1, bufferResult, averageResult});
}

std::optional<std::string> floatState(const Node &node) {
  DType dtype = node.operand(0)->type().dtype();
  if (dtype != DType::f32 && dtype != DType::f64)
    return "parameters are updated in f32 or f64, not " + nameOf(node.operand(0)->type().dtype()).str();
  return std::nullopt;
}

std::optional<std::string> noneLeft(const Node &) { return "it does not exist in the planned stage"; }

} // namespace

namespace emitters {

const Emitter reshape = {emitReshape};
const Emitter read = {emitRead};
const Emitter write = {emitWrite};
const Emitter view = {emitView};
const Emitter pack = {emitPack};
const Emitter copy = {emitCopyNode};
const Emitter takeShard = {emitTakeShard};
const Emitter free = {emitFree};
const Emitter tap = {emitTap};
const Emitter stash = {emitStash};
const Emitter unstash = {emitUnstash};
const Emitter ret = {emitReturn};

const Emitter batchSum = {emitReturn, Elements::any, noneLeft};
const Emitter allGather = batchSum;
const Emitter reduceScatter = batchSum;
const Emitter allReduce = batchSum;
const Emitter stopGradient = batchSum;
const Emitter allGatherStart = {emitStart};
const Emitter reduceScatterStart = {emitStart};
const Emitter allReduceStart = {emitStart};
const Emitter wait = {emitWait};
const Emitter offloadStart = {emitCopyStart};
const Emitter reloadStart = {emitCopyStart};

const Emitter sgd = {emitSgd, Elements::any, floatState};
const Emitter adam = {emitAdam, Elements::any, floatState};
const Emitter adadelta = {emitAdadelta, Elements::any, floatState};
const Emitter adagrad = {emitAdagrad, Elements::any, floatState};
const Emitter rmsprop = {emitRmsprop, Elements::any, floatState};
const Emitter lion = {emitLion, Elements::any, floatState};

} // namespace emitters

} // namespace fsdpc
