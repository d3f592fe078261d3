// Reads the fixtures' tensors and runs an imported graph in the reference evaluator.
#pragma once

#include "frontend/onnx/import.h"
#include "ir/eval/evaluate.h"
#include "tests/compare/compare.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "gtest/gtest.h"
#include <cmath>
#include <cstring>

namespace fsdpc {

using HostTensors = std::map<std::string, HostTensor>;

inline std::string fixturePath(llvm::StringRef fixture, llvm::StringRef file) {
  return (llvm::StringRef(FSDPC_SOURCE_DIR) + "/tests/fixtures/" + fixture + "/" + file).str();
}

/// The F32 and I64 tensors of a safetensors file.
inline HostTensors readSafetensors(llvm::StringRef path) {
  HostTensors tensors;
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!buffer) {
    ADD_FAILURE() << path.str() << ": " << buffer.getError().message();
    return tensors;
  }
  uint64_t headerBytes;
  std::memcpy(&headerBytes, (*buffer)->getBufferStart(), sizeof headerBytes);
  llvm::Expected<llvm::json::Value> header = llvm::json::parse((*buffer)->getBuffer().substr(8, headerBytes));
  if (!header) {
    ADD_FAILURE() << path.str() << ": " << llvm::toString(header.takeError());
    return tensors;
  }
  for (const auto &[name, entry] : *header->getAsObject()) {
    const llvm::json::Object &tensor = *entry.getAsObject();
    if (!tensor.getString("dtype"))
      continue;
    bool isFloat = *tensor.getString("dtype") == "F32";
    Shape shape;
    for (const llvm::json::Value &dim : *tensor.getArray("shape"))
      shape.push_back(*dim.getAsInteger());
    HostTensor value(Type(isFloat ? DType::f32 : DType::i64, shape));
    const char *data =
        (*buffer)->getBufferStart() + 8 + headerBytes + *(*tensor.getArray("data_offsets"))[0].getAsInteger();
    for (size_t i = 0; i < value.values.size(); ++i) {
      float real;
      int64_t integer;
      std::memcpy(&real, data + i * 4, 4);
      if (!isFloat)
        std::memcpy(&integer, data + i * 8, 8);
      value.values[i] = isFloat ? static_cast<double>(real) : static_cast<double>(integer);
    }
    tensors[llvm::StringRef(name).str()] = std::move(value);
  }
  return tensors;
}

/// Results of `forward` on one rank.
inline HostTensors runForward(const Module &module, const HostTensors &parameters, const HostTensors &batch) {
  HostTensors inputs;
  for (const Argument &argument : module.function(FunctionKind::forward)->arguments())
    if (auto found = batch.find(argument.name); found != batch.end())
      inputs.insert(*found);
  EvaluationState state = makeEvaluationState(module, parameters);
  llvm::Expected<RankResults> results = evaluate(module, {FunctionKind::forward}, {inputs}, state);
  if (!results) {
    ADD_FAILURE() << llvm::toString(results.takeError());
    return {};
  }
  return results->front();
}

/// max |a - b| / max |b|; infinite if the shapes differ or an element is NaN.
inline double deviation(const HostTensor &a, const HostTensor &b) {
  if (a.type.shape() != b.type.shape())
    return INFINITY;
  return relativeError(a.values, b.values);
}

} // namespace fsdpc
