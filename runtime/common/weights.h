// Initial values of the state: parameter shards from files of weights, optimizer state, scalars.
#pragma once

#include "runtime/common/weight_names.h"

#include <functional>
#include <string>
#include <vector>

namespace fsdpc::rt {

enum class WeightsOrigin : std::uint8_t {
  compiled, ///< OUT/weights/model.safetensors: has the parameters with `inWeightsFile`
  user,     ///< --load_model: a file or a folder, has exactly the parameters of the program but for adapters
  adapters, ///< --load_adapters: has adapters, and may have other parameters that train
};

/// Weights that match the program. The constructor compares names, shapes and element types before any memory is
/// written.
class Weights {
public:
  /// `partial`: a regular expression for entire names of parameters that may be missing and of tensors that may be
  /// extra; "" for none. Throws Failure{corrupt} for a bad file, Failure{incompatible} listing tensors that are
  /// missing, extra or of another shape, Failure{usage} if `partial` is no expression or matches nothing.
  Weights(const ProgramInfo &program, const std::string &path, WeightsOrigin origin, const std::string &partial = "");

  /// Throws Failure{incompatible} if a parameter is stored under two names with different values. Reads both.
  void requireEqualCopies(const std::function<void()> &beat = [] {}) const;
  /// What was left out or renamed, one sentence each.
  std::vector<std::string> notes() const;
  /// How a folder of such weights calls the parameters.
  const std::vector<std::string> &storedNames() const { return names.stored; }
  /// True if a parameter of the program is not in them.
  bool areIncomplete() const;
  bool has(std::size_t parameter) const { return names.ofParameter[parameter] != nullptr; }
  /// "" unless they were read from a folder.
  const std::string &folder() const { return files.folder(); }

  /// Reads this rank's slices into its shards, and the full tensors into replicated segments and replicas. Leaves
  /// padding and parameters that are not in the file unchanged. `beat` is called repeatedly to report progress.
  void load(const Context &context, const std::function<void()> &beat = [] {}) const;

private:
  void compare(std::size_t parameter, class Complaints &complaints) const;

  const ProgramInfo &program;
  WeightFiles files;
  WeightNames names;
  bool hasNewAdapters = false;          ///< their factors are not in the file
  std::vector<std::string> keptInitial; ///< missing parameters that `partial` allows
  std::vector<std::string> leftOut;     ///< extra tensors that `partial` allows
  std::vector<std::string> computed;    ///< extra tensors: isComputedState
};

/// Draws the initial values of the parameters that OUT/weights does not provide (ParameterInfo::initial) and that are
/// wanted, into the shards, replicated segments and replicas of this rank. They depend on `seed`, not on world size or
/// strategy. No allocation is as large as a tensor. `beat` as above.
void drawInitialValues(
    const ProgramInfo &program, const Context &context, std::uint64_t seed,
    const std::function<bool(std::size_t)> &isWanted = [](std::size_t) { return true; },
    const std::function<void()> &beat = [] {});

/// Zeroes all parameter shards and replicas and sets every element of the optimizer state to its initial value.
void resetState(const ProgramInfo &program, const Context &context);

} // namespace fsdpc::rt
