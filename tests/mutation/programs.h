// The programs to mutate: fixtures under every strategy, on 2 and 4 ranks.
#pragma once

#include "ir/module.h"

namespace fsdpc::mutation {

struct Program {
  std::string name; ///< "mlp N=2 full_shard"
  std::unique_ptr<Module> train, planned;
  std::string text;       ///< of `planned`
  bool isSmall = false;   ///< the machine runs it many times per second
  bool hasEvents = false; ///< for a device, where events order the streams
};

/// Compiles all programs. Ends the process if one does not compile.
std::vector<Program> compilePrograms();

} // namespace fsdpc::mutation
