// Pages of several files in one file, with their data.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <string>

namespace fsdpc {

/// JSON in place of a mark: MARK in `<script id="..." type="application/json">MARK</script>`.
struct PageData {
  llvm::StringRef mark;
  std::string json;
};

/// `page.html` of the folder, with the style sheets and scripts that it links and the data in it. `resources`:
/// Installation::resources; `folder`: below frontend/report there.
llvm::Expected<std::string> assemblePage(llvm::StringRef resources, llvm::StringRef folder,
                                         llvm::ArrayRef<llvm::StringRef> parts, llvm::ArrayRef<PageData> data);

} // namespace fsdpc
