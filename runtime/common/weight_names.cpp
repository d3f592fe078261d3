#include "runtime/common/weight_names.h"

#include <algorithm>
#include <map>
#include <set>

namespace fsdpc::rt {
namespace {

constexpr int maxPrefixParts = 3;
// A prefix that fewer names share is the name of a layer.
constexpr std::size_t leastShare = 8;

/// "" and the prefixes of up to three parts that at least an eighth of the names share, short ones first.
std::vector<std::string> prefixesOf(const std::vector<std::string_view> &names) {
  std::map<std::string_view, std::size_t> count;
  for (const std::string_view name : names) {
    std::size_t end = 0;
    for (int part = 0; part < maxPrefixParts && (end = name.find('.', end)) != std::string_view::npos; ++part)
      ++count[name.substr(0, ++end)];
  }
  std::vector<std::string> prefixes = {""};
  for (const auto &[prefix, times] : count)
    if (times * leastShare >= names.size())
      prefixes.emplace_back(prefix);
  std::sort(prefixes.begin(), prefixes.end(), [](const std::string &a, const std::string &b) {
    return std::pair(a.size(), std::string_view(a)) < std::pair(b.size(), std::string_view(b));
  });
  return prefixes;
}

/// Names that people give to a model inside of a module that they export.
bool isWrapper(const std::string &prefix) {
  static constexpr std::string_view wrappers[] = {"model.", "module.",  "m.",        "net.",
                                                  "inner.", "wrapped.", "_orig_mod."};
  return std::find(std::begin(wrappers), std::end(wrappers), prefix) != std::end(wrappers);
}

class Matcher {
public:
  Matcher(const ProgramInfo &program, const WeightFiles &files, bool trainedOnly) : files(files) {
    for (const ParameterInfo &parameter : program.parameters) {
      isSought.push_back(parameter.trainable || !trainedOnly);
      names.push_back({parameter.name});
      dims.push_back(dimsOf(parameter.shape));
    }
    for (const OtherNameInfo &other : program.otherNames)
      names[static_cast<std::size_t>(other.parameter)].push_back(other.name);
  }

  WeightNames exact() const { return with("", ""); }
  WeightNames match() const {
    std::vector<std::string_view> own, stored;
    for (const auto &ofParameter : names)
      own.push_back(ofParameter.front());
    for (const StoredTensor &tensor : files.tensors())
      stored.push_back(tensor.name());
    std::vector<WeightNames> best = {exact()};
    std::size_t most = countFound("", "");
    if (most == names.size())
      return best.front();
    const std::vector<std::string> filePrefixes = prefixesOf(stored);
    for (const std::string &programPrefix : prefixesOf(own))
      for (const std::string &filePrefix : filePrefixes) {
        if (!programPrefix.empty() && !filePrefix.empty() && !isWrapper(programPrefix))
          continue;
        const std::size_t found = countFound(programPrefix, filePrefix);
        if (found > most)
          best.clear();
        if (found > most || (found == most && !isPlain(best.front())))
          best.push_back(with(programPrefix, filePrefix));
        most = std::max(found, most);
      }
    for (const WeightNames &other : best)
      if (other.ofParameter != best.front().ofParameter)
        throw Failure(ExitCode::incompatible, files.tensors().front().file->file().path() +
                                                  ": the names of this program fit with the prefix '" +
                                                  best.front().filePrefix + "' and with '" + other.filePrefix +
                                                  "': leave one of both out");
    return best.front();
  }

private:
  static bool isPlain(const WeightNames &names) { return names.programPrefix.empty() && names.filePrefix.empty(); }

  static std::string renamed(std::string_view name, const std::string &programPrefix, const std::string &filePrefix) {
    return name.starts_with(programPrefix) ? filePrefix + std::string(name.substr(programPrefix.size()))
                                           : std::string(name);
  }

  std::size_t countFound(const std::string &programPrefix, const std::string &filePrefix) const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < names.size(); ++i)
      count += std::any_of(names[i].begin(), names[i].end(),
                           [&](std::string_view name) { return find(i, name, programPrefix, filePrefix) != nullptr; });
    return count;
  }

  /// Under one of the names of parameter `i`; null if there is none.
  const StoredTensor *find(std::size_t i, std::string_view name, const std::string &programPrefix,
                           const std::string &filePrefix) const {
    const StoredTensor *const found = isSought[i] ? files.find(renamed(name, programPrefix, filePrefix)) : nullptr;
    const bool isOwn = name.data() == names[i].front().data();
    return found && (isOwn || found->entry->dims == dims[i]) ? found : nullptr;
  }

  WeightNames with(const std::string &programPrefix, const std::string &filePrefix) const {
    WeightNames result{{}, {}, {}, {}, programPrefix, filePrefix};
    std::set<const StoredTensor *> used;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const StoredTensor *first = nullptr;
      for (const std::string_view name : names[i]) {
        const StoredTensor *const found = find(i, name, programPrefix, filePrefix);
        if (!found || !used.insert(found).second)
          continue;
        if (first)
          result.copies.push_back({first, found});
        else
          first = found;
      }
      result.ofParameter.push_back(first);
      result.stored.push_back(first ? first->name() : renamed(names[i].front(), programPrefix, filePrefix));
    }
    for (const StoredTensor &tensor : files.tensors())
      if (!used.contains(&tensor))
        result.extra.push_back(&tensor);
    return result;
  }

  const WeightFiles &files;
  std::vector<std::vector<std::string_view>> names; ///< by parameter, its own first
  std::vector<std::vector<std::int64_t>> dims;      ///< by parameter, as the next
  std::vector<bool> isSought;
};

std::string_view leafOf(std::string_view name) { return name.substr(name.rfind('.') + 1); }

} // namespace

WeightNames matchNames(const ProgramInfo &program, const WeightFiles &files, bool trainedOnly) {
  return Matcher(program, files, trainedOnly).match();
}

WeightNames exactNames(const ProgramInfo &program, const WeightFiles &files) {
  return Matcher(program, files, false).exact();
}

bool isComputedState(const TensorEntry &entry) {
  static constexpr std::string_view leaves[] = {"inv_freq",       "original_inv_freq",   "position_ids",
                                                "token_type_ids", "masked_bias",         "causal_mask",
                                                "attn_mask",      "num_batches_tracked", "relative_position_index"};
  const std::string_view leaf = leafOf(entry.name);
  const std::vector<std::int64_t> &dims = entry.dims;
  // The triangle of ones that GPT-2 keeps as `bias`.
  const bool isTriangle = leaf == "bias" && dims.size() == 4 && dims[0] == 1 && dims[1] == 1 && dims[2] == dims[3];
  return isTriangle || std::find(std::begin(leaves), std::end(leaves), leaf) != std::end(leaves);
}

} // namespace fsdpc::rt
