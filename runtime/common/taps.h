// Destinations of the full tensors that a program exports one by one: a safetensors file, or the external data of an
// ONNX model.
//
// Taps exist on every rank, since every rank calls them; only rank 0 opens and writes files. The file appears under its
// name at `finish`; its space is reserved from the beginning, and is free again if the process is killed before
// (gradients have a temporary name until then). Throws Failure{storage}.
#pragma once

#include "runtime/common/safetensors.h"

#include <memory>

namespace fsdpc::rt {

class FileTap : public Tap {
public:
  using Tap::Tap;
  virtual void finish() = 0;
};

/// Full weights and buffers under the names of the parameters, as one file. `leftOut`: by parameter; empty: none.
std::unique_ptr<FileTap> weightsTap(const ProgramInfo &program, const std::string &path, int rank,
                                    const std::vector<bool> &leftOut = {});

/// Gradients of the trainable parameters as `grad.<name>`. A parameter the loss does not depend on has the gradient 0.
std::unique_ptr<FileTap> gradientsTap(const ProgramInfo &program, const std::string &path, int rank);

/// Writes `path`, a copy of `outDirectory`/model.onnx that names onnxDataPath(path) as its data file, and that file.
/// Either both appear or neither.
std::unique_ptr<FileTap> onnxTap(const ProgramInfo &program, const std::string &path, const std::string &outDirectory,
                                 int rank);

/// Copies `parameter` (row-major in its own shape) to `file` at its onnxOffsetBytes, dims permuted as the model
/// expects.
void writePermuted(OutputFile &file, const ParameterInfo &parameter, const std::byte *data);

} // namespace fsdpc::rt
