// Elementwise chains as generated loops. Dims that every operand walks alike are merged, so most chains are one or two
// loops; the inner one is vectorised by the compiler (`omp simd` says that elements are independent, which also holds
// where a result lies over an operand: each element is read before it is written).
#include "codegen/cpu/emitters.h"
#include "codegen/cpu/program_text.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace fsdpc {

namespace {

using Step = Expression::Step;

// Fewer elements than this are not worth waking threads for.
constexpr int64_t parallelElements = 32768;
constexpr int64_t chunkElements = 1024; ///< of random numbers, made before the loop that uses them

/// The loops: dims outermost first, and per operand its stride in each.
struct Nest {
  Shape dims;
  std::vector<Shape> strides;
};

Nest nestOf(const Node &node, llvm::ArrayRef<int64_t> shape) {
  Nest nest;
  nest.strides.resize(node.operandCount());
  std::vector<Shape> full;
  for (const Value *operand : node.operands())
    full.push_back(broadcastStridesOf(operand->type().shape(), shape));
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 1)
      continue;
    bool merges = !nest.dims.empty();
    for (size_t k = 0; merges && k < full.size(); ++k)
      merges = nest.strides[k].back() == full[k][axis] * shape[axis];
    if (merges)
      nest.dims.back() *= shape[axis];
    else
      nest.dims.push_back(shape[axis]);
    for (size_t k = 0; k < full.size(); ++k) {
      if (merges)
        nest.strides[k].back() = full[k][axis];
      else
        nest.strides[k].push_back(full[k][axis]);
    }
  }
  return nest;
}

std::string binary(const Step &step, llvm::StringRef symbol, llvm::ArrayRef<std::string> a) {
  std::string text = a[0] + " " + symbol.str() + " " + a[1];
  // Arithmetic on small integers is done in int; it wraps to its own width.
  return step.dtype == DType::u8 || step.dtype == DType::i32
             ? "static_cast<" + cppType(step.dtype).str() + ">(" + text + ")"
             : text;
}

std::string function(llvm::StringRef name, llvm::ArrayRef<std::string> a) {
  return ("scalar::" + name + "(").str() + llvm::join(a, ", ") + ")";
}

/// The expression of one step. `dtype` is that of its first argument.
std::string stepText(const Step &step, DType dtype, llvm::ArrayRef<std::string> a) {
  bool isFloatStep = isFloat(dtype);
  switch (step.op) {
  case Op::constant: return cppLiteral(step.dtype, step.literal);
  case Op::add: return binary(step, "+", a);
  case Op::sub: return binary(step, "-", a);
  case Op::mul: return binary(step, "*", a);
  case Op::div: return isFloatStep ? binary(step, "/", a) : function("div", a);
  case Op::neg: return step.dtype == DType::u8 ? "static_cast<std::uint8_t>(-(" + a[0] + "))" : "-(" + a[0] + ")";
  case Op::pow: return function(isFloatStep ? "pow" : "integerPow", a);
  case Op::maximum: return function("max", a);
  case Op::minimum: return function("min", a);
  case Op::equal: return a[0] + " == " + a[1];
  case Op::less: return a[0] + " < " + a[1];
  case Op::lessEqual: return a[0] + " <= " + a[1];
  case Op::logicalAnd: return a[0] + " & " + a[1];
  case Op::logicalOr: return a[0] + " | " + a[1];
  case Op::logicalXor: return a[0] + " != " + a[1];
  case Op::logicalNot: return "!" + a[0];
  case Op::isNan: return a[0] + " != " + a[0];
  case Op::select: return a[0] + " ? " + a[1] + " : " + a[2];
  case Op::cast: return "scalar::cast<" + cppType(step.dtype).str() + ">(" + a[0] + ")";
  // Operands are x and dy; the kernel's derivatives take dy first.
  case Op::geluGrad: return function("geluGrad", {a[1], a[0]});
  case Op::geluTanhGrad: return function("geluTanhGrad", {a[1], a[0]});
  case Op::geluTanh: return function("geluTanh", a);
  default:
    return function(infoOf(step.op).name, a); // neg, abs, exp, ...: the runtime's scalar functions have our names
  }
}

class LoopWriter {
public:
  LoopWriter(SectionWriter &writer, const Node &node, const FusedAttributes &attributes)
      : writer(writer), node(node), body(attributes.body), shape(attributes.shape),
        nest(nestOf(node, attributes.shape)) {}

