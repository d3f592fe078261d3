// An ONNX model whose parameters are in a data file next to it, as --save_onnx and the checkpoint tool write them.
#pragma once

#include "runtime/common/program.h"

#include <string>

namespace fsdpc::rt {

/// The data file of the model `path`: F.onnx.data for F.onnx.
std::string onnxDataPath(const std::string &path);
/// "b" of "a/b".
std::string fileNameOf(const std::string &path);

/// The bytes of a serialized model in which every initializer that has its values in the file `from` has them in `to`.
/// Everything else is unchanged. Throws Failure{corrupt} naming `where` if the bytes are no model.
std::string withDataFile(std::string_view model, const std::string &from, const std::string &to,
                         const std::string &where);

/// Throws Failure{storage} if `path` or its data file cannot be written; Failure{usage} if the program was compiled
/// without the model.
void requireOnnxWritable(const ProgramInfo &program, const std::string &path);

} // namespace fsdpc::rt
