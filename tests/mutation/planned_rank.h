// One rank of the planned machine: its arenas, and the execution of compute nodes on their bytes.
#pragma once

#include "ir/eval/evaluate.h"
#include "ir/ops/attributes.h"
#include "tests/mutation/planned_machine.h"
#include "llvm/ADT/STLExtras.h"
#include <cstring>

namespace fsdpc::mutation {

using Bytes = std::vector<uint8_t>;

/// The results that nodes write: computed values, or a hash of the node and of the bytes that it reads. Equal hashes
/// mean the same computation, whatever the values.
enum class Results { values, hashes };

/// The given number of bytes, generated from the seed.
Bytes bytesFrom(uint64_t seed, int64_t bytes);
uint64_t hashOf(uint64_t seed, const Bytes &bytes);

class Rank final : public EvaluationEnvironment {
public:
  Rank(const Module &module, int64_t index, Random &random, Results results)
      : module(module), index(index), random(random), results(results) {
    for (Space space : allSpaces) {
      std::optional<int64_t> arenaBytes = module.facts.arena(space).bytes;
      if (arenaBytes)
        arenaBytes = std::max(*arenaBytes, module.facts.predictBytes(space));
      Bytes &arena = arenas[indexOf(space)];
      arena.resize(arenaBytes ? *arenaBytes + slack : 0);
      spoil({space, 0}, static_cast<int64_t>(arena.size()));
    }
    for (const State &state : module.states)
      fillState(state);
  }

  int64_t rank() const override { return index; }
  int64_t worldSize() const override { return module.worldSize(); }
  int64_t batchRank() const override { return index; }
  const HostTensor &readState(llvm::StringRef) override { llvm_unreachable("reads are places"); }
  void writeState(llvm::StringRef, const HostTensor &) override { llvm_unreachable("writes are copies"); }
  void tap(const TapAttributes &, const HostTensor &) override { llvm_unreachable("taps are bytes"); }
  void stash(llvm::StringRef segment, const HostTensor &value) override { stashes[segment.str()] = value; }
  const HostTensor &stashed(llvm::StringRef segment, const Type &type) override {
    return stashes.try_emplace(segment.str(), type).first->second;
  }
  const MeshAxis &axis(llvm::StringRef name) const override { return *module.axis(name); }
  std::vector<HostTensor> exchange(llvm::StringRef, const HostTensor &) override {
    llvm_unreachable("collectives are the machine's");
  }

  uint8_t *at(Place place) { return arenas[place.isPlaced() ? indexOf(place.space) : 0].data() + place.offsetBytes; }
  Bytes bytesOf(const Value &value) { return {at(value.place), at(value.place) + tensorType(value).bytes()}; }
  HostTensor load(const Value &value) { return decode(tensorType(value), bytesOf(value)); }
  void store(const Value &value, const HostTensor &tensor) {
    Bytes bytes = encode(tensor);
    llvm::copy(bytes, at(value.place));
  }
  void spoil(Place place, int64_t bytes) {
    uint64_t garbage = random.below(~0ull) | 1;
    for (int64_t i = 0; i < bytes; ++i)
      at(place)[i] = static_cast<uint8_t>((garbage *= 6364136223846793005u) >> 56);
  }
  static Type tensorType(const Value &value) {
    return value.type().isFuture() ? value.type().delivered() : value.type();
  }
  static HostTensor decode(const Type &type, const Bytes &bytes) {
    HostTensor tensor(type);
    if (type.dtype() == DType::f32) {
      for (size_t i = 0; i < tensor.values.size(); ++i) {
        float element;
        std::memcpy(&element, bytes.data() + i * sizeof element, sizeof element);
        tensor.values[i] = element;
      }
      return tensor;
    }
    Dense dense(type.dtype(), bytes);
    for (int64_t i = 0; i < type.elements(); ++i)
      tensor.values[i] = dense.at(i);
    return tensor;
  }
  static Bytes encode(const HostTensor &tensor) {
    if (tensor.type.dtype() == DType::f32) {
      std::vector<float> elements(tensor.values.begin(), tensor.values.end());
      Bytes bytes(elements.size() * sizeof(float));
      std::memcpy(bytes.data(), elements.data(), bytes.size());
      return bytes;
    }
    Dense dense = Dense::fromDoubles(tensor.type.dtype(), tensor.values);
    return {dense.bytes().begin(), dense.bytes().end()};
  }

  void execute(const Node &node);
  /// True if `execute` reads or writes bytes. Aliases do not.
  static bool touchesMemory(const Node &node);
  void fillState(const State &state);
  void fillInputs(const Function &function, int step, int batch);
  /// Records this rank's part of each parameter and optimizer state.
  void recordStates(Outcome &outcome);

private:
  const State &layoutOf(const State &state) const {
    const State *owner = state.role == StateRole::optimizer ? module.state(state.owner) : nullptr;
    return owner ? *owner : state;
  }
  int64_t firstElementOf(const State &layout) const {
    const MeshAxis *axis = layout.over.empty() ? nullptr : module.axis(layout.over);
    return axis ? axis->memberOf(index) * layout.type.elements() : 0;
  }
  void compute(const Node &node);
  void evaluate(const Node &node);
  void leaveHashes(const Node &node);
  void clearGaps(const Node &pack);

  /// A mutant may write a little past the end of its arena. More ends the process that judges it.
  static constexpr int64_t slack = 1 << 16;
  const Module &module;
  const int64_t index;
  Random &random;
  const Results results;
  Bytes arenas[std::size(allSpaces)];
  std::map<std::string, HostTensor> stashes;
};

} // namespace fsdpc::mutation