  void run();

private:
  std::string index(size_t operand, bool innermost) const;
  std::string outerIndex(llvm::ArrayRef<int64_t> strides) const;
  bool variesInside(size_t operand) const { return !nest.dims.empty() && nest.strides[operand].back() != 0; }
  void nameOperands();
  void writeKeys();
  void writeOuterLoops();
  void writeLoads(bool inside, int depth);
  void writeInnerLoop(llvm::StringRef from, llvm::StringRef to, int depth);
  void writeRandomChunks(llvm::StringRef from, llvm::StringRef to, int depth);
  void writeSteps(int depth);
  std::string resultIndex() const;
  std::string argument(int32_t argument) const {
    return argument < body.operandCount ? loads[argument] : steps[argument - body.operandCount];
  }
  DType dtypeOf(int32_t argument) const {
    return argument < body.operandCount ? node.operand(argument)->type().dtype()
                                        : body.steps[argument - body.operandCount].dtype;
  }

  SectionWriter &writer;
  const Node &node;
  const Expression &body;
  llvm::ArrayRef<int64_t> shape;
  Nest nest;
  std::vector<std::string> pointers, results; ///< of operands and results
  std::vector<std::string> loads;             ///< per operand, its element
  std::vector<std::string> steps;             ///< per step, its value
  std::vector<bool> used;                     ///< per operand: by a step that reads its elements
  std::vector<size_t> randomSteps;
  llvm::StringRef counter; ///< of the inner loop
};

void LoopWriter::nameOperands() {
  used.assign(node.operandCount(), false);
  auto use = [&](int32_t argument) {
    if (argument < body.operandCount)
      used[argument] = true;
  };
  for (size_t i = 0; i < body.steps.size(); ++i) {
    if (body.steps[i].op == Op::randomUniform)
      randomSteps.push_back(i);
    else
      llvm::for_each(body.steps[i].arguments, use);
  }
  llvm::for_each(body.yields, use);
  for (unsigned i = 0; i < node.operandCount(); ++i) {
    pointers.push_back(writer.operand(node, i));
    loads.push_back("x" + std::to_string(i));
  }
  for (unsigned i = 0; i < node.resultCount(); ++i)
    results.push_back(writer.define(node.result(i)));
}

/// i * 1536 + k * 8, over all loops but the inner one.
std::string LoopWriter::outerIndex(llvm::ArrayRef<int64_t> strides) const {
  std::string text;
  for (size_t axis = 0; axis + 1 < nest.dims.size(); ++axis) {
    if (strides[axis] == 0)
      continue;
    text += (text.empty() ? "i" : " + i") + std::to_string(axis);
    if (strides[axis] != 1)
      text += " * " + std::to_string(strides[axis]);
  }
  return text;
}

std::string LoopWriter::index(size_t operand, bool innermost) const {
  std::string text = outerIndex(nest.strides[operand]);
  if (innermost)
    text += (text.empty() ? "" : " + ") + counter.str();
  return text.empty() ? "0" : text;
}

std::string LoopWriter::resultIndex() const {
  if (nest.dims.empty())
    return "0";
  std::string text = outerIndex(rowMajor(nest.dims));
  return text + (text.empty() ? "" : " + ") + counter.str();
}

/// Elements of operands that the inner loop does (`inside`) or does not walk.
void LoopWriter::writeLoads(bool inside, int depth) {
  for (size_t i = 0; i < pointers.size(); ++i)
    if (used[i] && variesInside(i) == inside)
      writer.line("const " + cppType(node.operand(i)->type().dtype()) + " " + loads[i] + " = " + pointers[i] + "[" +
                      index(i, inside) + "];",
                  depth);
}

void LoopWriter::writeSteps(int depth) {
  steps.clear();
  for (size_t i = 0; i < body.steps.size(); ++i) {
    const Step &step = body.steps[i];
    std::string name = "s" + std::to_string(i);
    if (step.op == Op::constant) {
      steps.push_back(cppLiteral(step.dtype, step.literal));
      continue;
    }
    steps.push_back(name);
    std::string value;
    if (step.op == Op::randomUniform) {
      value = "u" + std::to_string(i) + "[" + counter.str() + " - chunk]";
    } else {
      llvm::SmallVector<std::string, 3> arguments;
      for (int32_t k : step.arguments)
        arguments.push_back(argument(k));
      value = stepText(step, dtypeOf(step.arguments[0]), arguments);
    }
    writer.line("const " + cppType(step.dtype) + " " + name + " = " + value + ";", depth);
  }
  for (size_t i = 0; i < body.yields.size(); ++i)
    writer.line(results[i] + "[" + resultIndex() + "] = " + argument(body.yields[i]) + ";", depth);
}

