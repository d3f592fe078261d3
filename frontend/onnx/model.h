// An ONNX file in memory. Everything that includes this is compiled with exceptions: libonnx and protobuf throw.
#pragma once

#include "frontend/onnx/initialization.h"
#include "onnx/onnx_pb.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Error.h"

namespace fsdpc {

/// A parameter that the file names, or a function, that cannot be trained as its author wrote it.
struct LostParameter {
  std::string name, why; ///< why: a few words, "was computed into 'val_31' (neg, exp)"
  bool isFunction = false;
};

/// Parsed, checked, local functions inlined. External data stays in its files.
class OnnxModel {
public:
  onnx::ModelProto proto;
  std::string path;                          ///< as given, for messages
  std::string folder;                        ///< external data lies below it
  bool weightsMayBeAbsent = false;           ///< ImportOptions::weightsMayBeAbsent
  llvm::StringMap<StatedStart> statedStarts; ///< by initializer; from the file's training info
  std::vector<LostParameter> lost;           ///< found by the repairs, in the order of the signature's use
  std::vector<std::string> notes;            ///< what everybody has to know of the parameters, one sentence each
  std::vector<std::string> tracedApart;      ///< nothing says whether they train: TracedStatement::isTracedApart
  llvm::StringSet<> tied;                    ///< parameters that live on under the name of another
  llvm::StringSet<> angleTables; ///< what RotaryEmbedding read as cos and sin before it was expanded: never trained

  const onnx::GraphProto &graph() const { return proto.graph(); }
  onnx::GraphProto &graph() { return *proto.mutable_graph(); }
  /// Version of the operator set of a domain; 0 if the file imports none. "" and "ai.onnx" are one domain.
  int64_t opset(llvm::StringRef domain) const;
};

/// Reads and checks a file. The caller learns of unsupported ops from the translation, except where libonnx does not
/// know an op either.
llvm::Expected<std::shared_ptr<OnnxModel>> loadModel(llvm::StringRef path, bool weightsMayBeAbsent);

/// The node's name, or its first output's where it has none.
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

/// Its external data lies in a file that does not exist, and that is allowed.
bool isAbsent(const OnnxModel &model, const onnx::TensorProto &tensor);
/// Where the external data of a tensor should lie, for messages: beside the model.
std::string externalFile(const OnnxModel &model, const onnx::TensorProto &tensor);
/// Shape, payload and (for external data) file, offset and length are what they have to be.
llvm::Error checkTensor(const OnnxModel &model, const onnx::TensorProto &tensor);
/// All elements, converted to dtypeOf(type). The tensor has passed checkTensor.
llvm::Expected<std::vector<uint8_t>> readTensor(const OnnxModel &model, const onnx::TensorProto &tensor);
/// The bytes as the file has them, for a tensor with external data.
llvm::Expected<std::string> readRaw(const OnnxModel &model, const onnx::TensorProto &tensor);
llvm::Expected<Dense> readDense(const OnnxModel &model, const onnx::TensorProto &tensor);
/// A slice of a file, resolved, without links.
struct ExternalSlice {
  std::string file;
  uint64_t offset = 0, length = 0;
};
/// Where the bytes of a tensor with external data lie: inside the file, as many as its shape needs.
llvm::Expected<ExternalSlice> externalSlice(const OnnxModel &model, const onnx::TensorProto &tensor);
/// Of an element in raw data.
int64_t rawElementBytes(int32_t onnxType);
/// Are the bytes of raw data those of dtypeOf(type)? Others are converted.
bool isStoredAsUsed(int32_t onnxType);
std::vector<uint8_t> convertRaw(int32_t onnxType, const uint8_t *data, int64_t elements);
/// Makes `to` a copy of the tensor's values, inline or external as `from` has them; name and metadata stay.
void copyValues(const onnx::TensorProto &from, onnx::TensorProto &to);

} // namespace fsdpc
