#include "tests/random/random_data.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

namespace fsdpc {

namespace {

/// Multiples of 1/parts in [-limit, limit].
void fillGrid(HostTensor &tensor, Random &random, int64_t limit, int64_t parts) {
  for (double &value : tensor.values)
    value = static_cast<double>(random.between(-limit * parts, limit * parts)) / static_cast<double>(parts);
}

int64_t rangeOfName(llvm::StringRef name) {
  int64_t limit = 0;
  if (name.rsplit("_below_").second.getAsInteger(10, limit))
    return 2;
  return limit;
}

/// Labels of a class loss index the classes of the scores.
int64_t classCount(const Module &train, llvm::StringRef labels) {
  const Value *argument = train.function(FunctionKind::microStep)->argument(labels);
  for (const Use *use = argument ? argument->uses() : nullptr; use; use = use->next())
    if (use->user()->op() == Op::crossEntropy || use->user()->op() == Op::nll)
      return use->user()->operand(0)->type().dim(-1);
  return 2;
}

void fillLabels(HostTensor &tensor, Random &random, const Module &train, const LossOptions &loss) {
  if (isFloat(tensor.type.dtype()))
    return fillGrid(tensor, random, 1, loss.kind == LossKind::bceWithLogits ? 1 : 64);
  int64_t classes = classCount(train, loss.labels);
  for (double &value : tensor.values)
    value = static_cast<double>(random.chance(0.15) && loss.ignoreIndex < 0 ? loss.ignoreIndex : random.below(classes));
  tensor.values[0] = 0; // at least one counts
}

void fillInput(HostTensor &tensor, llvm::StringRef name, const Module &train, const Choices &choices, uint64_t seed) {
  Random random(seed, name.str());
  if (name == "sample_weight")
    tensor.values.assign(tensor.values.size(), 1);
  else if (name == choices.options.loss.labels)
    fillLabels(tensor, random, train, choices.options.loss);
  else if (isFloat(tensor.type.dtype()))
    fillGrid(tensor, random, 2, 64);
  else
    for (double &value : tensor.values)
      value = static_cast<double>(random.below(rangeOfName(name)));
}

} // namespace

Tensors parameterValues(const Module &module, uint64_t seed) {
  Tensors tensors;
  for (const Parameter &parameter : module.parameters) {
    Random random(seed, parameter.name);
    HostTensor tensor(parameter.type);
    fillGrid(tensor, random, 1, 256);
    for (double &value : tensor.values)
      value = parameter.isBuffer ? value * value + 0.25 : value;
    tensors[parameter.name] = std::move(tensor);
  }
  return tensors;
}

Tensors globalBatch(const Module &train, const Choices &choices, uint64_t seed, int64_t rows) {
  Tensors batch;
  for (const std::unique_ptr<Function> &function : train.functions)
    for (const Argument &argument : function->arguments()) {
      if (argument.kind != ArgumentKind::input || batch.count(argument.name))
        continue;
      Shape shape(argument.value->type().shape());
      shape[0] = rows;
      HostTensor tensor(argument.value->type().withShape(shape));
      fillInput(tensor, argument.name, train, choices, seed);
      batch[argument.name] = std::move(tensor);
    }
  return batch;
}

std::vector<Tensors> rowsOfRanks(const Tensors &batch, int64_t ranks) {
  std::vector<Tensors> parts(ranks);
  for (const auto &[name, tensor] : batch)
    for (int64_t rank = 0; rank < ranks; ++rank) {
      Shape shape(tensor.type.shape());
      shape[0] /= ranks;
      HostTensor part(tensor.type.withShape(shape));
      auto count = static_cast<int64_t>(part.values.size());
      std::copy_n(tensor.values.begin() + rank * count, count, part.values.begin());
      parts[rank][name] = std::move(part);
    }
  return parts;
}

llvm::Error writeSafetensors(llvm::StringRef path, const Tensors &tensors) {
  llvm::json::Object header;
  std::string data;
  for (const auto &[name, tensor] : tensors) {
    size_t begin = data.size();
    DType dtype = tensor.type.dtype();
    Dense dense = Dense::fromDoubles(dtype, tensor.values);
    data += llvm::toStringRef(dense.bytes());
    header[name] = llvm::json::Object{{"dtype", llvm::StringRef(nameOf(dtype)).upper()},
                                      {"shape", llvm::json::Array(tensor.type.shape())},
                                      {"data_offsets", llvm::json::Array{begin, data.size()}}};
  }
  std::string text;
  llvm::raw_string_ostream(text) << llvm::json::Value(std::move(header));
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::error_code code;
  llvm::raw_fd_ostream out(path, code);
  if (code)
    return llvm::createStringError(path + ": " + llvm::Twine(code.message()));
  uint64_t size = text.size();
  out.write(reinterpret_cast<const char *>(&size), sizeof size);
  out << text << data;
  return llvm::Error::success();
}

} // namespace fsdpc
