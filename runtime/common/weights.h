// Initial values of the state: parameter shards from a safetensors file, optimizer state, scalars.
#pragma once

#include "runtime/common/program.h"
#include "runtime/common/safetensors.h"

#include <functional>
#include <string>
#include <vector>

namespace fsdpc::rt {

enum class WeightsOrigin : std::uint8_t {
  compiled, ///< OUT/weights/model.safetensors: has the parameters with `inWeightsFile`
  user,     ///< --load_model: has exactly the parameters of the program
};

/// A weights file that matches the program. The constructor compares names, shapes and element types before any memory
/// is written.
class Weights {
public:
  /// Throws Failure{corrupt} for a bad file, and Failure{incompatible} listing tensors that are missing, extra or of
  /// another shape.
  Weights(const ProgramInfo &program, const std::string &path, WeightsOrigin origin);

  /// Reads this rank's slices into its shards, and the full tensors into replicated segments and replicas. Leaves
  /// padding and parameters that are not in the file unchanged. `beat` is called repeatedly to report progress.
  void load(const Context &context, const std::function<void()> &beat = [] {}) const;

private:
  const ProgramInfo &program;
  SafetensorsFile file;
  std::vector<const TensorEntry *> entries; ///< per parameter; null: not in the file
};

/// Draws the initial values of the parameters that no file provides (ParameterInfo::initial), into the shards,
/// replicated segments and replicas of this rank. They depend on `seed`, not on world size or strategy. No allocation
/// is as large as a tensor. `beat` as above.
void drawInitialValues(
    const ProgramInfo &program, const Context &context, std::uint64_t seed, const std::function<void()> &beat = [] {});

/// Zeroes all parameter shards and replicas and sets every element of the optimizer state to its initial value.
void resetState(const ProgramInfo &program, const Context &context);

} // namespace fsdpc::rt