void LoopWriter::writeInnerLoop(llvm::StringRef from, llvm::StringRef to, int depth) {
  writer.line("#pragma omp simd", 0);
  writer.line("for (std::int64_t " + counter + " = " + from + "; " + counter + " < " + to + "; ++" + counter + ") {",
              depth);
  writeLoads(true, depth + 1);
  writeSteps(depth + 1);
  writer.line("}", depth);
}

/// The inner loop in chunks, each after its random numbers.
void LoopWriter::writeRandomChunks(llvm::StringRef from, llvm::StringRef to, int depth) {
  std::string size = std::to_string(chunkElements);
  writer.line("for (std::int64_t chunk = " + from + "; chunk < " + to + "; chunk += " + size + ") {", depth);
  writer.line("const std::int64_t chunkEnd = std::min<std::int64_t>(chunk + " + size + ", " + to + ");", depth + 1);
  std::string first = outerIndex(rowMajor(nest.dims));
  first += (first.empty() ? "" : " + ") + std::string("chunk");
  for (size_t i : randomSteps) {
    RandomUniformAttributes random = randomUniformOf(body.steps[i], shape);
    int64_t axis = random.batchAxis, samples = axis < 0 ? 1 : shape[axis];
    CppFields fields;
    if (axis < 0)
      fields.number("inner", productOf(shape), 1);
    else
      fields.number("outer", productOf(shape.take_front(axis)), 1)
          .number("samples", samples, 1)
          .number("inner", productOf(shape.drop_front(axis + 1)), 1);
    fields.number("rankSamples", random.rankSamples ? random.rankSamples : samples, samples)
        .number("firstSample", random.firstSample, 0);
    std::string name = "u" + std::to_string(i);
    writer.line("float " + name + "[" + size + "];", depth + 1);
    writer.line("randomUniform(rank, " + fields.str() + ", key" + llvm::Twine(i) + ", " + first +
                    ", chunkEnd - chunk, " + name + ");",
                depth + 1);
  }
  writeInnerLoop("chunk", "chunkEnd", depth + 1);
  writer.line("}", depth);
}

void LoopWriter::writeKeys() {
  if (!randomSteps.empty())
    writer.line("const int rank = c.rank;", 2);
  for (size_t i : randomSteps) {
    const Step &step = body.steps[i];
    std::string instance = writer.hole("std::int64_t", "instance", llvm::Twine(step.immediates[0]));
    writer.line("const std::uint64_t key" + llvm::Twine(i) + " = randomKey(*" + pointers[step.arguments[0]] + ", *" +
                    pointers[step.arguments[1]] + ", " + instance + ");",
                2);
  }
}

void LoopWriter::writeOuterLoops() {
  size_t loops = nest.dims.size();
  bool isParallel = productOf(nest.dims) >= parallelElements;
  std::string first = "0", last = std::to_string(nest.dims.front());
  int depth = 2;
  if (isParallel) {
    int64_t rowElements = productOf(llvm::ArrayRef<int64_t>(nest.dims).drop_front());
    int64_t grain = std::max<int64_t>(1, 8192 / rowElements);
    writer.line("parallelFor(c, " + last + ", " + llvm::Twine(grain) + ", [=](std::int64_t begin, std::int64_t end) {",
                depth++);
    first = "begin";
    last = "end";
  }
  size_t opened = 0;
  for (size_t axis = 0; axis + 1 < loops; ++axis, ++opened) {
    std::string i = "i" + std::to_string(axis);
    std::string from = axis == 0 ? first : "0", to = axis == 0 ? last : std::to_string(nest.dims[axis]);
    writer.line("for (std::int64_t " + i + " = " + from + "; " + i + " < " + to + "; ++" + i + ") {", depth++);
  }
  writeLoads(false, depth);
  std::string from = loops == 1 ? first : "0", to = loops == 1 ? last : std::to_string(nest.dims.back());
  if (randomSteps.empty())
    writeInnerLoop(from, to, depth);
  else
    writeRandomChunks(from, to, depth);
  for (; opened > 0; --opened)
    writer.line("}", --depth);
  if (isParallel)
    writer.line("});", --depth);
}

