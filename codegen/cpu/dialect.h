#pragma once

#include "codegen/common/dialect.h"

namespace fsdpc {

const Dialect &cpuDialect();

} // namespace fsdpc
