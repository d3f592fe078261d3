#include "frontend/configs/translation.h"

#include "llvm/ADT/StringExtras.h"

namespace fsdpc {

KeyTable::KeyTable(std::initializer_list<llvm::ArrayRef<KeyRow>> lists, llvm::ArrayRef<KeyGroup> groups) {
  for (llvm::ArrayRef<KeyRow> list : lists)
    llvm::append_range(all, list);
  for (const KeyGroup &group : groups)
    for (llvm::StringRef key : llvm::split(group.keys, ' ')) {
      all.push_back(group.row);
      all.back().key = names.emplace_back(keyIn(group.row.key, key));
    }
}

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
