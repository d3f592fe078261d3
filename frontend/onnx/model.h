// An ONNX file in memory. Everything that includes this is compiled with exceptions: libonnx and protobuf throw.
#pragma once

#include "frontend/onnx/fact_store.h"
#include "frontend/onnx/initialization.h"
#include "onnx/onnx_pb.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Error.h"

namespace fsdpc {

/// A parameter or function that the file names and that cannot be trained as its author wrote it.
struct LostParameter {
  std::string name, why; ///< why: a few words, "was computed into 'val_31' (neg, exp)"
  bool isFunction = false;
};

/// A parsed and checked model with local functions inlined. External data stays in its files.
class OnnxModel {
public:
  onnx::ModelProto proto;
  std::string path;                          ///< as given, for messages
  std::string folder;                        ///< external data is below it
  bool weightsMayBeAbsent = false;           ///< ImportOptions::weightsMayBeAbsent
  llvm::StringMap<StatedStart> statedStarts; ///< by initializer; from the file's training info
  std::vector<LostParameter> lost;           ///< found by the repairs, in the order of the signature's use
  std::vector<std::string> notes;            ///< notes on the parameters for every user, one sentence each
  std::vector<std::string> tracedSeparately; ///< unknown whether they train: TracedStatement::isTracedSeparately
  llvm::StringMap<std::string> tied;         ///< parameters that continue under the name of another: its initializer
  std::shared_ptr<FactStore> facts = std::make_shared<FactStore>(""); ///< ImportOptions::facts
  llvm::StringSet<> angleTables; ///< cos and sin tables of an expanded RotaryEmbedding: never trained

  const onnx::GraphProto &graph() const { return proto.graph(); }
  onnx::GraphProto &graph() { return *proto.mutable_graph(); }
  /// Version of the operator set of a domain; 0 if the file imports none. "" and "ai.onnx" are one domain.
  int64_t opset(llvm::StringRef domain) const;
};

/// Reads and checks a file. The translation reports unsupported ops, except those that libonnx does not know either.
llvm::Expected<std::shared_ptr<OnnxModel>> loadModel(llvm::StringRef path, bool weightsMayBeAbsent);

/// The node's name, or its first output's if it has none.
llvm::StringRef nameOf(const onnx::NodeProto &node);
/// "" for ai.onnx too.
llvm::StringRef domainOf(const onnx::NodeProto &node);
/// Null if the node has no attribute of the name.
const onnx::AttributeProto *attributeOf(const onnx::NodeProto &node, llvm::StringRef name);

/// "/fc1/MatMul (MatMul of ai.onnx, opset 20)"
std::string describe(const OnnxModel &model, const onnx::NodeProto &node);

// ---- Tensors

/// The element type that a file type becomes in the graph: float16 and bfloat16 f32, int8, uint16 and int16 i32, uint32
/// and uint64 i64. None for strings, complex numbers and types of less than a byte.
std::optional<DType> dtypeOf(int32_t onnxType);
/// FLOAT, INT64, ...
std::string typeText(int32_t onnxType);
Shape shapeOf(const onnx::TensorProto &tensor);
int64_t elementsOf(const onnx::TensorProto &tensor);

/// True if its external data is in a file that does not exist, and that is allowed.
bool isAbsent(const OnnxModel &model, const onnx::TensorProto &tensor);
/// The path where the external data of a tensor should be, for messages: next to the model.
std::string externalFile(const OnnxModel &model, const onnx::TensorProto &tensor);
/// Checks the shape, the payload and (for external data) the file, offset and length.
llvm::Error checkTensor(const OnnxModel &model, const onnx::TensorProto &tensor);
/// All elements, converted to dtypeOf(type). Requires checkTensor.
llvm::Expected<std::vector<uint8_t>> readTensor(const OnnxModel &model, const onnx::TensorProto &tensor);
/// The bytes as the file has them, for a tensor with external data.
llvm::Expected<std::string> readRaw(const OnnxModel &model, const onnx::TensorProto &tensor);
llvm::Expected<Dense> readDense(const OnnxModel &model, const onnx::TensorProto &tensor);
/// A slice of a file, resolved, without links.
struct ExternalSlice {
  std::string file;
  uint64_t offset = 0, length = 0;
};
/// The bytes of a tensor with external data. Ensures that they are inside the file and as many as its shape needs.
llvm::Expected<ExternalSlice> externalSlice(const OnnxModel &model, const onnx::TensorProto &tensor);
/// Size of an element in raw data.
int64_t rawElementBytes(int32_t onnxType);
/// True if raw data already has the type dtypeOf(type) and needs no conversion.
bool isStoredAsUsed(int32_t onnxType);
std::vector<uint8_t> convertRaw(int32_t onnxType, const uint8_t *data, int64_t elements);
/// Makes `to` a copy of the tensor's values, inline or external as in `from`. Name and metadata stay.
void copyValues(const onnx::TensorProto &from, onnx::TensorProto &to);

} // namespace fsdpc
