#include "frontend/onnx/parameters.h"

#include "frontend/onnx/complete.h"
#include "frontend/onnx/graph_edit.h"
#include "frontend/onnx/other_names.h"
#include "frontend/onnx/use_role.h"
#include "frontend/onnx/without_signature.h"
#include "ir/name_pattern.h"
#include "ir/usage_error.h"
#include <algorithm>

namespace fsdpc {

namespace {

Shape inverse(llvm::ArrayRef<int64_t> permutation) {
  Shape result(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i)
    result[permutation[i]] = static_cast<int64_t>(i);
  return result;
}

/// Shape and layout of a parameter in PyTorch and in the file.
void setLayout(Parameter &parameter, const onnx::TensorProto &tensor, const InitializerRole &role) {
  Shape file = shapeOf(tensor), own = file;
  if (role.isTransposed) {
    own = {file[1], file[0]};
    parameter.permutation = {1, 0};
  }
  if (role.dropsOnes) {
    bool isVector = llvm::count_if(file, [](int64_t dim) { return dim != 1; }) == 1;
    while (own.size() > (isVector ? 1 : 2) && own.front() == 1)
      own.erase(own.begin());
    while (isVector && own.size() > 1 && own.back() == 1)
      own.pop_back();
    parameter.fileShape = file;
  }
  parameter.type = Type(*dtypeOf(tensor.data_type()), own);
}

Parameter makeParameter(const OnnxModel &model, const GraphIndex &index, const onnx::TensorProto &tensor,
                        const InitializerRole &role) {
  Parameter parameter;
  parameter.name = role.name;
  parameter.initializer = tensor.name();
  parameter.hasValue = !isAbsent(model, tensor);
  parameter.recovered = role.note;
  if (llvm::StringRef note = metadataOf(tensor, recoveredKey); !note.empty())
    parameter.recovered += (parameter.recovered.empty() ? "" : "; ") + note.str();
  setLayout(parameter, tensor, role);
  for (const InitializerRead &read : index.readsOf(tensor.name()))
    parameter.uses.push_back({nameOf(index.node(read)).str(), read.input});
  return parameter;
}

/// True if it is read only as mean or variance of batch norms.
bool areRunningStatistics(const GraphIndex &index, const onnx::TensorProto &tensor) {
  llvm::ArrayRef<InitializerRead> reads = index.readsOf(tensor.name());
  return !reads.empty() && llvm::all_of(reads, [&](const InitializerRead &read) {
    UseRole use = useRole(index, read);
    return read.permutation.empty() && (use == UseRole::mean || use == UseRole::variance);
  });
}

RecoveredParameters listParameters(const Repair &repair) {
  GraphIndex index(repair.model.graph());
  const ExportSignature signature = exportSignature(index.graph);
  const OtherNames otherNames(repair.model, index, signature);
  RecoveredParameters result;
  result.roles = classifyInitializers(repair.model, index, signature);
  for (int i : index.initializersByFirstRead()) {
    const onnx::TensorProto &tensor = index.graph.initializer(i);
    const bool isBuffer = areRunningStatistics(index, tensor);
    if ((result.roles[i].kind != InitializerKind::parameter && !isBuffer) || index.readsOf(tensor.name()).empty())
      continue;
    if (isBuffer) {
      InitializerRole &role = result.roles[i];
      role.kind = InitializerKind::buffer;
      role.name = tensor.name();
      role.isTransposed = role.dropsOnes = false;
      role.note.clear();
    }
    result.byInitializer[tensor.name()] = result.parameters.size();
    result.parameters.push_back(makeParameter(repair.model, index, tensor, result.roles[i]));
    result.parameters.back().isBuffer = isBuffer;
    result.parameters.back().otherNames = otherNames.of(tensor, result.roles[i].name);
    result.origins.push_back(result.roles[i].origin);
  }
  otherNames.addUnread(result.parameters);
  otherNames.addStated(result.parameters);
  return result;
}

Parameter *find(RecoveredParameters &recovered, llvm::StringRef name) {
  for (Parameter &parameter : recovered.parameters)
    if (parameter.name == name || parameter.initializer == name)
      return &parameter;
  return nullptr;
}

llvm::Error tieParameters(const Repair &repair, RecoveredParameters &recovered, llvm::StringRef a, llvm::StringRef b) {
  Parameter *kept = find(recovered, a), *dropped = find(recovered, b);
  for (auto [parameter, name] : {std::pair(kept, a), std::pair(dropped, b)})
    if (!parameter)
      return llvm::createStringError("--tie " + a + "=" + b + ": there is no parameter '" + name + "'");
  if (kept == dropped)
    return llvm::Error::success();
  bool reshaped = !kept->fileShape.empty() || !dropped->fileShape.empty();
  if (kept->type != dropped->type || reshaped)
    return llvm::createStringError("--tie " + a + "=" + b + ": they are " + toString(kept->type) + " and " +
                                   toString(dropped->type));
  // File dim i of the dropped parameter is its dim q[i]. The kept parameter has that dim at inverse(p)[q[i]].
  Shape permutation;
  if (kept->permutation != dropped->permutation) {
    Shape identity = {0, 1};
    Shape p = inverse(kept->permutation.empty() ? identity : kept->permutation);
    for (int64_t dim : dropped->permutation.empty() ? identity : dropped->permutation)
      permutation.push_back(p[dim]);
  }
  GraphEdit edit(repair.model.graph());
  repair.model.tied[dropped->name] = kept->initializer;
  edit.replaceInitializer(dropped->initializer, kept->initializer, permutation);
  edit.apply();
  repair.remarks.push_back("'" + b.str() + "' is tied to '" + a.str() + "' as asked");
  recovered = listParameters(repair);
  return llvm::Error::success();
}

/// Makes parameters of the float buffers and constants that the user names.
void promote(const Repair &repair, RecoveredParameters &recovered, const NamePattern &trainable) {
  GraphIndex index(repair.model.graph());
  for (int i : index.initializersByFirstRead()) {
    const onnx::TensorProto &tensor = index.graph.initializer(i);
    std::optional<DType> dtype = dtypeOf(tensor.data_type());
    bool isListed = recovered.byInitializer.contains(tensor.name());
    bool isCandidate = recovered.roles[i].kind != InitializerKind::parameter && !isListed && dtype && isFloat(*dtype) &&
                       !index.readsOf(tensor.name()).empty();
    if (!isCandidate || !trainable.matches(tensor.name()))
      continue;
    recovered.roles[i].kind = InitializerKind::parameter;
    recovered.roles[i].origin = "--trainable";
    recovered.byInitializer[tensor.name()] = recovered.parameters.size();
    recovered.parameters.push_back(makeParameter(repair.model, index, tensor, recovered.roles[i]));
    recovered.origins.push_back("--trainable");
  }
}

/// An expression that matches no parameter is a mistake.
llvm::Error checkMatched(const NamePattern &pattern, llvm::ArrayRef<Parameter> parameters) {
  if (!pattern.isGiven())
    return llvm::Error::success();
  std::vector<std::string> names;
  for (const Parameter &parameter : parameters) {
    if (parameter.isBuffer)
      continue;
    if (pattern.matches(parameter.name))
      return llvm::Error::success();
    names.push_back(parameter.name);
  }
  return pattern.matchesNone("parameter", names);
}

llvm::Error selectTrainable(const Repair &repair, RecoveredParameters &recovered) {
  llvm::Expected<NamePattern> trainable = NamePattern::make("trainable", repair.options.trainableRegex);
  if (!trainable)
    return trainable.takeError();
  llvm::Expected<NamePattern> frozen = NamePattern::make("frozen", repair.options.frozenRegex);
  if (!frozen)
    return frozen.takeError();
  if (trainable->isGiven())
    promote(repair, recovered, *trainable);
  for (Parameter &parameter : recovered.parameters) {
    if (parameter.isBuffer) {
      parameter.trainable = false;
      continue;
    }
    bool isTrainable = trainable->matches(parameter.name), isFrozen = frozen->matches(parameter.name);
    if (isTrainable && isFrozen)
      return llvm::make_error<UsageError>("parameter '" + parameter.name + "' matches both --trainable and --frozen");
    parameter.trainable = trainable->isGiven() ? isTrainable : !isFrozen;
  }
  if (!trainable->isGiven())
    findTracedSeparately(repair.model, recovered.parameters);
  if (llvm::Error error = checkMatched(*trainable, recovered.parameters))
    return error;
  return checkMatched(*frozen, recovered.parameters);
}

llvm::Error checkNames(const RecoveredParameters &recovered) {
  llvm::StringSet<> names;
  for (const Parameter &parameter : recovered.parameters)
    if (!names.insert(parameter.name).second)
      return llvm::createStringError("two parameters have the name '" + parameter.name + "'");
  return llvm::Error::success();
}

} // namespace

llvm::Expected<RecoveredParameters> recoverParameters(const Repair &repair) {
  for (auto *step : {restoreBooleanMasks, tieCopies, splitMergedParts, splitMerged})
    if (llvm::Error error = step(repair))
      return error;
  llvm::Expected<std::vector<std::string>> ambiguous = splitMergedNodes(repair);
  if (!ambiguous)
    return ambiguous.takeError();
  for (const std::string &name : *ambiguous)
    repair.model.lost.push_back({name, "was merged with another of equal values, and nothing tells who reads which"});
  for (auto *step : {restoreConcatenated, restoreFolded, restoreRecurrent, restoreInProjections, restoreComplements,
                     restoreBiases, stopGradients, accountForAll})
    if (llvm::Error error = step(repair))
      return error;
  RecoveredParameters recovered = listParameters(repair);
  for (const auto &[a, b] : repair.options.ties)
    if (llvm::Error error = tieParameters(repair, recovered, a, b))
      return error;
  if (llvm::Error error = selectTrainable(repair, recovered))
    return error;
  if (llvm::Error error = checkNames(recovered))
    return error;
  if (llvm::Error error = chooseInitialValues(repair, recovered.parameters))
    return error;
  noteWithoutSignature(repair, recovered);
  return recovered;
}

} // namespace fsdpc
