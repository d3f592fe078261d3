#include "passes/graph/unit_plan.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

namespace {

/// A numbered component of a parameter's path.
struct Candidate {
  std::string list;     ///< the path up to the number
  std::string block;    ///< ... with the number
  std::string relative; ///< the parameter's name inside the block
  bool holdsModules = false;
  bool isPlainNumber = false;
};

/// "model.h.3.attn.weight" has one candidate: list "model.h.", block "model.h.3", inside it "attn.weight".
std::vector<Candidate> candidatesOf(const UsedParameter &parameter) {
  std::string path = parameter.isNamed ? parameter.name : parameter.module + "." + parameter.name;
  llvm::SmallVector<llvm::StringRef, 8> components;
  llvm::StringRef(path).split(components, '.');
  std::vector<Candidate> candidates;
  size_t begin = 0;
  for (size_t i = 0; i + 1 < components.size(); begin += components[i++].size() + 1) {
    llvm::StringRef stem = components[i].rtrim("0123456789");
    if (stem.size() == components[i].size())
      continue;
    size_t end = begin + components[i].size();
    // An exporter's own name says nothing about the place in the block.
    std::string relative = parameter.isNamed ? path.substr(end + 1) : std::to_string(parameter.elements);
    candidates.push_back({path.substr(0, begin + stem.size()), path.substr(0, end), std::move(relative),
                          i + 2 < components.size(), stem.empty()});
  }
  return candidates;
}

/// All blocks of one list.
class BlockList {
public:
  void add(const Candidate &candidate) {
    Block &block = blocks[candidate.block];
    block.holdsModules |= candidate.holdsModules;
    if (block.names.insert(candidate.relative).second)
      ++blocksWithName[candidate.relative];
  }

  bool repeats() const {
    int64_t alike = 0;
    for (const auto &block : blocks)
      alike += block.second.holdsModules && isLikeOthers(block.second);
    return alike >= 2;
  }

private:
  struct Block {
    llvm::StringSet<> names;
    bool holdsModules = false;
  };

  bool isLikeOthers(const Block &block) const {
    size_t shared =
        llvm::count_if(block.names, [&](const auto &name) { return blocksWithName.lookup(name.getKey()) > 1; });
    return 2 * shared >= block.names.size();
  }

  llvm::StringMap<Block> blocks;
  llvm::StringMap<int64_t> blocksWithName;
};

} // namespace

std::vector<std::string> findRepeatedBlocks(llvm::ArrayRef<UsedParameter> parameters) {
  llvm::StringMap<BlockList> lists;
  std::vector<std::vector<Candidate>> all;
  for (const UsedParameter &parameter : parameters) {
    all.push_back(candidatesOf(parameter));
    for (const Candidate &candidate : all.back())
      lists[candidate.list].add(candidate);
  }
  llvm::StringSet<> repeating;
  for (const auto &list : lists)
    if (list.second.repeats())
      repeating.insert(list.getKey());
  std::vector<std::string> blocks;
  for (const std::vector<Candidate> &candidates : all) {
    std::string &block = blocks.emplace_back();
    for (bool plain : {true, false})
      for (const Candidate &candidate : candidates)
        if (block.empty() && candidate.isPlainNumber == plain && repeating.contains(candidate.list))
          block = candidate.block;
  }
  return blocks;
}

} // namespace fsdpc
