// Small graphs in ONNX text: checks of their results and derivatives.
#pragma once

#include "tests/frontend/fixture.h"
#include "tests/frontend/rebuilt.h"
#include "tests/unit/gradient_check.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"

namespace fsdpc {

/// Imports a graph whose input x has a batch of one or more. `opsets` as in the text form: `"" : 20`. Functions may
/// follow the graph.
inline llvm::Expected<ImportedModel> importText(llvm::StringRef graph, llvm::StringRef opsets = "\"\" : 20",
                                                TrainMode trainMode = TrainMode::eval) {
  llvm::SmallString<128> path;
  EXPECT_FALSE(llvm::sys::fs::createTemporaryFile("fsdpc", "onnxtxt", path));
  llvm::FileRemover remover(path);
  std::error_code error;
  llvm::raw_fd_ostream(path, error) << "<ir_version: 10, opset_import: [" << opsets << "]> agraph " << graph;
  ImportOptions options;
  options.trainMode = trainMode;
  graph.split("x)").first.split('[').second.consumeInteger(10, options.microBatchSize);
  return importOnnx(path, options);
}

/// Element i of x is first + i * step.
inline HostTensor inputOf(const Module &module, double first, double step) {
  HostTensor x(module.function(FunctionKind::forward)->argument("x")->type());
  for (size_t i = 0; i < x.values.size(); ++i)
    x.values[i] = first + step * static_cast<double>(i);
  return x;
}

/// The nodes of `forward`, which reads no states, applied to other inputs.
inline BuildFunction forwardOf(const Module &module) {
  return [&module](Builder &builder, llvm::ArrayRef<Value *> inputs) {
    return rebuilt(builder, *module.function(FunctionKind::forward), inputs);
  };
}

/// Compares the derivatives with respect to the input, at `x`, with finite differences.
inline void checkGradientsAt(const Module &module, const HostTensor &x) {
  GradientCase gradientCase;
  GradientInput input;
  input.type = x.type;
  input.values = x.values;
  gradientCase.inputs = {input};
  gradientCase.build = forwardOf(module);
  checkGradients(gradientCase);
}

struct TextCase {
  const char *name;
  const char *text; ///< a graph with input x and output y
  std::vector<double> expected;
  double first = 0, step = 1; ///< of x
};

inline std::ostream &operator<<(std::ostream &out, const TextCase &textCase) { return out << textCase.name; }

/// Checks y and, if x and y are floats, its derivative with respect to x.
inline void checkText(const TextCase &textCase, llvm::StringRef opsets = "\"\" : 20") {
  llvm::Expected<ImportedModel> imported = importText(textCase.text, opsets);
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  HostTensor x = inputOf(*imported->module, textCase.first, textCase.step);
  HostTensors results = runForward(*imported->module, {}, {{"x", x}});
  const HostTensor &y = results["y"];
  ASSERT_EQ(y.values.size(), textCase.expected.size());
  for (size_t i = 0; i < y.values.size(); ++i)
    EXPECT_NEAR(y.values[i], textCase.expected[i], 1e-6) << "element " << i;
  if (isFloat(x.type.dtype()) && isFloat(y.type.dtype()))
    checkGradientsAt(*imported->module, x);
}

} // namespace fsdpc
