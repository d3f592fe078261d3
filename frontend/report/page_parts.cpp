#include "frontend/report/page_parts.h"

#include "llvm/Support/MemoryBuffer.h"

namespace fsdpc {

namespace {

llvm::Expected<std::string> readPart(llvm::StringRef folder, llvm::StringRef name) {
  const std::string path = (folder + "/" + name).str();
  auto text = llvm::MemoryBuffer::getFile(path, /*IsText=*/true);
  if (!text)
    return llvm::createStringError(text.getError(), "cannot read " + path + ": " + text.getError().message());
  return (*text)->getBuffer().str();
}

void replaceOnce(std::string &text, llvm::StringRef mark, llvm::StringRef with) {
  const size_t at = text.find(mark.str());
  assert(at != std::string::npos && "the page has this mark");
  text.replace(at, mark.size(), with.str());
}

/// JSON that is safe in a script element: `<` occurs in its strings only, where \u003c is equivalent.
std::string forScript(const std::string &text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text)
    out += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return out;
}

} // namespace

llvm::Expected<std::string> assemblePage(llvm::StringRef resources, llvm::StringRef folder,
                                         llvm::ArrayRef<llvm::StringRef> parts, llvm::ArrayRef<PageData> data) {
  const std::string source = (resources + "/frontend/report/" + folder).str();
  llvm::Expected<std::string> page = readPart(source, "page.html");
  if (!page)
    return page.takeError();
  // The parts are inserted first: their text holds no marks, the data may.
  for (llvm::StringRef name : parts) {
    llvm::Expected<std::string> part = readPart(source, name);
    if (!part)
      return part.takeError();
    if (name.ends_with(".css"))
      replaceOnce(*page, ("<link rel=\"stylesheet\" href=\"" + name + "\">").str(), "<style>\n" + *part + "</style>");
    else
      replaceOnce(*page, ("<script src=\"" + name + "\"></script>").str(), "<script>\n" + *part + "</script>");
  }
  for (const PageData &entry : data)
    replaceOnce(*page, (">" + entry.mark + "<").str(), ">" + forScript(entry.json) + "<");
  return page;
}

} // namespace fsdpc
