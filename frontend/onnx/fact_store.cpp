#include "frontend/onnx/fact_store.h"

#include "frontend/onnx/import.h"
#include "frontend/onnx/tensor_source.h"
#include "ir/write_file.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/xxhash.h"
#include <chrono>

namespace fsdpc {

namespace {

/// Most questions are decided by the first elements.
constexpr int64_t firstRunBytes = int64_t(64) << 10;
/// Facts of smaller files are learnt sooner than they are looked up.
constexpr uint64_t minKeptBytes = uint64_t(1) << 20;
/// File systems keep times in ticks of up to two seconds.
constexpr std::chrono::seconds coarsestTick(2);

TensorPlace placeOf(const onnx::TensorProto &tensor, int64_t offsetBytes) {
  return {offsetBytes, tensor.data_type(), elementsOf(tensor), tensor.dims_size() == 2 ? tensor.dims(0) : 0};
}

TensorFacts nothingKnown(const TensorPlace &place) { return {*dtypeOf(place.onnxType), place.elements, place.rows}; }

llvm::Error readOn(const TensorSource &source, TensorFacts &facts,
                   llvm::function_ref<bool(const TensorFacts &)> isEnough) {
  std::vector<uint8_t> run;
  while (!facts.isComplete() && !isEnough(facts)) {
    if (const int64_t data = source.skipHole(facts.known); data > facts.known) {
      facts.appendZeros(data - facts.known);
      continue;
    }
    const int64_t most = (facts.known == 0 ? firstRunBytes : TensorSource::runBytes) / source.elementBytes();
    const int64_t many = std::min(most, facts.elements - facts.known);
    run.resize(static_cast<size_t>(many * source.elementBytes()));
    if (llvm::Error error = source.read(facts.known, many, run.data()))
      return error;
    facts.append(run.data(), many);
  }
  return llvm::Error::success();
}

bool isSettled(const FileState &state) {
  const auto age =
      std::chrono::system_clock::now().time_since_epoch() - std::chrono::nanoseconds(state.modifiedNanoseconds);
  return age > coarsestTick;
}

} // namespace

std::string FactStore::fileFor(llvm::StringRef path) const {
  return folder + "/weights-" + llvm::utohexstr(llvm::xxh3_64bits(path), /*LowerCase=*/true, 16) + ".facts";
}

FactStore::Entry &FactStore::entryOf(const std::string &path) {
  const FileState state = stateOf(path).value_or(FileState());
  auto [entry, isNew] = entries.try_emplace(path);
  if (!isNew && entry->second.file.state == state)
    return entry->second;
  entry->second = {{state, {}}, false};
  if (folder.empty() || state.sizeBytes < minKeptBytes)
    return entry->second;
  if (auto text = llvm::MemoryBuffer::getFile(fileFor(path)))
    if (std::optional<FactFile> file = fromText((*text)->getBuffer(), path, state))
      entry->second.file = std::move(*file);
  return entry->second;
}

llvm::Expected<TensorFacts> FactStore::learn(const OnnxModel &model, const onnx::TensorProto &tensor,
                                             llvm::function_ref<bool(const TensorFacts &)> isEnough) {
  TensorFacts inside = nothingKnown(placeOf(tensor, 0));
  TensorFacts *facts = &inside;
  if (tensor.data_location() == onnx::TensorProto::EXTERNAL) {
    llvm::Expected<ExternalSlice> slice = externalSlice(model, tensor);
    if (!slice)
      return slice.takeError();
    Entry &entry = entryOf(slice->file);
    const TensorPlace place = placeOf(tensor, static_cast<int64_t>(slice->offset));
    facts = &entry.file.facts.try_emplace(place, inside).first->second;
    if (facts->isComplete() || isEnough(*facts))
      return *facts;
    entry.hasNews = true;
  }
  llvm::Expected<TensorSource> source = TensorSource::open(model, tensor);
  if (!source)
    return source.takeError();
  if (llvm::Error error = readOn(*source, *facts, isEnough))
    return error;
  return *facts;
}

void FactStore::save() {
  if (folder.empty())
    return;
  for (auto &[path, entry] : entries) {
    const FileState &state = entry.file.state;
    const bool isKept = entry.hasNews && state.sizeBytes >= minKeptBytes && stateOf(path) == state && isSettled(state);
    if (isKept)
      llvm::consumeError(replaceFile(fileFor(path), toText(path, entry.file)));
    entry.hasNews = false;
  }
}

std::shared_ptr<FactStore> makeFactStore(llvm::StringRef folder) { return std::make_shared<FactStore>(folder.str()); }

llvm::Expected<bool> isUniform(const OnnxModel &model, const onnx::TensorProto &tensor, bool ifAbsent) {
  if (isAbsent(model, tensor))
    return ifAbsent;
  llvm::Expected<TensorFacts> facts =
      model.facts->learn(model, tensor, [](const TensorFacts &known) { return !known.isUniform; });
  return facts ? llvm::Expected<bool>(facts->isUniform) : facts.takeError();
}

llvm::Expected<TensorFacts> firstFacts(const OnnxModel &model, const onnx::TensorProto &tensor) {
  return model.facts->learn(model, tensor, [](const TensorFacts &known) { return known.known > 0; });
}

llvm::Expected<TensorFacts> allFacts(const OnnxModel &model, const onnx::TensorProto &tensor) {
  return model.facts->learn(model, tensor, [](const TensorFacts &) { return false; });
}

} // namespace fsdpc
