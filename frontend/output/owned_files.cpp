#include "frontend/output/owned_files.h"

#include "ir/read_json.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include <algorithm>

namespace fsdpc {

namespace {

constexpr llvm::StringLiteral schema = "fsdpc.files/1";
constexpr llvm::StringLiteral program = "train";

llvm::Error fileError(const llvm::Twine &path, std::error_code code) {
  return llvm::createStringError(path + ": " + code.message());
}

std::string below(llvm::StringRef folder, llvm::StringRef name) { return (folder + "/" + name).str(); }

/// The list may be from an untrusted source. A name that leads out of the folder makes it invalid.
bool staysInside(llvm::StringRef name) {
  return !name.empty() && !llvm::sys::path::is_absolute(name) &&
         llvm::none_of(llvm::make_range(llvm::sys::path::begin(name), llvm::sys::path::end(name)),
                       [](llvm::StringRef part) { return part == ".." || part == "."; });
}

std::optional<std::set<std::string>> readList(llvm::StringRef folder) {
  auto buffer = llvm::MemoryBuffer::getFile(below(folder, ownedFilesName));
  if (!buffer)
    return std::nullopt;
  llvm::Expected<llvm::json::Value> value = readJson((*buffer)->getBuffer());
  if (!value) {
    llvm::consumeError(value.takeError());
    return std::nullopt;
  }
  const llvm::json::Object *object = value->getAsObject();
  const llvm::json::Array *names = object ? object->getArray("files") : nullptr;
  if (!names || object->getString("schema") != schema)
    return std::nullopt;
  std::set<std::string> files;
  for (const llvm::json::Value &entry : *names) {
    std::optional<llvm::StringRef> name = entry.getAsString();
    if (!name || !staysInside(*name))
      return std::nullopt;
    files.insert(name->str());
  }
  return files;
}

/// Calls visit(relative path, isFolder) for everything below `folder`. Its result decides whether a folder is entered.
/// Links are not folders.
template <class Visit>
llvm::Error walk(llvm::StringRef folder, Visit visit) {
  std::error_code code;
  llvm::sys::fs::recursive_directory_iterator entry(folder, code, /*follow_symlinks=*/false), end;
  for (; entry != end && !code; entry.increment(code)) {
    llvm::StringRef name = llvm::StringRef(entry->path()).drop_front(folder.size() + 1);
    const bool isFolder =
        llvm::sys::fs::get_file_type(entry->path(), /*Follow=*/false) == llvm::sys::fs::file_type::directory_file;
    if (!visit(name, isFolder) && isFolder)
      entry.no_push();
  }
  return code ? fileError(folder, code) : llvm::Error::success();
}

/// The folders that contain one of the files.
std::set<std::string> foldersOf(const std::set<std::string> &files) {
  std::set<std::string> folders;
  for (llvm::StringRef name : files)
    while (!(name = llvm::sys::path::parent_path(name)).empty() && folders.insert(name.str()).second)
      ;
  return folders;
}

/// Renames that can be undone, with the folders they need.
class Renames {
public:
  ~Renames() { // undoes renames that were not kept
    for (const auto &[from, to] : llvm::reverse(done))
      llvm::sys::fs::rename(to, from);
    for (const std::string &folder : llvm::reverse(made))
      llvm::sys::fs::remove(folder);
  }
  llvm::Error rename(const std::string &from, const std::string &to) {
    if (llvm::Error error = makeFolder(llvm::sys::path::parent_path(to)))
      return error;
    if (std::error_code code = llvm::sys::fs::rename(from, to))
      return fileError(to, code);
    done.emplace_back(from, to);
    return llvm::Error::success();
  }
  void keep() {
    done.clear();
    made.clear();
  }

private:
  llvm::Error makeFolder(llvm::StringRef path) {
    if (path.empty() || llvm::sys::fs::exists(path))
      return llvm::Error::success();
    if (llvm::Error error = makeFolder(llvm::sys::path::parent_path(path)))
      return error;
    if (std::error_code code = llvm::sys::fs::create_directory(path, true, llvm::sys::fs::all_all))
      return fileError(path, code);
    made.push_back(path.str());
    return llvm::Error::success();
  }

