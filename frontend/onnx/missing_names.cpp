#include "frontend/onnx/missing_names.h"

#include "frontend/onnx/use_role.h"
#include "llvm/ADT/StringSwitch.h"

namespace fsdpc {

bool fitsName(const GraphIndex &index, const InitializerRead &read, llvm::StringRef name) {
  llvm::StringRef leaf = leafOf(name);
  UseRole role = useRole(index, read);
  if (role == UseRole::mean || role == UseRole::variance)
    return leaf == (role == UseRole::mean ? "running_mean" : "running_var");
  bool isBiasName = leaf.contains("bias") || leaf.contains("beta");
  bool isWeightName = leaf.contains("weight") || leaf.contains("gamma");
  return !leaf.starts_with("running_") && !(role == UseRole::weight && isBiasName) &&
         !(role == UseRole::bias && isWeightName);
}

bool isReadByLayer(const GraphIndex &index, const InitializerRead &read, const TracedStatement &statement) {
  const onnx::NodeProto &node = index.node(read);
  bool isProduct = statement.target.contains("linear") || statement.target.contains("addmm");
  bool isGroupNorm = statement.target.contains("group_norm");
  return llvm::StringSwitch<bool>(node.op_type())
      .Cases("Gemm", "Conv", "ConvTranspose", "LayerNormalization", "BatchNormalization", read.input > 0)
      .Case("InstanceNormalization", read.input > 0 && statement.target.contains("instance_norm"))
      .Case("MatMul", isProduct)
      .Case("Add", isProduct || isGroupNorm)
      .Case("Mul", isGroupNorm)
      .Default(false);
}

MissingNames::MissingNames(const GraphIndex &index, const ExportSignature &signature, const TracedGraph &traced)
    : index(index), missing(missingParameters(index.graph, signature)) {
  for (size_t i = 0; i < missing.size(); ++i) {
    isMissing.insert(missing[i]);
    // If a statement quotes the parameter, its reader is known.
    if (!traced.isMentioned(missing[i]))
      missingBelow[moduleOf(missing[i]).str()].push_back(i);
  }
}

std::string MissingNames::best(const InitializerRead &read, llvm::StringRef scope, llvm::StringRef suffix,
                               bool sameModuleOnly) const {
  // All modules are below the root: only a reader in the root itself may refer to one of the root's own parameters.
  if (scope.empty() && !sameModuleOnly)
    return "";
  std::optional<size_t> best;
  size_t bestDepth = 0;
  for (auto &[module, positions] : missingWithin(scope, sameModuleOnly))
    for (size_t i : *positions) {
      if (taken.contains(missing[i]) || !fitsName(index, read, missing[i]))
        continue;
      llvm::StringRef below = llvm::StringRef(missing[i]).drop_front(scope.empty() ? 0 : scope.size() + 1);
      size_t depth = below == suffix ? 0 : 1 + below.count('.');
      if (!best || depth < bestDepth || (depth == bestDepth && i < *best)) {
        best = i;
        bestDepth = depth;
      }
    }
  return best ? missing[*best] : "";
}

MissingNames::Below MissingNames::missingWithin(llvm::StringRef scope, bool sameModuleOnly) const {
  Below result;
  if (auto own = missingBelow.find(scope.str()); own != missingBelow.end())
    result.push_back({own->first, &own->second});
  // Names below a scope are neighbours in the sorted map.
  std::string below = scope.empty() ? "" : scope.str() + ".";
  for (auto at = missingBelow.lower_bound(below);
       !sameModuleOnly && at != missingBelow.end() && llvm::StringRef(at->first).starts_with(below); ++at)
    if (at->first != scope)
      result.push_back({at->first, &at->second});
  return result;
}

} // namespace fsdpc
