// `fsdpc report`: logs of runs as one page.
#pragma once

#include "frontend/options/option_schema.h"

namespace fsdpc {

/// fsdpc report LOG.jsonl... -o report.html. Without -o the page is written to stdout.
llvm::Error reportRuns(const OptionValues &values);

} // namespace fsdpc
