#pragma once

#include "codegen/common/dialect.h"

namespace fsdpc {

const Dialect &cudaDialect();

} // namespace fsdpc
