// Initial values of the state: parameter shards from a safetensors file, optimizer state, scalars.
#pragma once

#include "runtime/common/program.h"
#include "runtime/common/safetensors.h"

#include <functional>
#include <string>
#include <vector>

namespace fsdpc::rt {

enum class WeightsOrigin : std::uint8_t {
  compiled, ///< OUT/weights/model.safetensors: holds the parameters with `inWeightsFile`
  user,     ///< --load_model: holds every parameter, and nothing else
};

/// A weights file that fits the program. Opening it compares names, shapes and element types before anything is
/// touched.
class Weights {
public:
  /// Throws Failure{corrupt} for a bad file, Failure{incompatible} listing what is missing, extra or of another shape.
  Weights(const ProgramInfo &program, const std::string &path, WeightsOrigin origin);

  /// Reads this rank's slices into its shards, and the whole of what is whole here (segments that no axis splits,
  /// replicas). Padding and the parameters that the file does not hold are left alone. `beat` is called now and then:
  /// reading goes on.
  void load(const Context &context, const std::function<void()> &beat = [] {}) const;

private:
  const ProgramInfo &program;
  SafetensorsFile file;
  std::vector<const TensorEntry *> entries; ///< per parameter; null: not in the file
};

/// Draws the initial values of the parameters that no file has (ParameterInfo::initial) where this rank holds them:
/// shards, what is whole here, replicas. They are those of `seed` for every world size and strategy. Nothing of the
/// size of a tensor is allocated. `beat` as above.
void drawInitialValues(
    const ProgramInfo &program, const Context &context, std::uint64_t seed, const std::function<void()> &beat = [] {});

/// Zeroes all parameter shards and replicas and sets every element of the optimizer state to its initial value.
void resetState(const ProgramInfo &program, const Context &context);

} // namespace fsdpc::rt
