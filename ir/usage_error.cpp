#include "ir/usage_error.h"

namespace fsdpc {

char UsageError::ID = 0;

} // namespace fsdpc
