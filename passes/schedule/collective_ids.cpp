#include "passes/schedule/collective_ids.h"

#include "ir/op.h"
#include "ir/ops/attributes.h"

namespace fsdpc {

void numberCollectives(Module &module) {
  int64_t next = 0;
  for (const std::unique_ptr<Function> &function : module.functions)
    for (Node *node : *function)
      if (startsCollective(*node))
        node->get<CollectiveAttributes>().id = next++;
}

} // namespace fsdpc
