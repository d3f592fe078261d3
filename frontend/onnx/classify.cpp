#include "frontend/onnx/classify.h"

#include "frontend/onnx/use_role.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include <algorithm>
#include <cstring>

namespace fsdpc {

namespace {

bool isFloatType(int32_t onnxType) {
  std::optional<DType> dtype = dtypeOf(onnxType);
  return dtype && isFloat(*dtype);
}

/// Leaf names of the state that PyTorch modules keep as buffers.
bool isBufferName(llvm::StringRef name) {
  static constexpr llvm::StringRef leaves[] = {"running_mean",
                                               "running_var",
                                               "num_batches_tracked",
                                               "inv_freq",
                                               "original_inv_freq",
                                               "masked_bias",
                                               "position_ids",
                                               "causal_mask",
                                               "attn_mask",
                                               "mask",
                                               "tril",
                                               "cos_cached",
                                               "sin_cached",
                                               "freqs_cis",
                                               "token_type_ids",
                                               "embed_scale",
                                               "pe",
                                               "mean",
                                               "std",
                                               "final_logits_bias"};
  return llvm::is_contained(leaves, leafOf(name));
}

/// Words that appear in the names of trained tensors, as people and other exporters choose them.
bool isParameterName(llvm::StringRef name) {
  std::string lower = name.lower();
  for (llvm::StringRef word : {"weight", "bias", "kernel", "gamma", "beta", "embed", "scale", "token"})
    if (llvm::StringRef(lower).contains(word))
      return true;
  return false;
}

bool isMatmulOrConvolution(const onnx::NodeProto &node) {
  return llvm::StringSwitch<bool>(node.op_type())
      .Cases("MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", true)
      .Default(false);
}

/// True if a matmul or convolution produces the value. Looks through nodes that only move elements.
bool comesFromMatmul(const GraphIndex &index, llvm::StringRef value) {
  for (int step = 0; step < 4; ++step) {
    const onnx::NodeProto *node = index.producer(value);
    if (!node)
      return false;
    if (isMatmulOrConvolution(*node))
      return true;
    bool moves = llvm::StringSwitch<bool>(node->op_type())
                     .Cases("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Cast", true)
                     .Default(false);
    if (!moves || node->input_size() == 0)
      return false;
    value = node->input(0);
  }
  return false;
}

bool isElementwisePair(const onnx::NodeProto &node) {
  return llvm::StringSwitch<bool>(node.op_type()).Cases("Add", "Sub", "Mul", "Div", true).Default(false);
}

/// True for an additive or logical mask: every element is 0, 1 or very negative, and the elements are not all equal.
bool looksLikeMask(const OnnxModel &model, const onnx::TensorProto &tensor) {
  constexpr int64_t largest = 1 << 22;
  if (tensor.dims_size() < 2 || elementsOf(tensor) > largest || elementsOf(tensor) < 4)
    return false;
  llvm::Expected<TensorFacts> facts =
      model.facts->learn(model, tensor, [](const TensorFacts &known) { return !known.isMask; });
  if (!facts) {
    llvm::consumeError(facts.takeError()); // a reader that needs the values reports it
    return false;
  }
  return facts->isMask && facts->varies;
}

/// Classifies the initializers one by one. A name goes to the first initializer that claims it.
class Classifier {
public:
  Classifier(const OnnxModel &model, const GraphIndex &index, const ExportSignature &signature)
      : model(model), index(index), signature(signature), isTorch(model.proto.producer_name() == "pytorch") {
    for (const onnx::TensorProto &tensor : index.graph.initializer())
      taken.insert(tensor.name());
  }

  InitializerRole classify(const onnx::TensorProto &tensor) {
    InitializerRole role;
    role.name = tensor.name();
    if (!isFloatType(tensor.data_type())) {
      bool isBuffer = kindOf(tensor) == "BUFFER" || signature.isBuffer.contains(tensor.name());
      return with(role, isBuffer ? InitializerKind::buffer : InitializerKind::constant,
                  isBuffer ? "export metadata" : "integer");
    }
    if (signature.known())
      return fromMetadata(tensor, role);
    if (model.angleTables.contains(tensor.name()))
      return with(role, InitializerKind::buffer, "use");
    return isExporterName(tensor.name()) ? fromFoldedName(tensor, role) : fromOwnName(tensor, role);
  }

private:
  static InitializerRole with(InitializerRole role, InitializerKind kind, llvm::StringRef origin) {
    role.kind = kind;
    role.origin = origin.str();
    return role;
  }

