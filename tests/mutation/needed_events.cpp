#include "tests/mutation/needed_events.h"

#include "ir/text/text.h"
#include "passes/check/event_order.h"
#include "tests/mutation/mutators.h"
#include "llvm/Support/raw_ostream.h"

namespace fsdpc::mutation {

NeededEvents countNeeded(llvm::StringRef name, llvm::StringRef text) {
  NeededEvents events;
  for (auto *dropAt : {dropEventAt, dropDeviceWaitAt})
    for (size_t which = 0;; ++which) {
      std::unique_ptr<Module> mutant = llvm::cantFail(parse(llvm::MemoryBufferRef(text, name)));
      std::optional<std::string> what = dropAt(*mutant, which);
      if (!what)
        break;
      ++events.all;
      if (llvm::errorToBool(check::checkEvents(*mutant)))
        continue;
      ++events.superfluous;
      llvm::outs() << "SUPERFLUOUS in " << name << ": " << *what << "\n";
    }
  return events;
}

} // namespace fsdpc::mutation
