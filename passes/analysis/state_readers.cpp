#include "passes/analysis/state_readers.h"

#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "ir/queries.h"

namespace fsdpc {

llvm::StringMap<Node *> lastReaders(const Function &function) {
  llvm::StringMap<Node *> last;
  for (Node *node : function) {
    if (node->op() != Op::read)
      continue;
    Node *&reader = last[node->get<StateAttributes>().state.name];
    llvm::SmallVector<Value *, 8> names = {node->result()};
    while (!names.empty())
      for (Use *use = names.pop_back_val()->uses(); use; use = use->next()) {
        Node *user = use->user();
        if (infoOf(*user).has(aliasesOperand))
          names.push_back(user->result());
        else
          reader = laterOf(reader, infoOf(*user).has(startsTransfer) ? waitOf(*user) : user);
      }
  }
  return last;
}

} // namespace fsdpc
