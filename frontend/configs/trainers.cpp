#include "frontend/configs/translation.h"

namespace fsdpc {

const Trainer *trainerOf(const Setting &root) {
  for (const Trainer *trainer : {&accelerate, &axolotl, &deepSpeed, &torchTitan})
    if (trainer->recognizes(root))
      return trainer;
  return nullptr;
}

llvm::Expected<Adopted> adopt(const Trainer &trainer, const Setting &root, llvm::StringRef path) {
  Translation translation(trainer, path);
  if (llvm::Error error = translation.read(root))
    return error;
  return translation.finish();
}

} // namespace fsdpc