  std::vector<std::pair<std::string, std::string>> done;
  std::vector<std::string> made;
};

/// The order in which files are moved in: the list first, the program last.
std::vector<std::string> orderedForArrival(const std::set<std::string> &files) {
  auto rank = [](const std::string &name) { return name == ownedFilesName ? 0 : name == program ? 2 : 1; };
  std::vector<std::string> ordered(files.begin(), files.end());
  llvm::stable_sort(ordered, [&](const std::string &a, const std::string &b) { return rank(a) < rank(b); });
  return ordered;
}

} // namespace

llvm::Expected<FolderContent> contentOf(llvm::StringRef folder, llvm::StringRef skipped) {
  FolderContent content;
  if (!llvm::sys::fs::exists(folder))
    return content;
  content.exists = true;
  std::optional<std::set<std::string>> listed = readList(folder);
  content.isOutput = listed.has_value();
  const std::set<std::string> names = listed.value_or(std::set<std::string>());
  const std::set<std::string> folders = foldersOf(names);
  llvm::Error error = walk(folder, [&](llvm::StringRef name, bool isFolder) {
    if (!skipped.empty() && below(folder, name) == skipped)
      return false;
    const bool mayHoldOwned = isFolder && folders.contains(name.str());
    if (!isFolder && names.contains(name.str()))
      content.owned.insert(name.str());
    else if (!mayHoldOwned)
      content.foreign.insert(name.str());
    return mayHoldOwned;
  });
  if (error)
    return error;
  return content;
}

llvm::Expected<std::set<std::string>> filesBelow(llvm::StringRef folder) {
  std::set<std::string> files;
  llvm::Error error = walk(folder, [&](llvm::StringRef name, bool isFolder) {
    if (!isFolder)
      files.insert(name.str());
    return true;
  });
  if (error)
    return error;
  return files;
}

std::string ownedFilesText(const std::set<std::string> &files) {
  llvm::json::Object object{{"schema", schema}, {"files", llvm::json::Array(files)}};
  return llvm::formatv("{0:2}\n", llvm::json::Value(std::move(object))).str();
}

std::string collision(llvm::StringRef folder, const FolderContent &content, const std::set<std::string> &files) {
  auto typeOf = [&](const std::string &name) {
    llvm::sys::fs::file_status status;
    llvm::sys::fs::status(below(folder, name), status, /*Follow=*/false);
    return status.type();
  };
  for (const std::string &name : foldersOf(files)) {
    const llvm::sys::fs::file_type type = typeOf(name);
    const bool isFree = type == llvm::sys::fs::file_type::file_not_found || content.owned.contains(name);
    if (!isFree && type != llvm::sys::fs::file_type::directory_file)
      return name;
  }
  for (const std::string &name : files)
    if (!content.owned.contains(name) && typeOf(name) != llvm::sys::fs::file_type::file_not_found)
      return name;
  return "";
}

void removeOwned(llvm::StringRef folder, const std::set<std::string> &files) {
  for (const std::string &name : files)
    llvm::sys::fs::remove(below(folder, name));
  const std::set<std::string> folders = foldersOf(files);
  for (const std::string &name : llvm::reverse(folders)) // a folder's name sorts before the names in it
    llvm::sys::fs::remove(below(folder, name));
  llvm::sys::fs::remove(folder); // only where it is empty
}

llvm::Error replaceFiles(llvm::StringRef from, const std::set<std::string> &files, llvm::StringRef to,
                         const FolderContent &content) {
  const std::string old = (from + "/replaced").str();
  Renames renames;
  std::set<std::string> moved;
  auto takeOut = [&](const std::string &name) {
    moved.insert(name);
    return renames.rename(below(to, name), below(old, name));
  };
  std::vector<std::string> leaving = orderedForArrival(content.owned);
  for (const std::string &name : llvm::reverse(leaving))
    if (llvm::Error error = takeOut(name))
      return error;
  for (const std::string &name : orderedForArrival(files))
    if (llvm::Error error = renames.rename(below(from, name), below(to, name)))
      return error;
  renames.keep();
  removeOwned(old, moved);
  const std::set<std::string> folders = foldersOf(content.owned);
  for (const std::string &name : llvm::reverse(folders))
    llvm::sys::fs::remove(below(to, name));
  removeOwned(from, files);
  return llvm::Error::success();
}

} // namespace fsdpc
