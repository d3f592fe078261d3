#include "codegen/cpu/dialect.h"

#include "codegen/common/constants_file.h"
#include "codegen/common/emitter.h"
#include "codegen/common/program_text.h"
#include "codegen/cpu/loops.h"
#include "codegen/cpu/scratch.h"
#include "ir/op.h"
#include "ir/ops/attention.h"
#include "ir/ops/norm.h"

namespace fsdpc {

namespace {

class CpuDialect final : public Dialect {
public:
  llvm::StringRef name() const override { return "cpu"; }
  bool takesHalves(const Node &node) const override;
  int64_t bytesBeforeMatmuls(const Node &node) const override { return cpuLossBytesBeforeMatmuls(node); }
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
  case Op::linearCrossEntropy:
  case Op::linearCrossEntropyGrad: return takesBf16(node);
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

std::string CpuDialect::declarations(const ProgramText &program) const {
  std::string text;
  for (size_t i = 0; i < program.constants().size(); ++i) {
    const bool isInFile = isInConstantsFile(program.constants()[i]);
    text += "extern const std::uint64_t constant" + std::to_string(i) + "[]" +
            (isInFile ? " asm(\"" + constantSymbol(i) + "\")" : "") + ";\n";
  }
  return text.empty() ? text : text + "\n";
}

std::vector<EmittedFile> CpuDialect::moreFiles(const ProgramText &program) const {
  if (program.constants().empty())
    return {};
  ConstantsFile large(program);
  std::vector<EmittedFile> files = {
      {"constants.cpp", "// Constants of the model, as the bytes of their elements.\n#include <cstdint>\n\n"
                        "namespace fsdpc::rt {\n\n" +
                            declarations(program) + smallConstantsText(program, "const") +
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
