// How parameters start: TrainingInfoProto.initialization, and what --init makes of it.
//
// A model's training info may hold graphs whose outputs are what initializers are to be set to before training. Of such
// a graph these nodes are understood: RandomNormal, RandomUniform, both ...Like, ConstantOfShape, Constant, Identity,
// and initializers of its own. Seeds of nodes are not: --seed decides.
#pragma once

#include "ir/attributes.h"
#include "ir/module.h"
#include "onnx/onnx_pb.h"
#include "llvm/Support/Error.h"

namespace fsdpc {

class OnnxModel;
struct Repair;

/// What training info says of one initializer: numbers to draw, or values, or why it cannot be told.
struct StatedStart {
  std::optional<InitialValues> drawn;
  onnx::TensorProto values; ///< where nothing is drawn
  Shape shape;
  std::string fault; ///< names node and op; the rest means nothing then
};

/// Fills OnnxModel::statedStarts. What is not understood is a fault of the initializer that it is bound to; an error
/// is a file that cannot be read.
llvm::Error readTrainingInfo(OnnxModel &model);

/// Gives parameters their start as ImportOptions::init says; hasValue must say whether the file has values. Values that
/// training info holds take the place of the initializer's. Errors: a fault of a parameter whose start was asked for, a
/// shape or type that is not the initializer's.
llvm::Error chooseInitialValues(const Repair &repair, llvm::MutableArrayRef<Parameter> parameters);

} // namespace fsdpc
