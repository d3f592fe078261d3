// Elementwise chains as kernels: a thread computes elements of the results one by one, all steps of an element in
// registers. Dims that operands walk alike are merged first, so most kernels need no coordinates at all. An element is
// read before it is written and belongs to one thread, so a result may lie over an operand of its own size.
#include "codegen/cuda/kernels.h"

#include "codegen/common/elementwise.h"
#include "codegen/common/emitter.h"
#include "codegen/common/program_text.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace fsdpc {

namespace {

using Step = Expression::Step;

class KernelWriter {
public:
  KernelWriter(SectionWriter &writer, const Node &node, const FusedAttributes &attributes)
      : writer(writer), node(node), body(attributes.body), shape(attributes.shape),
        nest(nestOf(node, attributes.shape)), strides(rowMajor(nest.dims)), elements(productOf(nest.dims)) {}

  void run();

private:
  void findUses();
  std::string stem() const;
  std::string signature() const;
  std::string keys() const;
  std::string coordinates() const;
  std::string loads() const;
  std::string steps() const;
  std::string indexOf(size_t operand) const;
  std::string argument(int32_t argument) const;
  DType dtypeOf(int32_t argument) const;
  bool walksAll(size_t operand) const { return nest.strides[operand] == strides; }
  /// Small indices divide faster.
  llvm::StringRef indexType() const { return elements < (int64_t{1} << 31) ? "std::uint32_t" : "std::int64_t"; }
  void line(std::string &text, const llvm::Twine &content, int depth) const {
    text.append(static_cast<size_t>(depth) * 2, ' ');
    text += content.str() + "\n";
  }