  llvm::StringRef kindOf(const onnx::TensorProto &tensor) const {
    auto found = signature.kinds.find(tensor.name());
    return found == signature.kinds.end() ? llvm::StringRef() : llvm::StringRef(found->second);
  }

  InitializerRole fromMetadata(const onnx::TensorProto &tensor, InitializerRole role) {
    llvm::StringRef kind = kindOf(tensor);
    auto folded = signature.foldedFrom.find(tensor.name());
    if (kind.empty() && folded != signature.foldedFrom.end())
      return fromFolding(tensor, folded->second, role);
    if (kind == "PARAMETER" || signature.isParameter.contains(tensor.name()))
      return with(role, InitializerKind::parameter, "export metadata");
    if (kind == "BUFFER" || signature.isBuffer.contains(tensor.name()))
      return with(role, InitializerKind::buffer, "export metadata");
    if (isFoldedBatchNormBias(tensor)) {
      role = with(role, InitializerKind::parameter, "export metadata");
      rename(role, moduleOf(index.node(index.readsOf(tensor.name()).front()).input(1)).str() + ".bias");
      role.note = "BatchNorm folded by the exporter, stored as " + tensor.name();
      return role;
    }
    return with(role, InitializerKind::constant, "export metadata");
  }

  /// True for the bias of a convolution or matmul that replaces the author's BatchNorm.
  bool isFoldedBatchNormBias(const onnx::TensorProto &tensor) const {
    llvm::ArrayRef<InitializerRead> reads = index.readsOf(tensor.name());
    return !reads.empty() && llvm::all_of(reads, [&](const InitializerRead &read) {
      const onnx::NodeProto &node = index.node(read);
      bool isBias = read.input == 2 && isMatmulOrConvolution(node);
      return isBias && metadataOf(node, statementKey).contains("batch_norm");
    });
  }

  InitializerRole fromFolding(const onnx::TensorProto &tensor, llvm::ArrayRef<std::string> sources,
                              InitializerRole role) {
    std::vector<llvm::StringRef> parameters;
    for (const std::string &source : sources)
      if (signature.isParameter.contains(source))
        parameters.push_back(source);
    bool isOfLayer =
        llvm::any_of(index.readsOf(tensor.name()), [&](const InitializerRead &read) { return readByLayer(read); });
    if (parameters.empty() || (elementsOf(tensor) < 2 && !isOfLayer))
      return with(role, InitializerKind::constant, "export metadata");
    role = with(role, InitializerKind::parameter, "export metadata");
    if (parameters.size() > 1) {
      role.note = "computed by the exporter from " + llvm::join(parameters, ", ");
      return role;
    }
    role.isTransposed = sources.size() == 1 && isFoldedTranspose(tensor);
    role.dropsOnes = !role.isTransposed && hasAddedOnes(tensor, parameters.front());
    rename(role, parameters.front());
    if (role.name != tensor.name())
      role.note =
          (role.isTransposed ? "stored transposed as " : "computed by the exporter, stored as ") + tensor.name();
    return role;
  }

  /// True for a table folded to [1, S, D], or a layer's vector reshaped to [C, 1, 1] for broadcasting.
  static bool hasAddedOnes(const onnx::TensorProto &tensor, llvm::StringRef name) {
    bool isVector = llvm::count_if(tensor.dims(), [](int64_t dim) { return dim != 1; }) == 1;
    bool isOfLayer = leafOf(name) == "weight" || leafOf(name) == "bias";
    return (isVector && isOfLayer && tensor.dims_size() > 1) || (tensor.dims_size() > 2 && tensor.dims(0) == 1);
  }

  /// True for a matrix that is read only by matmuls, as their second operand: a Linear weight whose Transpose was
  /// folded.
  bool isFoldedTranspose(const onnx::TensorProto &tensor) const {
    llvm::ArrayRef<InitializerRead> reads = index.readsOf(tensor.name());
    return tensor.dims_size() == 2 && !reads.empty() && llvm::all_of(reads, [&](const InitializerRead &read) {
             const onnx::NodeProto &node = index.node(read);
             return node.op_type() == "MatMul" && read.input == 1 && read.permutation.empty();
           });
  }

