// The parameters of a model, and the roles of its other initializers.
#pragma once

#include "frontend/onnx/classify.h"
#include "frontend/onnx/repair.h"

namespace fsdpc {

struct RecoveredParameters {
  std::vector<Parameter> parameters;     ///< in the order of their first use
  std::vector<std::string> origins;      ///< per parameter: how it is known to be one
  std::vector<InitializerRole> roles;    ///< of all initializers of the repaired graph, by position
  llvm::StringMap<size_t> byInitializer; ///< position in `parameters`
};

/// Repairs the graph (repair.h, options.ties) and lists the trained parameters. Errors: an invalid regular expression
/// or one that matches nothing, a parameter that is both trainable and frozen, a tie of parameters of different shapes.
llvm::Expected<RecoveredParameters> recoverParameters(const Repair &repair);

} // namespace fsdpc
