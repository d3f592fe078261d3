// Ops that move elements: one strided copy for all of them, gathers, constants.
#include "codegen/common/elementwise.h"
#include "codegen/common/emitter.h"
#include "codegen/common/program_text.h"

namespace fsdpc {

namespace {

/// Describes a strided copy; `offset` in elements from the pointers.
struct StridedCopy {
  Shape dims, fromStrides, toStrides;
  int64_t fromOffset = 0, toOffset = 0;
};

std::string bitsAt(const std::string &pointer, int64_t offset) {
  return "bits(" + pointer + (offset == 0 ? "" : " + " + std::to_string(offset)) + ")";
}

void emitCopy(SectionWriter &writer, const StridedCopy &copy, const std::string &from, const std::string &to) {
  std::string shape = CppFields()
                          .number("rank", static_cast<int64_t>(copy.dims.size()), 0)
                          .text("dims", cppList(copy.dims))
                          .text("fromStrides", cppList(copy.fromStrides))
                          .text("toStrides", cppList(copy.toStrides))
                          .str();
  writer.call("copyStrided", shape, {bitsAt(from, copy.fromOffset), bitsAt(to, copy.toOffset)});
}

void emitTranspose(SectionWriter &writer, const Node &node) {
  Shape strides = rowMajor(node.operand(0)->type().shape()), permuted;
  for (int64_t axis : node.get<TransposeAttributes>().permutation)
    permuted.push_back(strides[axis]);
  Shape dims(node.result()->type().shape());
  std::string x = writer.operand(node, 0), y = writer.define(node.result());
  emitCopy(writer, {dims, permuted, rowMajor(dims)}, x, y);
}

void emitBroadcast(SectionWriter &writer, const Node &node) {
  Shape dims(node.result()->type().shape());
  std::string x = writer.operand(node, 0), y = writer.define(node.result());
  emitCopy(writer, {dims, broadcastStridesOf(node.operand(0)->type().shape(), dims), rowMajor(dims)}, x, y);
}

void emitSlice(SectionWriter &writer, const Node &node) {
  const auto &slice = node.get<SliceAttributes>();
  Shape strides = rowMajor(node.operand(0)->type().shape());
  Shape dims(node.result()->type().shape());
  StridedCopy copy{dims, strides, rowMajor(dims)};
  for (size_t i = 0; i < dims.size(); ++i) {
    copy.fromStrides[i] = strides[i] * slice.steps[i];
    copy.fromOffset += strides[i] * slice.starts[i];
  }
  std::string x = writer.operand(node, 0), y = writer.define(node.result());
  emitCopy(writer, copy, x, y);
}

void emitPad(SectionWriter &writer, const Node &node) {
  const auto &pad = node.get<PadAttributes>();
  const Type &type = node.result()->type();
  Shape strides = rowMajor(type.shape());
  Shape dims(node.operand(0)->type().shape());
  StridedCopy copy{dims, rowMajor(dims), strides};
  for (size_t i = 0; i < dims.size(); ++i) {
    copy.toStrides[i] = strides[i] * (pad.interior[i] + 1);
    copy.toOffset += strides[i] * pad.before[i];
  }
  std::string x = writer.operand(node, 0), y = writer.define(node.result());
  if (pad.value == 0)
    writer.line("zeroBytes(c, " + y + ", " + llvm::Twine(type.bytes()) + ");");
  else
    writer.line("fill(c, " + y + ", " + llvm::Twine(type.elements()) + ", " +
                storeText(type, cppLiteral(type.dtype(), pad.value)) + ");");
  emitCopy(writer, copy, x, y);
}

void emitConcat(SectionWriter &writer, const Node &node) {
  int64_t axis = node.get<AxisAttributes>().axis;
  Shape strides = rowMajor(node.result()->type().shape());
  llvm::SmallVector<std::string, 8> parts;
  for (unsigned i = 0; i < node.operandCount(); ++i)
    parts.push_back(writer.operand(node, i));
  std::string y = writer.define(node.result());
  int64_t position = 0;
  for (unsigned i = 0; i < node.operandCount(); ++i) {
    Shape dims(node.operand(i)->type().shape());
    emitCopy(writer, {dims, rowMajor(dims), strides, 0, position * strides[axis]}, parts[i], y);
    position += dims[axis];
  }
}

/// The node's index in the program's table of nodes with indices, for axes of these sizes.
std::string indexNode(SectionWriter &writer, const Node &node, llvm::ArrayRef<int64_t> axes) {
  return writer.hole("int", "node", llvm::Twine(writer.program.indexNode(node, axes)));
}

void emitGather(SectionWriter &writer, const Node &node) {
  AxisSplit split = splitAt(node.operand(0)->type().shape(), node.get<AxisAttributes>().axis);
  std::string shape = CppFields()
                          .number("outer", split.outer, 1)
                          .number("size", split.count)
                          .number("inner", split.inner, 1)
                          .number("count", node.operand(1)->type().elements())
                          .text("node", indexNode(writer, node, split.count))
                          .str();
  std::string x = writer.operand(node, 0), indices = writer.operand(node, 1), y = writer.define(node.result());
  writer.call("gather", shape, {bitsAt(x, 0), indices, bitsAt(y, 0)});
}

void emitScatterAdd(SectionWriter &writer, const Node &node) {
  const auto &attributes = node.get<ScatterAddAttributes>();
  AxisSplit split = splitAt(node.result()->type().shape(), attributes.axis);
  std::string shape = CppFields()
                          .number("outer", split.outer, 1)
                          .number("size", split.count)
                          .number("inner", split.inner, 1)
                          .number("count", node.operand(0)->type().elements())
                          .text("node", indexNode(writer, node, split.count))
                          .str();
  std::string indices = writer.operand(node, 0), updates = writer.operand(node, 1), x = writer.define(node.result());
  writer.call("scatterAdd", shape, {indices, updates, x, writer.workspace(node)});
}

/// The shape of a gather_rows or scatter_rows. Which share of the table this rank has is known only at run time.
std::string rowsShape(SectionWriter &writer, const Node &node, const Type &indices) {
  const auto &rows = node.get<RowsAttributes>();
  const MeshAxis &axis = *writer.program.module.axis(rows.over.name);
  return CppFields()
      .number("size", rows.rows)
      .number("inner", rows.width, 1)
      .number("count", indices.elements())
      .number("own", rows.padded / rows.ranks / rows.width)
      .number("ranks", axis.size, 1)
      .number("stride", axis.stride, 1)
      .text("node", indexNode(writer, node, rows.rows))
      .str();
}

void emitGatherRows(SectionWriter &writer, const Node &node) {
  std::string shape = rowsShape(writer, node, node.operand(1)->type());
  std::string shard = writer.operand(node, 0), indices = writer.operand(node, 1), y = writer.define(node.result());
  writer.call("gatherRows", shape, {bitsAt(shard, 0), indices, bitsAt(y, 0)});
}

void emitScatterRows(SectionWriter &writer, const Node &node) {
  std::string shape = rowsShape(writer, node, node.operand(0)->type());
  std::string indices = writer.operand(node, 0), updates = writer.operand(node, 1), x = writer.define(node.result());
  writer.call("scatterRows", shape, {indices, updates, x, writer.workspace(node)});
}

/// The shape of a gather_nd or scatter_nd, whose first operands are x and the index tuples.
std::string tupleShape(SectionWriter &writer, const Node &node, int64_t batchDims) {
  llvm::ArrayRef<int64_t> x = node.operand(0)->type().shape(), indices = node.operand(1)->type().shape();
  int64_t depth = indices.back();
  llvm::ArrayRef<int64_t> axes = x.slice(batchDims, depth);
  return CppFields()
      .number("batch", productOf(x.take_front(batchDims)), 1)
      .number("count", productOf(indices.drop_front(batchDims).drop_back()), 1)
      .number("inner", productOf(x.drop_front(batchDims + depth)), 1)
      .number("depth", depth)
      .text("dims", cppList(axes))
      .text("node", indexNode(writer, node, axes))
      .str();
}

void emitGatherNd(SectionWriter &writer, const Node &node) {
  std::string shape = tupleShape(writer, node, node.get<GatherNdAttributes>().batchDims);
  std::string from = writer.operand(node, 0), at = writer.operand(node, 1), y = writer.define(node.result());
  writer.call("gatherNd", shape, {bitsAt(from, 0), at, bitsAt(y, 0)});
}

/// A scatter that only replaces elements moves their bits.
void emitScatterNd(SectionWriter &writer, const Node &node) {
  const auto &attributes = node.get<ScatterNdAttributes>();
  std::string shape = tupleShape(writer, node, attributes.batchDims) + ", Reduction::" + attributes.reduction;
  std::string x = writer.operand(node, 0), indices = writer.operand(node, 1), updates = writer.operand(node, 2);
  std::string y = writer.define(node.result());
  if (replacesElements(node))
    writer.call("scatterNd", shape, {bitsAt(x, 0), indices, bitsAt(updates, 0), bitsAt(y, 0)});
  else
    writer.call("scatterNd", shape, {x, indices, updates, y});
}

void emitTopK(SectionWriter &writer, const Node &node) {
  llvm::ArrayRef<int64_t> dims = node.operand(0)->type().shape();
  std::string shape = CppFields()
                          .number("rows", productOf(dims.drop_back()), 1)
                          .number("count", dims.back())
                          .number("k", node.get<TopKAttributes>().k)
                          .flag("smallest", node.get<TopKAttributes>().smallest)
                          .str();
  std::string x = writer.operand(node, 0), values = writer.define(node.result(0)),
              indices = writer.define(node.result(1));
  writer.call("topK", shape, {x, values, indices});
}

void emitIota(SectionWriter &writer, const Node &node) {
  const auto &attributes = node.get<IotaAttributes>();
  AxisSplit split = splitAt(attributes.shape, attributes.axis);
  std::string y = writer.define(node.result());
  writer.line("iota<" + cppType(attributes.dtype) + ">(c, " + llvm::Twine(split.outer) + ", " +
              llvm::Twine(split.count) + ", " + llvm::Twine(split.inner) + ", " + cppDouble(attributes.start) + ", " +
              cppDouble(attributes.step) + ", " + y + ");");
}

void emitConstant(SectionWriter &writer, const Node &node) {
  const Dense &value = node.get<ConstantAttributes>().value;
  const Type &type = node.result()->type();
  std::string y = writer.define(node.result(), "constant");
  if (type.elements() == 1 || value.isSplat())
    writer.line("fill(c, " + y + ", " + llvm::Twine(type.elements()) + ", " + storeText(type, cppLiteral(value, 0)) +
                ");");
  else
    writer.line("copyTable(c, " + writer.program.constantTable(value) + ", " + y + ", " + llvm::Twine(type.bytes()) +
                ");");
}

std::optional<std::string> unsupportedCopy(const Node &node) {
  for (const Value *operand : node.operands())
    if (operand->type().rank() > 8)
      return "more than 8 dims";
  return node.result()->type().rank() > 8 ? std::optional<std::string>("more than 8 dims") : std::nullopt;
}

std::optional<std::string> unsupportedConstant(const Node &node) {
  return node.result()->type().dtype() == DType::f16 ? std::optional<std::string>("numbers of f16")
                                                     : unsupportedCopy(node);
}

std::optional<std::string> unsupportedScatter(const Node &node) {
  return node.result()->type().dtype() == DType::boolean ? std::optional<std::string>("sums of bool") : std::nullopt;
}

} // namespace

bool replacesElements(const Node &node) {
  return node.op() == Op::scatterNd && node.get<ScatterNdAttributes>().reduction == "none";
}

namespace emitters {

const Emitter constant = {emitConstant, Elements::any, unsupportedConstant};
const Emitter iota = {emitIota, Elements::arithmetic, unsupportedCopy};
const Emitter broadcast = {emitBroadcast, Elements::any, unsupportedCopy};
const Emitter transpose = {emitTranspose, Elements::any, unsupportedCopy};
const Emitter slice = {emitSlice, Elements::any, unsupportedCopy};
const Emitter pad = {emitPad, Elements::any, unsupportedConstant};
const Emitter concat = {emitConcat, Elements::any, unsupportedCopy};
const Emitter gather = {emitGather};
const Emitter scatterAdd = {emitScatterAdd, Elements::arithmetic, unsupportedScatter};
const Emitter gatherRows = {emitGatherRows};
const Emitter scatterRows = {emitScatterRows, Elements::single};
const Emitter gatherNd = {emitGatherNd, Elements::any, unsupportedCopy};
const Emitter scatterNd = {emitScatterNd, Elements::any, unsupportedCopy};
const Emitter topK = {emitTopK, Elements::arithmetic};

} // namespace emitters

} // namespace fsdpc
