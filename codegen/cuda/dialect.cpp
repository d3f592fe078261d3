#include "codegen/cuda/dialect.h"

#include "codegen/common/constants_file.h"
#include "codegen/common/emitter.h"
#include "codegen/common/program_text.h"
#include "codegen/cuda/kernels.h"
#include "codegen/cuda/library_attention.h"
#include "codegen/cuda/scratch.h"
#include "ir/op.h"
#include "ir/ops/attention.h"

namespace fsdpc {

namespace {

class CudaDialect final : public Dialect {
public:
  llvm::StringRef name() const override { return "cuda"; }
  bool takesHalves(const Node &node) const override;
  int64_t bytesBeforeMatmuls(const Node &node) const override { return cudaLossBytesBeforeMatmuls(node); }
  std::optional<std::string> unsupported(const Node &node) const override;
  void emitLoops(SectionWriter &writer, const Node &node, const FusedAttributes &attributes) const override {
    emitKernel(writer, node, attributes);
  }
  bool hasEvents() const override { return true; }
  bool hostIsDevice() const override { return false; }
  llvm::StringRef programFile() const override { return "program.cu"; }
  std::string includes(const ProgramText &program) const override {
    return "#include \"runtime/cuda/kernels/kernels.h\"\n\n" +
           std::string(program.kernels().empty() ? "" : "#include \"kernels.cuh\"\n") +
           (program.constants().empty() ? "" : "#include \"constants.cuh\"\n");
  }
  std::string declarations(const ProgramText &) const override { return ""; }
  std::vector<EmittedFile> moreFiles(const ProgramText &program) const override;
  llvm::StringRef addressComment() const override {
    return "`W + offset` in the window that NCCL knows, at the same offset on every rank.";
  }
  // Ranks that are threads of one process each have their own.
  llvm::StringRef variablePrefix() const override { return "PER_RANK "; }
  std::string startText(const ProgramText &program) const override {
    return std::string(program.eventCount() == 0 ? "" : "  createEvents(c, events);\n") +
           (program.copyCount() == 0 ? "" : "  createCopies(c, copies);\n");
  }
};

bool CudaDialect::takesHalves(const Node &node) const {
  switch (node.op()) {
  case Op::convolution:
  case Op::convolutionGradInput:
  case Op::convolutionGradWeight:
  case Op::maxPool:
  case Op::maxPoolGrad:
  case Op::averagePool:
  case Op::averagePoolGrad:
  case Op::topK: return false;
  case Op::scatterNd: return replacesElements(node);
  default: return true;
  }
}

std::optional<std::string> CudaDialect::unsupported(const Node &node) const {
  bool convolves =
      node.op() == Op::convolution || node.op() == Op::convolutionGradInput || node.op() == Op::convolutionGradWeight;
  if (convolves && node.get<ConvolutionAttributes>().padsBefore != node.get<ConvolutionAttributes>().padsAfter)
    return "cuDNN pads both sides of an axis alike";
  if (isAttentionByLibrary(node))
    return cudnnRefuses(node);
  return std::nullopt;
}

/// Declares what the host's part of the program has in the constants file.
std::string largeConstants(const ProgramText &program) {
  std::string text;
  for (size_t i = 0; i < program.constants().size(); ++i)
    if (isInConstantsFile(program.constants()[i])) {
      const std::string symbol = constantSymbol(i);
      text += "extern \"C\" const std::uint64_t " + symbol + "[];\nstatic const HostTable constant" +
              std::to_string(i) + "{" + symbol + "};\n\n";
    }
  return text;
}

/// Included by program.cu alone, so that no device code has to be linked.
std::vector<EmittedFile> CudaDialect::moreFiles(const ProgramText &program) const {
  std::vector<EmittedFile> files;
  if (!program.kernels().empty()) {
    std::string text =
        "// Elementwise chains of this program, one kernel each. A step is rounded to its own type.\n#pragma once\n\n"
        "#include \"runtime/cuda/kernels/pack.h\"\n#include \"runtime/cuda/kernels/random.h\"\n"
        "#include \"runtime/cuda/kernels/scalar.h\"\n\n"
        "namespace fsdpc::rt {\n\nnamespace {\n\n";
    for (const std::string &kernel : program.kernels())
      text += kernel + "\n";
    files.push_back({"kernels.cuh", text + "} // namespace\n\n} // namespace fsdpc::rt\n"});
  }
  if (program.constants().empty())
    return files;
  files.push_back({"constants.cuh", "// Constants of the model, as the bytes of their elements.\n#pragma once\n\n"
                                    "#include \"runtime/cuda/kernels/table.h\"\n\nnamespace fsdpc::rt {\n\n" +
                                        smallConstantsText(program, "static __device__ const") +
                                        largeConstants(program) + "} // namespace fsdpc::rt\n"});
  if (ConstantsFile large(program); !large.bytes.empty()) {
    files.push_back({"constants.cpp", "// Takes large constants in from their file.\n" + large.definitions});
    files.push_back({ConstantsFile::name, std::move(large.bytes)});
  }
  return files;
}

} // namespace

const Dialect &cudaDialect() {
  static const CudaDialect dialect;
  return dialect;
}

} // namespace fsdpc
