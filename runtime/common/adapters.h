// Low-rank adapters (LoRA) outside of the program: a folder that the peft package reads, and weights with the adapters
// merged into them.
#pragma once

#include "runtime/common/model_folder.h"

namespace fsdpc::rt {

/// By parameter: whether it is a factor of an adapter.
std::vector<bool> adapterFactors(const ProgramInfo &program);

/// Writes adapter_model.safetensors and adapter_config.json: the factors, and the other parameters that train, as
/// modules_to_save. `folder.names` are those of the model that peft wraps; `folder.source` becomes
/// base_model_name_or_path. Throws Failure{storage}.
std::unique_ptr<FileTap> adaptersTap(const ProgramInfo &program, const ModelFolder &folder, int rank);

/// Throws Failure{incompatible} if `folder` has an adapter_config.json whose adapters compute something else than the
/// program's: another scale, scales of single modules, DoRA. Failure{corrupt} if that is no JSON.
void requireSameAdapters(const ProgramInfo &program, const std::string &folder);

/// Passes on every parameter but the factors, weights as w + scale * up down, whose sums are f64 and rounded once.
/// Requires: both factors of an adapter are tapped before their weight, each in one call.
std::unique_ptr<FileTap> mergingTap(const ProgramInfo &program, std::unique_ptr<FileTap> merged, int rank);

} // namespace fsdpc::rt
