// `fsdp_config`, which Accelerate and Axolotl have in common.
#pragma once

#include "frontend/configs/translation.h"

namespace fsdpc {

/// The rows of the section. Keys have no `fsdp_` in front of them.
llvm::ArrayRef<KeyRow> fsdpRows();

/// "fsdp_config.sharding_strategy" for "fsdp_config.fsdp_sharding_strategy", and the one name for keys that have
/// several. Other keys stay.
std::string canonicalFsdpKey(llvm::StringRef key);

/// Ranks, as far as the file says.
struct RanksOfFile {
  std::optional<int64_t> all, perMachine;
  int64_t replicateDegree = 1;            ///< replicas, which FSDP shards within
  int64_t shardDegree = 1;                ///< ranks of one replica, if there are several
  llvm::StringRef replicateKey, shardKey; ///< that say so
  std::string listedStrategy; ///< of Axolotl's `fsdp`, for a section without one; "" if that has none either
};

/// What the keys of the section mean together: strategy, units, order of communication.
void combineFsdp(Translation &translation, const RanksOfFile &ranks);

/// torch.amp.GradScaler's constants, which are not those of fsdpc.
void useTorchGradScaler(Translation &translation, llvm::StringRef key);

} // namespace fsdpc