  /// Does nothing if another initializer has the name.
  void rename(InitializerRole &role, llvm::StringRef name) {
    if (!name.empty() && taken.insert(name).second)
      role.name = name.str();
  }

  /// onnx::MatMul_18 read by /fc1/MatMul, and other names for values that the exporter computed.
  InitializerRole fromFoldedName(const onnx::TensorProto &tensor, InitializerRole role) {
    llvm::ArrayRef<InitializerRead> reads = index.readsOf(tensor.name());
    if (reads.empty() || (elementsOf(tensor) < 2 && useRole(index, reads.front()) == UseRole::table))
      return with(role, InitializerKind::constant, "use");
    const InitializerRead &first = reads.front();
    const bool isTrained = (readByLayer(first) && !scalesWeight(first)) || isScaledNorm(index.node(first)) ||
                           isMatmulBias(tensor, first) ||
                           llvm::any_of(reads, [&](const InitializerRead &read) { return isStandardisedWeight(read); });
    if (!isTrained) {
      bool isTable = llvm::StringRef(tensor.name()).ends_with("Gather_output_0");
      return with(role, isTable ? InitializerKind::parameter : InitializerKind::constant, "use");
    }
    role = with(role, InitializerKind::parameter, "use");
    bool hasScope = llvm::StringRef(index.node(first).name()).starts_with("/");
    if (!hasScope)
      return role;
    role.isTransposed = isFoldedTranspose(tensor);
    role.dropsOnes = !role.isTransposed && !isMatmulOrConvolution(index.node(first)) && hasAddedOnes(tensor, "weight");
    rename(role, nameFromScope(first));
    if (role.name != tensor.name())
      role.note = (role.isTransposed ? "stored transposed as " : "stored as ") + tensor.name();
    return role;
  }

  /// True if a BatchNormalization in training mode reads it as data and the result becomes a convolution's weight.
  bool isStandardisedWeight(const InitializerRead &read) const {
    const onnx::NodeProto *node = &index.node(read);
    const onnx::AttributeProto *training = attributeOf(*node, "training_mode");
    if (node->op_type() != "BatchNormalization" || read.input != 0 || !training || training->i() == 0)
      return false;
    for (const Read &next : index.consumers(node->output(0)))
      if (index.graph.node(next.node).op_type() == "Reshape" && next.input == 0)
        for (const Read &last : index.consumers(index.graph.node(next.node).output(0)))
          if (index.graph.node(last.node).op_type() == "Conv" && last.input == 1)
            return true;
    return false;
  }

  /// True for an operand of a BatchNormalization that standardises a weight: not a norm's scale, but computed from a
  /// gain.
  bool scalesWeight(const InitializerRead &read) const {
    const onnx::NodeProto &node = index.node(read);
    return node.op_type() == "BatchNormalization" && read.input > 0 && index.initializer(node.input(0));
  }

  /// True if the vector is added to the matmul of a weight, like the slices that the exporter cut out of in_proj_bias.
  bool isMatmulBias(const onnx::TensorProto &tensor, const InitializerRead &read) const {
    const onnx::NodeProto &node = index.node(read);
    if (node.op_type() != "Add" || node.input_size() != 2 || tensor.dims_size() != 1)
      return false;
    const onnx::NodeProto *product = index.producer(node.input(1 - read.input));
    return product && product->op_type() == "MatMul" && readsInitializer(product->input(1));
  }

  bool readsInitializer(llvm::StringRef value) const {
    const onnx::NodeProto *node = index.producer(value);
    const bool isAlias = node && (node->op_type() == "Identity" || node->op_type() == "Transpose");
    return index.initializer(isAlias ? llvm::StringRef(node->input(0)) : value) != nullptr;
  }

  /// True for the scale or the shift of a GroupNorm. TorchScript writes GroupNorm as InstanceNormalization, Reshape,
  /// Mul and Add.
  bool isScaledNorm(const onnx::NodeProto &node) const {
    const onnx::NodeProto *before = &node;
    for (llvm::StringRef op : {"Add", "Mul", "Reshape", "InstanceNormalization"})
      if (before && before->op_type() == op) {
        if (op == "InstanceNormalization")
          return before != &node;
        before = producerOfInputs(*before);
      }
    return false;
  }

