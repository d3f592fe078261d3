// Graphs with results from ONNX's reference evaluator, or from ONNX Runtime or PyTorch where that evaluator has no
// result or contradicts the specification. Derivatives are checked against finite differences in f64.
#pragma once

#include "tests/frontend/fixture.h"
#include "tests/frontend/rebuilt.h"
#include "tests/unit/gradient_check.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"

namespace fsdpc {

struct ReferenceCase {
  const char *name;
  int opset;
  double low, high; ///< range of the inputs
  const char *text; ///< inputs, outputs and nodes of a graph; the first dim of the first input is the batch
  std::vector<std::vector<double>> expected; ///< per output
};

inline std::ostream &operator<<(std::ostream &out, const ReferenceCase &test) { return out << test.name; }

/// The elements of input k, as in the reference: 64 values between low and high, in a fixed order.
inline std::vector<double> referenceInput(const ReferenceCase &test, size_t elements, size_t k) {
  std::vector<double> values(elements);
  for (size_t i = 0; i < elements; ++i) {
    double place = (static_cast<double>((i * 37 + 11 + k * 23) % 64) + 0.5) / 64;
    values[i] = static_cast<float>(test.low + (test.high - test.low) * place);
  }
  return values;
}

inline llvm::Expected<ImportedModel> importCase(const ReferenceCase &test) {
  llvm::SmallString<128> path;
  EXPECT_FALSE(llvm::sys::fs::createTemporaryFile("fsdpc", "onnxtxt", path));
  llvm::FileRemover remover(path);
  std::error_code error;
  llvm::raw_fd_ostream(path, error) << "<ir_version: 8, opset_import: [\"\" : " << test.opset << "]> agraph "
                                    << test.text;
  ImportOptions options;
  llvm::StringRef(test.text).split('[').second.consumeInteger(10, options.microBatchSize);
  return importOnnx(path, options);
}

/// The inputs by name, in the order of the graph's text.
inline HostTensors referenceBatch(const ReferenceCase &test, const Function &forward) {
  HostTensors batch;
  size_t k = 0;
  for (const Argument &argument : forward.arguments()) {
    HostTensor x(argument.value->type());
    x.values = referenceInput(test, x.values.size(), k++);
    batch[argument.name] = std::move(x);
  }
  return batch;
}

inline void checkReferenceCase(const ReferenceCase &test) {
  llvm::Expected<ImportedModel> imported = importCase(test);
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError());
  const Function &forward = *imported->module->function(FunctionKind::forward);
  HostTensors batch = referenceBatch(test, forward);
  HostTensors results = runForward(*imported->module, {}, batch);
  const Node *ret = forward.back();
  // A result that could be a loss is also returned as the loss.
  ASSERT_GE(ret->operandCount(), test.expected.size());
  for (size_t r = 0; r < test.expected.size(); ++r) {
    const HostTensor &y = results[ret->get<ReturnAttributes>().names[r]];
    ASSERT_EQ(y.values.size(), test.expected[r].size()) << toString(y.type);
    for (size_t i = 0; i < y.values.size(); ++i)
      EXPECT_NEAR(y.values[i], test.expected[r][i], 2e-6 * (1 + std::fabs(test.expected[r][i])))
          << "result " << r << ", element " << i;
  }
  GradientCase gradient;
  for (const Argument &argument : forward.arguments())
    gradient.inputs.push_back({argument.value->type(), test.low, test.high, batch[argument.name].values});
  gradient.build = [&](Builder &builder, llvm::ArrayRef<Value *> inputs) { return rebuilt(builder, forward, inputs); };
  checkGradients(gradient);
}

} // namespace fsdpc
