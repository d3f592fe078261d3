#include "codegen/cpu/dialect.h"

#include "codegen/common/emitter.h"
#include "codegen/common/program_text.h"
#include "codegen/cpu/loops.h"
#include "codegen/cpu/scratch.h"
#include "ir/op.h"
#include "ir/ops/attention.h"
#include "ir/ops/norm.h"
#include "llvm/Support/MathExtras.h"

namespace fsdpc {

namespace {

class CpuDialect final : public Dialect {
public:
  llvm::StringRef name() const override { return "cpu"; }
  bool takesHalves(const Node &node) const override;
  std::optional<std::string> unsupported(const Node &node) const override;
  void emitLoops(SectionWriter &writer, const Node &node, const FusedAttributes &attributes) const override {
    emitHostLoops(writer, node, attributes);
  }
  bool hasEvents() const override { return false; }
  bool hostIsDevice() const override { return true; }
  llvm::StringRef programFile() const override { return "program.cpp"; }
  std::string includes(const ProgramText &) const override { return "#include \"runtime/cpu/kernels/kernels.h\"\n"; }
  std::string declarations(const ProgramText &program) const override;
  std::vector<EmittedFile> moreFiles(const ProgramText &program) const override;
  llvm::StringRef addressComment() const override { return "`W + offset` in the window that the other ranks read."; }
  /// Nothing runs before the processor is known to have the instructions.
  llvm::StringRef variablePrefix() const override { return "constinit "; }
  std::string startText(const ProgramText &) const override { return "  setLibraryThreads(c.threads);\n"; }
};

bool CpuDialect::takesHalves(const Node &node) const {
  if (node.op() == Op::scatterNd)
    return replacesElements(node);
  switch (node.op()) {
  case Op::matmul: // these make the f32 copies themselves where the processor needs them
  case Op::attention:
  case Op::attentionGrad:
  case Op::convolution:
  case Op::convolutionGradInput:
  case Op::convolutionGradWeight: return true;
  default: return emitterOf(node.op()).elements == Elements::any || isGeneratedLoop(node);
  }
}

std::optional<std::string> CpuDialect::unsupported(const Node &node) const {
  if (node.op() == Op::matmul && !scratchBytes(MatmulConfig::of(node), 1))
    return "oneDNN has no matmul of these shapes";
  if (node.op() == Op::linearCrossEntropy || node.op() == Op::linearCrossEntropyGrad)
    for (const ChunkConfig &chunk : ChunkConfig::chunksOf(node, takesHalves(node)))
      for (const MatmulConfig &config : chunk.all())
        if (!scratchBytes(config, 1))
          return "oneDNN has no matmul of these shapes";
  bool convolves =
      node.op() == Op::convolution || node.op() == Op::convolutionGradInput || node.op() == Op::convolutionGradWeight;
  if (convolves && !scratchBytes(ConvolutionConfig::of(node), 1))
    return "oneDNN has no convolution of these shapes";
  // With f32 copies of operands and results, the sum would not be rounded.
  if (addedOperand(node) && addedOperand(node)->type().dtype() != DType::f32)
    return "the sum inside " + infoOf(node).name.str() + " has to be rounded to " +
           nameOf(addedOperand(node)->type().dtype()).str() + "; an add of its own does that";
  if (isAttentionByLibrary(node))
    return "no library of the cpu target computes attention";
  return std::nullopt;
}

/// Larger constants are in a file of bytes, which the assembler takes in.
constexpr size_t maxBytesInSource = 4096;
constexpr size_t constantAlignment = 64;

/// The symbol of a constant in that file.
std::string symbolOf(size_t index) { return "fsdpcConstant" + std::to_string(index); }

std::string CpuDialect::declarations(const ProgramText &program) const {
  std::string text;
  for (size_t i = 0; i < program.constants().size(); ++i) {
    const bool isInFile = program.constants()[i].bytes().size() > maxBytesInSource;
    text += "extern const std::uint64_t constant" + std::to_string(i) + "[]" +
            (isInFile ? " asm(\"" + symbolOf(i) + "\")" : "") + ";\n";
  }
  return text.empty() ? text : text + "\n";
}

/// The large constants: their bytes, one after the other, and definitions that take them from the file.
struct ConstantsFile {
  std::string bytes, definitions;

  explicit ConstantsFile(const ProgramText &program) {
    for (size_t i = 0; i < program.constants().size(); ++i) {
      const llvm::StringRef constant = program.constants()[i].asText();
      if (constant.size() <= maxBytesInSource)
        continue;
      bytes.resize(llvm::alignTo(bytes.size(), constantAlignment));
      definitions += "asm(\".section .rodata\\n.balign 64\\n.globl " + symbolOf(i) + "\\n" + symbolOf(i) +
                     ":\\n.incbin \\\"" + name + "\\\", " + std::to_string(bytes.size()) + ", " +
                     std::to_string(constant.size()) + "\\n.previous\");\n";
      bytes += constant;
    }
  }
  static constexpr const char *name = "constants.bin";
};

std::vector<EmittedFile> CpuDialect::moreFiles(const ProgramText &program) const {
  if (program.constants().empty())
    return {};
  ConstantsFile large(program);
  std::vector<EmittedFile> files = {
      {"constants.cpp", "// Constants of the model, as the bytes of their elements.\n#include <cstdint>\n\n"
                        "namespace fsdpc::rt {\n\n" +
                            declarations(program) + constantsText(program, "const", maxBytesInSource) +
                            "} // namespace fsdpc::rt\n" + (large.bytes.empty() ? "" : "\n" + large.definitions)}};
  if (!large.bytes.empty())
    files.push_back({ConstantsFile::name, std::move(large.bytes)});
  return files;
}

} // namespace

const Dialect &cpuDialect() {
  static const CpuDialect dialect;
  return dialect;
}

} // namespace fsdpc