  /// The producer of the first input that has one. Constant nodes do not count.
  const onnx::NodeProto *producerOfInputs(const onnx::NodeProto &node) const {
    for (const std::string &input : node.input())
      if (const onnx::NodeProto *producer = index.producer(input); producer && producer->op_type() != "Constant")
        return producer;
    return nullptr;
  }

  /// True if a matmul, convolution, norm or embedding reads it in the position of a trained operand.
  bool readByLayer(const InitializerRead &read) const {
    const onnx::NodeProto &node = index.node(read);
    bool isElementwise = isElementwisePair(node);
    UseRole use = useRole(index, read);
    return use != UseRole::other && use != UseRole::mean && use != UseRole::variance && !isElementwise;
  }

  /// The sibling of the bias that is added to the matmul's result, else <scope>.weight or <scope>.bias.
  std::string nameFromScope(const InitializerRead &read) const {
    const onnx::NodeProto &node = index.node(read);
    llvm::StringRef scope = index.scopes[read.node];
    bool isBias = useRole(index, read) == UseRole::bias;
    std::string plain = (scope.empty() ? "" : scope.str() + ".") + (isBias ? "bias" : "weight");
    if (isBias || node.output_size() == 0)
      return plain;
    for (const Read &next : index.consumers(node.output(0))) {
      const onnx::NodeProto &add = index.graph.node(next.node);
      if (add.op_type() != "Add" || add.input_size() != 2)
        continue;
      llvm::StringRef bias = add.input(1 - next.input);
      size_t at = bias.rfind("bias");
      bool isSibling = at != llvm::StringRef::npos && !isExporterName(bias) && isScopeOf(scope, moduleOf(bias));
      if (isSibling)
        return (bias.take_front(at) + "weight" + bias.drop_front(at + 4)).str();
    }
    return plain;
  }

  InitializerRole fromOwnName(const onnx::TensorProto &tensor, InitializerRole role) {
    llvm::ArrayRef<InitializerRead> reads = index.readsOf(tensor.name());
    bool isState = llvm::any_of(reads, [&](const InitializerRead &read) {
      UseRole use = useRole(index, read);
      return use == UseRole::mean || use == UseRole::variance;
    });
    // The weight of a layer may start as an identity matrix.
    const bool isLayerWeight =
        leafOf(tensor.name()) == "weight" &&
        llvm::any_of(reads, [&](const InitializerRead &read) { return isMatmulOrConvolution(index.node(read)); });
    if (isBufferName(tensor.name()) || isState || (!isLayerWeight && looksLikeMask(model, tensor)))
      return with(role, InitializerKind::buffer, "name");
    bool isModuleName = isTorch || llvm::StringRef(tensor.name()).contains('.');
    if (isModuleName)
      return with(role, InitializerKind::parameter, "name");
    bool isTrained = llvm::any_of(reads, [&](const InitializerRead &read) { return isTrainedUse(tensor, read); });
    return with(role, isTrained ? InitializerKind::parameter : InitializerKind::constant, "use");
  }

  bool isTrainedUse(const onnx::TensorProto &tensor, const InitializerRead &read) const {
    if (readByLayer(read))
      return true;
    const onnx::NodeProto &node = index.node(read);
    if (elementsOf(tensor) < 2 || !isElementwisePair(node))
      return false;
    bool isBias = node.op_type() == "Add" && comesFromMatmul(index, node.input(1 - read.input));
    return isBias || isParameterName(tensor.name());
  }

  const OnnxModel &model;
  const GraphIndex &index;
  const ExportSignature &signature;
  bool isTorch;
  llvm::StringSet<> taken;
};

} // namespace

std::vector<InitializerRole> classifyInitializers(const OnnxModel &model, const GraphIndex &index,
                                                  const ExportSignature &signature) {
  Classifier classifier(model, index, signature);
  std::vector<InitializerRole> roles(index.graph.initializer_size());
  for (int i : index.initializersByFirstRead())
    roles[i] = classifier.classify(index.graph.initializer(i));
  return roles;
}

} // namespace fsdpc