void LoopWriter::run() {
  counter = "j";
  nameOperands();
  // A scalar that needs random numbers still has one element to loop over.
  if (nest.dims.empty() && !randomSteps.empty()) {
    nest.dims.push_back(1);
    for (Shape &strides : nest.strides)
      strides.push_back(0);
  }
  writer.line("{");
  if (nest.dims.empty()) {
    writeLoads(false, 2);
    writeSteps(2);
  } else {
    writeKeys();
    writeOuterLoops();
  }
  writer.line("}");
}

} // namespace

void emitLoops(SectionWriter &writer, const Node &node, const FusedAttributes &attributes) {
  LoopWriter(writer, node, attributes).run();
}

namespace {

void emitFused(SectionWriter &writer, const Node &node) { emitLoops(writer, node, node.get<FusedAttributes>()); }

/// A lone elementwise op or random_uniform is a chain of one step.
void emitOne(SectionWriter &writer, const Node &node) {
  FusedAttributes attributes;
  attributes.shape = Shape(node.result()->type().shape());
  attributes.body.operandCount = static_cast<int32_t>(node.operandCount());
  Step step;
  step.op = node.op();
  step.dtype = node.result()->type().dtype();
  for (unsigned i = 0; i < node.operandCount(); ++i)
    step.arguments.push_back(static_cast<int32_t>(i));
  if (node.op() == Op::randomUniform)
    step.immediates = immediatesOf(node.get<RandomUniformAttributes>());
  attributes.body.yields.push_back(attributes.body.operandCount);
  attributes.body.steps.push_back(std::move(step));
  emitLoops(writer, node, attributes);
}

bool is16Bit(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

std::optional<std::string> unsupportedLoops(const Node &node) {
  for (const Value *operand : node.operands())
    if (is16Bit(operand->type().dtype()))
      return "arithmetic on 16-bit floats";
  for (unsigned i = 0; i < node.resultCount(); ++i)
    if (is16Bit(node.result(i)->type().dtype()))
      return "arithmetic on 16-bit floats";
  return std::nullopt;
}

std::optional<std::string> unsupportedFused(const Node &node) {
  const Expression &body = node.get<FusedAttributes>().body;
  for (const Step &step : body.steps) {
    if (is16Bit(step.dtype))
      return "arithmetic on 16-bit floats";
    if (step.op == Op::randomUniform &&
        (step.arguments[0] >= body.operandCount || step.arguments[1] >= body.operandCount))
      return "random numbers from a computed seed or step";
  }
  return unsupportedLoops(node);
}

constexpr Emitter elementwiseEmitter = {emitOne, unsupportedLoops};

} // namespace

namespace emitters {

const Emitter neg = elementwiseEmitter, abs = elementwiseEmitter, sign = elementwiseEmitter, exp = elementwiseEmitter,
              log = elementwiseEmitter, log1p = elementwiseEmitter, sqrt = elementwiseEmitter,
              rsqrt = elementwiseEmitter, tanh = elementwiseEmitter, erf = elementwiseEmitter,
              sigmoid = elementwiseEmitter, relu = elementwiseEmitter, sin = elementwiseEmitter,
              cos = elementwiseEmitter, floor = elementwiseEmitter, ceil = elementwiseEmitter,
              round = elementwiseEmitter, gelu = elementwiseEmitter, geluTanh = elementwiseEmitter,
              geluGrad = elementwiseEmitter, geluTanhGrad = elementwiseEmitter, logicalNot = elementwiseEmitter,
              isNan = elementwiseEmitter, add = elementwiseEmitter, sub = elementwiseEmitter, mul = elementwiseEmitter,
              div = elementwiseEmitter, mod = elementwiseEmitter, pow = elementwiseEmitter,
              maximum = elementwiseEmitter, minimum = elementwiseEmitter, equal = elementwiseEmitter,
              less = elementwiseEmitter, lessEqual = elementwiseEmitter, logicalAnd = elementwiseEmitter,
              logicalOr = elementwiseEmitter, logicalXor = elementwiseEmitter, select = elementwiseEmitter,
              cast = elementwiseEmitter, randomUniform = elementwiseEmitter;
const Emitter fused = {emitFused, unsupportedFused};

} // namespace emitters

} // namespace fsdpc
