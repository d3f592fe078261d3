// Elementwise chains as generated loops. Adjacent dims that every operand traverses as one are merged, so most chains
// are one or two loops. The compiler vectorizes the inner one. `omp simd` states that elements are independent, which
// also holds where a result overwrites an operand, since each element is read before it is written.
#include "codegen/cpu/loops.h"

#include "codegen/common/elementwise.h"
#include "codegen/common/emitter.h"
#include "codegen/common/program_text.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace fsdpc {

namespace {

using Step = Expression::Step;

// Fewer elements than this are not worth waking threads for.
constexpr int64_t parallelElements = 32768;
constexpr int64_t chunkElements = 1024; ///< of random numbers, made before the loop that uses them

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
  std::vector<bool> used;                     ///< per operand: whether a step reads its elements
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

/// Loads the elements of operands that do (`inside`) or do not vary in the inner loop.
void LoopWriter::writeLoads(bool inside, int depth) {
  for (size_t i = 0; i < pointers.size(); ++i)
    if (used[i] && variesInside(i) == inside)
      writer.line("const " + cppValueType(node.operand(i)->type().dtype()) + " " + loads[i] + " = " +
                      loadText(node.operand(i)->type(), pointers[i] + "[" + index(i, inside) + "]") + ";",
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
    writer.line("const " + cppValueType(step.dtype) + " " + name + " = " + value + ";", depth);
  }
  for (size_t i = 0; i < body.yields.size(); ++i) {
    const std::string to = results[i] + "[" + resultIndex() + "]", value = argument(body.yields[i]);
    const bool rounds = isHalf(node.result(static_cast<unsigned>(i))->type().dtype());
    writer.line(rounds ? "storeRounded(" + to + ", " + value + ");" : to + " = " + value + ";", depth);
  }
}

void LoopWriter::writeInnerLoop(llvm::StringRef from, llvm::StringRef to, int depth) {
  writer.line("#pragma omp simd", 0);
  writer.line("for (std::int64_t " + counter + " = " + from + "; " + counter + " < " + to + "; ++" + counter + ") {",
              depth);
  writeLoads(true, depth + 1);
  writeSteps(depth + 1);
  writer.line("}", depth);
}

/// The inner loop in chunks. The random numbers of a chunk are made before its loop.
void LoopWriter::writeRandomChunks(llvm::StringRef from, llvm::StringRef to, int depth) {
  std::string size = std::to_string(chunkElements);
  writer.line("for (std::int64_t chunk = " + from + "; chunk < " + to + "; chunk += " + size + ") {", depth);
  writer.line("const std::int64_t chunkEnd = std::min<std::int64_t>(chunk + " + size + ", " + to + ");", depth + 1);
  std::string first = outerIndex(rowMajor(nest.dims));
  first += (first.empty() ? "" : " + ") + std::string("chunk");
  for (size_t i : randomSteps) {
    std::string name = "u" + std::to_string(i);
    writer.line("float " + name + "[" + size + "];", depth + 1);
    writer.line("randomUniform(rank, " + randomShapeText(body.steps[i], shape) + ", key" + llvm::Twine(i) + ", " +
                    first + ", chunkEnd - chunk, " + name + ");",
                depth + 1);
  }
  writeInnerLoop("chunk", "chunkEnd", depth + 1);
  writer.line("}", depth);
}

void LoopWriter::writeKeys() {
  if (!randomSteps.empty())
    writer.line("const int rank = c.batchRank;", 2);
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

void emitHostLoops(SectionWriter &writer, const Node &node, const FusedAttributes &attributes) {
  LoopWriter(writer, node, attributes).run();
}

} // namespace fsdpc
