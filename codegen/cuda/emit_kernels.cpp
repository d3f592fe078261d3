// Elementwise chains as kernels. A thread computes a pack of adjacent elements, with all steps of an element in
// registers. It moves 16 bytes at a time where rows are multiples of packs. Adjacent dims that all operands traverse as
// one are merged first, so most kernels need no coordinates. A pack is read before it is written and belongs to one
// thread, so a result may overwrite an operand of its own size.
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
        nest(nestOf(node, attributes.shape)), strides(rowMajor(nest.dims)), elements(productOf(nest.dims)) {
    findUses();
    width = widthOfPacks();
  }

  void run();

private:
  void findUses();
  int64_t widthOfPacks() const;
  std::string stem() const;
  std::string signature() const;
  std::string keys() const;
  std::string coordinates() const;
  std::string loads() const;
  std::string elementsOfPacks() const;
  std::string uniform(size_t step) const;
  std::string steps() const;
  std::string stores() const;
  std::string indexOf(size_t operand) const;
  std::string argument(int32_t argument) const;
  DType dtypeOf(int32_t argument) const;
  bool walksAll(size_t operand) const { return nest.strides[operand] == strides; }
  /// Returns whether the operand has one element for an entire pack.
  bool isRepeated(size_t operand) const { return !nest.dims.empty() && nest.strides[operand].back() == 0; }
  bool inPacks() const { return width > 1; }
  int stepDepth() const { return inPacks() ? 3 : 2; }
  bool drawsPacks(size_t step) const;
  /// 32-bit indices divide faster.
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
  int64_t width = 1;               ///< elements of a pack
  std::vector<bool> used;          ///< per operand: whether a step reads its elements
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

/// The number of elements of the widest type that fit 16 bytes, at most 8. 1 if an operand is not contiguous.
int64_t KernelWriter::widthOfPacks() const {
  constexpr int64_t bytes = 16, most = 8;
  int64_t widest = 1;
  for (unsigned i = 0; i < node.operandCount(); ++i) {
    if (!used[i] || nest.dims.empty() || isRepeated(i))
      continue;
    if (nest.strides[i].back() != 1)
      return 1;
    widest = std::max(widest, byteSize(node.operand(i)->type().dtype()));
  }
  for (unsigned i = 0; i < node.resultCount(); ++i)
    widest = std::max(widest, byteSize(node.result(i)->type().dtype()));
  int64_t fitting = std::min(bytes / widest, most);
  while (nest.dims.empty() ? fitting > 1 : nest.dims.back() % fitting != 0)
    fitting /= 2;
  return fitting;
}

/// Returns whether a pack takes complete blocks of the generator, which yields four numbers at a time.
bool KernelWriter::drawsPacks(size_t step) const {
  const RandomUniformAttributes random = randomUniformOf(body.steps[step], shape);
  const int64_t inner = random.batchAxis < 0 ? elements : productOf(shape.drop_front(random.batchAxis + 1));
  return width % 4 == 0 && inner % 4 == 0;
}

/// The names of the first steps, so that the kernel's name stays readable.
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

/// The coordinates that some operand needs, on the merged dims.
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
  std::string text, packs = std::to_string(width);
  for (size_t i = 0; i < used.size(); ++i) {
    const std::string number = std::to_string(i);
    if (used[i] && inPacks() && !isRepeated(i))
      line(text, "const auto v" + number + " = loadPack<" + packs + ">(p" + number + " + " + indexOf(i) + ");", 2);
    else if (used[i])
      line(text,
           "const " + cppValueType(node.operand(i)->type().dtype()) + " x" + number + " = " +
               loadText(node.operand(i)->type(), "p" + number + "[" + indexOf(i) + "]") + ";",
           2);
  }
  if (!inPacks())
    return text;
  for (size_t i : randomSteps)
    if (const std::string number = std::to_string(i); drawsPacks(i))
      line(text,
           "const auto u" + number + " = randomUniformPack<" + packs + ">(rank, shape" + number + ", key" + number +
               ", e);",
           2);
  for (unsigned i = 0; i < node.resultCount(); ++i)
    line(text, "Pack<" + cppType(node.result(i)->type().dtype()) + ", " + packs + "> w" + llvm::Twine(i) + ";", 2);
  line(text, "for (int k = 0; k < " + packs + "; ++k) {", 2);
  return text;
}