  SectionWriter &writer;
  const Node &node;
  const Expression &body;
  llvm::ArrayRef<int64_t> shape;
  Nest nest;
  Shape strides;
  int64_t elements;
  std::vector<bool> used;          ///< per operand: by a step that reads its elements
  std::vector<size_t> randomSteps; ///< they read seed and step number
};

void KernelWriter::findUses() {
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
}

/// The first steps by name, as far as a name can be read.
std::string KernelWriter::stem() const {
  constexpr size_t namedSteps = 3;
  std::string text;
  size_t named = 0;
  for (const Step &step : body.steps) {
    if (step.op == Op::constant || named == namedSteps)
      continue;
    ++named;
    llvm::SmallVector<llvm::StringRef, 4> words;
    infoOf(step.op).name.split(words, '_');
    for (llvm::StringRef word : words) {
      std::string part = word.str();
      if (!text.empty() && !part.empty())
        part[0] = llvm::toUpper(part[0]);
      text += part;
    }
  }
  return (text.empty() ? "copy" : text) + "Kernel";
}

std::string KernelWriter::signature() const {
  llvm::SmallVector<std::string, 8> parameters;
  for (unsigned i = 0; i < node.operandCount(); ++i)
    parameters.push_back("const " + cppType(node.operand(i)->type().dtype()).str() + " *p" + std::to_string(i));
  for (unsigned i = 0; i < node.resultCount(); ++i)
    parameters.push_back(cppType(node.result(i)->type().dtype()).str() + " *r" + std::to_string(i));
  if (!randomSteps.empty())
    parameters.push_back("int rank");
  for (size_t i : randomSteps)
    parameters.push_back("std::int64_t instance" + std::to_string(i));
  return "__global__ void \x01(" + llvm::join(parameters, ", ") + ") {\n";
}

std::string KernelWriter::keys() const {
  std::string text;
  for (size_t i : randomSteps) {
    const Step &step = body.steps[i];
    const std::string number = std::to_string(i);
    line(text, "const RandomShape shape" + number + randomShapeText(step, shape) + ";", 1);
    line(text,
         "const std::uint64_t key" + number + " = randomKey(*p" + llvm::Twine(step.arguments[0]) + ", *p" +
             llvm::Twine(step.arguments[1]) + ", instance" + number + ");",
         1);
  }
  return text;
}

/// The positions that some operand needs, on the merged dims.
std::string KernelWriter::coordinates() const {
  std::string text;
  for (size_t axis = 0; axis < nest.dims.size(); ++axis) {
    bool needed = false;
    for (size_t i = 0; i < used.size(); ++i)
      needed |= used[i] && !walksAll(i) && nest.strides[i][axis] != 0;
    if (!needed)
      continue;
    std::string value = "e";
    if (strides[axis] != 1)
      value += " / " + std::to_string(strides[axis]);
    if (axis > 0)
      value += " % " + std::to_string(nest.dims[axis]);
    line(text, "const " + indexType() + " i" + llvm::Twine(axis) + " = " + value + ";", 2);
  }
  return text;
}

std::string KernelWriter::indexOf(size_t operand) const {
  if (walksAll(operand))
    return "e";
  std::string text;
  for (size_t axis = 0; axis < nest.dims.size(); ++axis) {
    int64_t stride = nest.strides[operand][axis];
    if (stride == 0)
      continue;
    text += (text.empty() ? "i" : " + i") + std::to_string(axis);
    if (stride != 1)
      text += " * " + std::to_string(stride);
  }
  return text.empty() ? "0" : text;
}

std::string KernelWriter::loads() const {
  std::string text;
  for (size_t i = 0; i < used.size(); ++i)
    if (used[i])
      line(text,
           "const " + cppValueType(node.operand(i)->type().dtype()) + " x" + llvm::Twine(i) + " = " +
               loadText(node.operand(i)->type(), "p" + std::to_string(i) + "[" + indexOf(i) + "]") + ";",
           2);
  return text;
}

std::string KernelWriter::argument(int32_t argument) const {
  if (argument < body.operandCount)
    return "x" + std::to_string(argument);
  const Step &step = body.steps[argument - body.operandCount];
  return step.op == Op::constant ? cppLiteral(step.dtype, step.literal)
                                 : "s" + std::to_string(argument - body.operandCount);
}

DType KernelWriter::dtypeOf(int32_t argument) const {
  return argument < body.operandCount ? node.operand(argument)->type().dtype()
                                      : body.steps[argument - body.operandCount].dtype;
}

std::string KernelWriter::steps() const {
  std::string text;
  for (size_t i = 0; i < body.steps.size(); ++i) {
    const Step &step = body.steps[i];
    if (step.op == Op::constant)
      continue;
    std::string value, number = std::to_string(i);
    if (step.op == Op::randomUniform) {
      value = "randomUniformAt(rank, shape" + number + ", key" + number + ", e)";
    } else {
      llvm::SmallVector<std::string, 3> arguments;
      for (int32_t k : step.arguments)
        arguments.push_back(argument(k));
      value = stepText(step, dtypeOf(step.arguments[0]), arguments);
    }
    line(text, "const " + cppValueType(step.dtype) + " s" + number + " = " + value + ";", 2);
  }
  for (size_t i = 0; i < body.yields.size(); ++i)
    line(text,
         "r" + llvm::Twine(i) +
             "[e] = " + storeText(node.result(static_cast<unsigned>(i))->type(), argument(body.yields[i])) + ";",
         2);
  return text;
}

void KernelWriter::run() {
  findUses();
  std::string index = indexType().str(), text = "/// " + typeComment(Type(node.result()->type().dtype(), shape)) + "\n";
  text += signature() + keys();
  line(text,
       "for (" + index + " e = blockIdx.x * blockDim.x + threadIdx.x; e < " + llvm::Twine(elements) +
           "; e += gridDim.x * blockDim.x) {",
       1);
  text += coordinates() + loads() + steps();
  line(text, "}", 1);
  text += "}\n";
  llvm::SmallVector<std::string, 12> arguments;
  for (unsigned i = 0; i < node.operandCount(); ++i)
    arguments.push_back(writer.operand(node, i));
  for (unsigned i = 0; i < node.resultCount(); ++i)
    arguments.push_back(writer.define(node.result(i)));
  if (!randomSteps.empty())
    arguments.push_back("c.rank");
  for (size_t i : randomSteps)
    arguments.push_back(writer.hole("std::int64_t", "instance", llvm::Twine(body.steps[i].immediates[0])));
  if (elements > 0)
    writer.line("launch(c, gridFor(c, " + llvm::Twine(elements) + "), " + writer.program.kernel(stem(), text) + ", " +
                llvm::join(arguments, ", ") + ");");
}

} // namespace

void emitKernel(SectionWriter &writer, const Node &node, const FusedAttributes &attributes) {
  KernelWriter(writer, node, attributes).run();
}

} // namespace fsdpc
