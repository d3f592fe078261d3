#include "passes/support/section_regions.h"

namespace fsdpc {

llvm::DenseMap<const Node *, size_t> sectionRegions(const Function &function) {
  llvm::DenseMap<const Node *, size_t> runs;
  size_t run = 0;
  for (const Node *node : function) {
    const Node *previous = node->previous();
    run += previous && !(previous->section == node->section);
    runs[node] = run;
  }
  return runs;
}

namespace {

class UnitRegions {
public:
  llvm::DenseMap<const Node *, size_t> number(const Function &function) {
    for (const Node *node : function)
      if (node->section.phase == Phase::update)
        addUpdate(*node);
      else
        add(*node);
    numberUpdates(/*isAmid=*/false);
    return std::move(runs);
  }

private:
  /// The region of an update depends on the nodes that follow.
  void addUpdate(const Node &node) {
    updateRuns += updates.empty() || !(updates.back().first->section == node.section);
    updates.emplace_back(&node, updateRuns);
  }

  void add(const Node &node) {
    const bool goesOn = previous && continues(previous->section, node.section);
    numberUpdates(goesOn);
    count += !goesOn;
    runs[&node] = count - 1;
    previous = &node;
  }

  static bool continues(Section before, Section now) {
    bool isRecomputed = before.phase == Phase::recompute && now.phase == Phase::backward && before.unit == now.unit;
    return before == now || isRecomputed;
  }

  void numberUpdates(bool isAmid) {
    for (const auto &[node, number] : updates)
      runs[node] = isAmid ? count - 1 : count + number - 1;
    count += isAmid ? 0 : updateRuns;
    updates.clear();
    updateRuns = 0;
  }

  llvm::DenseMap<const Node *, size_t> runs;
  size_t count = 0; ///< regions so far
  const Node *previous = nullptr;
  llvm::SmallVector<std::pair<const Node *, size_t>, 32> updates; ///< after `previous`, each with its number among them
  size_t updateRuns = 0;
};

} // namespace

llvm::DenseMap<const Node *, size_t> unitRegions(const Function &function) { return UnitRegions().number(function); }

} // namespace fsdpc