std::string KernelWriter::elementsOfPacks() const {
  std::string text;
  for (size_t i = 0; inPacks() && i < used.size(); ++i)
    if (const std::string number = std::to_string(i); used[i] && !isRepeated(i))
      line(text,
           "const " + cppValueType(node.operand(i)->type().dtype()) + " x" + number + " = " +
               loadText(node.operand(i)->type(), "v" + number + ".values[k]") + ";",
           3);
  return text;
}

std::string KernelWriter::uniform(size_t step) const {
  const std::string number = std::to_string(step);
  if (inPacks() && drawsPacks(step))
    return "u" + number + ".values[k]";
  return "randomUniformAt(rank, shape" + number + ", key" + number + (inPacks() ? ", e + k)" : ", e)");
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
    std::string value;
    if (step.op == Op::randomUniform) {
      value = uniform(i);
    } else {
      llvm::SmallVector<std::string, 3> arguments;
      for (int32_t k : step.arguments)
        arguments.push_back(argument(k));
      value = stepText(step, dtypeOf(step.arguments[0]), arguments);
    }
    line(text, "const " + cppValueType(step.dtype) + " s" + llvm::Twine(i) + " = " + value + ";", stepDepth());
  }
  return text;
}

std::string KernelWriter::stores() const {
  std::string text;
  for (size_t i = 0; i < body.yields.size(); ++i) {
    const std::string number = std::to_string(i), to = inPacks() ? "w" + number + ".values[k]" : "r" + number + "[e]";
    line(text, to + " = " + storeText(node.result(static_cast<unsigned>(i))->type(), argument(body.yields[i])) + ";",
         stepDepth());
  }
  if (!inPacks())
    return text;
  line(text, "}", 2);
  for (size_t i = 0; i < body.yields.size(); ++i)
    line(text, "storePack(w" + llvm::Twine(i) + ", r" + llvm::Twine(i) + " + e);", 2);
  return text;
}

void KernelWriter::run() {
  std::string index = indexType().str(), text = "/// " + typeComment(Type(node.result()->type().dtype(), shape)) + "\n";
  text += signature() + keys();
  const std::string thread = "blockIdx.x * blockDim.x + threadIdx.x", pack = std::to_string(width);
  line(text,
       "for (" + index + " e = " + (inPacks() ? pack + " * (" + thread + ")" : thread) + "; e < " +
           llvm::Twine(elements) + "; e += " + (inPacks() ? pack + " * " : "") + "gridDim.x * blockDim.x) {",
       1);
  text += coordinates() + loads() + elementsOfPacks() + steps() + stores();
  line(text, "}", 1);
  text += "}\n";
  llvm::SmallVector<std::string, 12> arguments;
  for (unsigned i = 0; i < node.operandCount(); ++i)
    arguments.push_back(writer.operand(node, i));
  for (unsigned i = 0; i < node.resultCount(); ++i)
    arguments.push_back(writer.define(node.result(i)));
  if (!randomSteps.empty())
    arguments.push_back("c.batchRank");
  for (size_t i : randomSteps)
    arguments.push_back(writer.hole("std::int64_t", "instance", llvm::Twine(body.steps[i].immediates[0])));
  if (elements > 0)
    writer.line("launch(c, gridFor(c, " + llvm::Twine(elements / width) + "), " + writer.program.kernel(stem(), text) +
                ", " + llvm::join(arguments, ", ") + ");");
}

} // namespace

void emitKernel(SectionWriter &writer, const Node &node, const FusedAttributes &attributes) {
  KernelWriter(writer, node, attributes).run();
}

} // namespace fsdpc
