// How parameters are initialized: TrainingInfoProto.initialization and --init.
//
// A model's training info may hold graphs that compute the start values of initializers. Supported in such a graph are
// RandomNormal, RandomUniform, both ...Like, ConstantOfShape, Constant, Identity, and the graph's own initializers.
// Seeds of nodes are ignored in favour of --seed.
#pragma once

#include "ir/attributes.h"
#include "ir/module.h"
#include "onnx/onnx_pb.h"
#include "llvm/Support/Error.h"

namespace fsdpc {

class OnnxModel;
struct Repair;

/// The start that training info gives one initializer: a distribution, or values, or the reason why neither can be
/// read.
struct StatedStart {
  std::optional<InitialValues> drawn;
  onnx::TensorProto values; ///< if nothing is drawn
  Shape shape;
  std::string fault; ///< names node and op; if set, the other fields are meaningless
};

/// Fills OnnxModel::statedStarts. An initialization that is not understood is recorded as an error of the initializer
/// that it is bound to. Error: a file that cannot be read.
llvm::Error readTrainingInfo(OnnxModel &model);

/// Sets the start of parameters as ImportOptions::init specifies. Requires hasValue to tell whether the file has
/// values. Values from training info replace the initializer's. Errors: an initialization that is not understood, for a
/// parameter whose start is requested, a shape or type that is not the initializer's.
llvm::Error chooseInitialValues(const Repair &repair, llvm::MutableArrayRef<Parameter> parameters);

} // namespace fsdpc
