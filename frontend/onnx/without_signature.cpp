#include "frontend/onnx/without_signature.h"

#include "frontend/onnx/use_role.h"

#include "llvm/ADT/StringExtras.h"
#include <map>

namespace fsdpc {

namespace {

constexpr size_t maxPatterns = 12;

class Notes {
public:
  Notes(const Repair &repair, const RecoveredParameters &recovered)
      : repair(repair), recovered(recovered), index(repair.model.graph()),
        isTorch(repair.model.proto.producer_name() == "pytorch") {}

  void add() {
    if (isTorch) {
      noteFoldedBatchNorms();
      noteComputed();
      noteByName();
    }
    noteConstants();
  }

private:
  void note(std::string sentence) { repair.model.notes.push_back(std::move(sentence)); }

  /// Lists names, with one pattern for those that differ only in numbers.
  static std::string listed(llvm::ArrayRef<std::string> names) {
    std::map<std::string, std::pair<int, std::string>> patterns;
    std::vector<std::string> order;
    for (const std::string &name : names) {
      auto [entry, isNew] = patterns.try_emplace(patternOf(name), 0, name);
      ++entry->second.first;
      if (isNew)
        order.push_back(entry->first);
    }
    std::vector<std::string> words;
    for (const std::string &pattern : llvm::ArrayRef(order).take_front(maxPatterns)) {
      const auto &[count, first] = patterns[pattern];
      words.push_back(count == 1 ? "'" + first + "'" : "'" + pattern + "' (" + std::to_string(count) + ")");
    }
    if (order.size() > maxPatterns)
      words.push_back(std::to_string(order.size() - maxPatterns) + " more patterns");
    return llvm::join(words, ", ");
  }

  static std::string patternOf(llvm::StringRef name) {
    std::string pattern;
    for (size_t i = 0; i < name.size(); ++i)
      if (!llvm::isDigit(name[i]))
        pattern += name[i];
      else if (i == 0 || !llvm::isDigit(name[i - 1]))
        pattern += '*';
    return pattern;
  }

  /// True for a folded operand. TorchScript keeps the names of a convolution's own weight and bias.
  bool isFolded(const onnx::NodeProto &node, int input) const {
    return input < node.input_size() && index.initializer(node.input(input)) && isExporterName(node.input(input));
  }

  static bool isConvolution(const onnx::NodeProto &node) {
    return domainOf(node).empty() && (node.op_type() == "Conv" || node.op_type() == "ConvTranspose");
  }

  void noteFoldedBatchNorms() {
    std::vector<std::string> modules;
    llvm::StringSet<> seen;
    for (int i = 0; i < index.graph.node_size(); ++i) {
      const onnx::NodeProto &node = index.graph.node(i);
      if (isConvolution(node) && isFolded(node, 1) && isFolded(node, 2)) {
        if (seen.insert(index.scopes[i]).second)
          modules.push_back(index.scopes[i]);
        ofBatchNorm.insert(node.input(1));
        ofBatchNorm.insert(node.input(2));
      }
    }
    if (!modules.empty())
      note("warning: the exporter folded BatchNorm into the convolution before it; what trains is the folded weights "
           "and biases, without batch statistics, of " +
           listed(modules) +
           ". torch.onnx.export(..., training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False) keeps "
           "BatchNorm");
  }

  /// True for a module's own parameter: a matrix that a matmul reads is a transposed Linear weight, and a GroupNorm's
  /// vector has added dims of 1.
  bool isOwn(const Parameter &parameter) const {
    return !parameter.fileShape.empty() ||
           llvm::all_of(index.readsOf(parameter.initializer), [&](const InitializerRead &read) {
             const UseRole use = useRole(index, read);
             return use == UseRole::weight && isLinearWeight(index.node(read), read.input);
           });
  }

  void noteComputed() {
    std::vector<std::string> names;
    for (const Parameter &parameter : recovered.parameters) {
      const bool isKnown = !isExporterName(parameter.initializer) || ofBatchNorm.contains(parameter.initializer);
      if (parameter.trainable && !isKnown && !isOwn(parameter))
        names.push_back(parameter.initializer);
    }
    if (!names.empty())
      note("the exporter computed tensors from parameters of other names or shapes, and they train in their place: " +
           listed(names) + ". torch.onnx.export(..., do_constant_folding=False) keeps the parameters");
  }

  /// Notes parameters that only their name identifies. A buffer has a similar name, and a tensor that no layer reads
  /// may be either.
  void noteByName() {
    std::vector<std::string> names;
    for (size_t i = 0; i < recovered.parameters.size(); ++i) {
      const Parameter &parameter = recovered.parameters[i];
      const bool isKnown = hasTrainedLeaf(parameter.name) || isReadByLayer(parameter.initializer);
      if (parameter.trainable && recovered.origins[i] == "name" && !isKnown)
        names.push_back(parameter.name);
    }
    if (!names.empty())
      note("these train because of their names alone, and would be frozen if they were buffers: " + listed(names) +
           " (--frozen REGEX)");
  }

  bool isReadByLayer(llvm::StringRef initializer) const {
    return llvm::any_of(index.readsOf(initializer), [&](const InitializerRead &read) {
      llvm::StringRef op = index.node(read).op_type();
      const UseRole use = useRole(index, read);
      const bool isElementwise = op == "Add" || op == "Sub" || op == "Mul" || op == "Div";
      return use != UseRole::other && !isElementwise;
    });
  }

  /// True for leaf names that modules use only for trained tensors.
  static bool hasTrainedLeaf(llvm::StringRef name) {
    llvm::StringRef leaf = leafOf(name);
    return leaf.contains("weight") || leaf.contains("bias") || leaf.contains("gamma") || leaf.contains("beta");
  }

  void noteConstants() {
    std::vector<std::string> names;
    bool isComputed = false;
    for (int i = 0; i < index.graph.initializer_size(); ++i) {
      const onnx::TensorProto &tensor = index.graph.initializer(i);
      std::optional<DType> dtype = dtypeOf(tensor.data_type());
      const bool isFloatTensor = dtype && isFloat(*dtype) && elementsOf(tensor) > 1;
      const bool isListed = recovered.byInitializer.contains(tensor.name());
      if (!isFloatTensor || isListed || index.readsOf(tensor.name()).empty())
        continue;
      names.push_back(tensor.name());
      isComputed |= isTorch && isExporterName(tensor.name());
    }
    if (names.empty())
      return;
    note("these float tensors do not train, for nothing says that they are parameters: " + listed(names) +
         "; `fsdpc inspect` lists all, and --trainable REGEX, which names what trains, may name them too" +
         (isComputed ? ". The exporter may have computed those that it named from parameters: "
                       "torch.onnx.export(..., do_constant_folding=False) keeps those"
                     : ""));
  }

  const Repair &repair;
  const RecoveredParameters &recovered;
  GraphIndex index;
  bool isTorch;
  llvm::StringSet<> ofBatchNorm; ///< initializers
};

} // namespace

void noteWithoutSignature(const Repair &repair, const RecoveredParameters &recovered) {
  if (!exportSignature(repair.model.graph()).known())
    Notes(repair, recovered).add();
}

} // namespace fsdpc
