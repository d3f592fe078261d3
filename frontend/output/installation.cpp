#include "frontend/output/installation.h"

#include "ir/read_json.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

namespace fsdpc {

namespace {

namespace path = llvm::sys::path;

/// The folder of toolchains.json.
std::string settingsFolder() {
  // The address is needed to find this program where there is no /proc.
  llvm::SmallString<256> folder(llvm::sys::fs::getMainExecutable("fsdpc", reinterpret_cast<void *>(&installation)));
  path::remove_filename(folder);
  llvm::SmallString<256> installed(folder);
  path::append(installed, "..", "share", "fsdpc");
  path::remove_dots(installed, /*remove_dot_dot=*/true);
  llvm::SmallString<256> file(installed);
  path::append(file, "toolchains.json");
  return (llvm::sys::fs::exists(file) ? installed : folder).str().str();
}

class SettingsReader {
public:
  explicit SettingsReader(std::string folder) : folder(std::move(folder)) {}

  llvm::Expected<Installation> read() {
    const std::string file = folder + "/toolchains.json";
    auto buffer = llvm::MemoryBuffer::getFile(file, /*IsText=*/true);
    if (!buffer)
      return llvm::createStringError("cannot read " + file +
                                     ", which belongs to this fsdpc: " + buffer.getError().message());
    llvm::Expected<llvm::json::Value> value = readJson((*buffer)->getBuffer());
    if (!value)
      return llvm::createStringError(file + ": " + toString(value.takeError()));
    const llvm::json::Object *object = value->getAsObject();
    const llvm::json::Object *kinds = object ? object->getObject("toolchains") : nullptr;
    if (!kinds)
      return llvm::createStringError(file + ": it has no toolchains");
    Installation result;
    result.resources = text(*object, "resources");
    result.calibration = text(*object, "calibration");
    result.checkpoint = text(*object, "checkpoint");
    for (const auto &[kind, entry] : *kinds)
      if (const llvm::json::Object *toolchain = entry.getAsObject())
        result.toolchains[kind.str()] = {text(*toolchain, "compiler"),   texts(*toolchain, "flags"),
                                         texts(*toolchain, "libraries"), texts(*toolchain, "link_flags"),
                                         texts(*toolchain, "v4_flags"),  text(*toolchain, "v4_kernels"),
                                         text(*toolchain, "objcopy")};
    return result;
  }

private:
  std::string atHome(llvm::StringRef text) const {
    auto [before, after] = text.split("{here}");
    return text.contains("{here}") ? (before + folder + after).str() : text.str();
  }
  std::string text(const llvm::json::Object &object, llvm::StringRef key) const {
    return atHome(object.getString(key).value_or(""));
  }
  /// An empty text is CMake's spelling of an empty list.
  std::vector<std::string> texts(const llvm::json::Object &object, llvm::StringRef key) const {
    std::vector<std::string> result;
    if (const llvm::json::Array *array = object.getArray(key))
      for (const llvm::json::Value &value : *array)
        if (std::optional<llvm::StringRef> one = value.getAsString(); one && !one->empty())
          result.push_back(atHome(*one));
    return result;
  }

  const std::string folder;
};

} // namespace

llvm::Expected<const Installation &> installation() {
  static std::string problem;
  static const Installation found = [] {
    llvm::Expected<Installation> read = SettingsReader(settingsFolder()).read();
    if (!read)
      problem = toString(read.takeError());
    return read ? std::move(*read) : Installation();
  }();
  if (!problem.empty())
    return llvm::createStringError(problem);
  return found;
}

} // namespace fsdpc
