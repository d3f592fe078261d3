// Which tensor of a file is which parameter, where the names are not quite the same.
#pragma once

#include "runtime/common/program.h"
#include "runtime/common/weight_files.h"

namespace fsdpc::rt {

/// The tensors of the parameters. Names match after the program's names have lost `programPrefix` and got `filePrefix`:
/// wrappers (`module.`, `model.`) and the name of a base model (`bert.`) come and go. Only the prefix of
/// a wrapper is replaced by another one: `encoder.` never becomes `decoder.`. Of all prefixes that many names share,
/// those with which most parameters are found are taken, none before others. Another name of a parameter counts only
/// for a tensor of its shape.
struct WeightNames {
  std::vector<const StoredTensor *> ofParameter; ///< null: not found
  std::vector<std::string> stored;               ///< the name of each parameter in such files, found or not
  /// Tensors under a second name of a parameter: it is stored twice.
  std::vector<std::pair<const StoredTensor *, const StoredTensor *>> copies;
  std::vector<const StoredTensor *> extra; ///< found for no parameter
  std::string programPrefix, filePrefix;
};

/// Throws Failure{incompatible} if two prefixes fit equally well and give other tensors: `encoder.` and `decoder.`.
/// `trainedOnly`: the others are not looked for, as in files of adapters.
WeightNames matchNames(const ProgramInfo &program, const WeightFiles &files, bool trainedOnly = false);
/// Without prefixes: of a file that the compiler wrote, which may lack parameters.
WeightNames exactNames(const ProgramInfo &program, const WeightFiles &files);

/// True for state that modules store although they compute it: positions, masks, frequencies, counts of batches.
bool isComputedState(const TensorEntry &entry);

} // namespace fsdpc::rt
