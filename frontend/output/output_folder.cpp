#include "frontend/output/output_folder.h"

#include "frontend/options/option_schema.h"
#include "frontend/output/interrupted_folder.h"
#include "frontend/output/owned_files.h"
#include "ir/text/text.h"
#include "ir/write_file.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fsdpc {

namespace {

llvm::Error fileError(llvm::StringRef path, std::error_code code) {
  return llvm::createStringError(path + ": " + llvm::Twine(code.message()));
}

llvm::Error refusal(llvm::StringRef path, const llvm::Twine &why) {
  return llvm::make_error<UsageError>(("-o " + path + ": " + why).str());
}

/// The absolute path, with links resolved as far as it exists.
llvm::Expected<std::string> realTarget(llvm::StringRef path) {
  llvm::SmallString<128> target(path), resolved;
  while (target.size() > 1 && target.back() == '/')
    target.pop_back();
  if (!llvm::sys::fs::real_path(target, resolved))
    return llvm::sys::fs::is_directory(resolved) ? llvm::Expected<std::string>(resolved.str().str())
                                                 : refusal(path, "exists and is not a folder");
  if (llvm::sys::fs::is_symlink_file(target))
    return refusal(path, "is a link to nothing");
  if (std::error_code code = llvm::sys::fs::make_absolute(target))
    return fileError(path, code);
  return target.str().str();
}

/// A running program holds a lock on its executable (runtime/common/folder_lease.h). While this object holds the lock,
/// no program starts.
class ProgramLock {
public:
  explicit ProgramLock(const std::string &folder) {
    file = ::open((folder + "/train").c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    runs = file >= 0 && ::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  }
  ~ProgramLock() {
    if (file >= 0)
      ::close(file);
  }
  ProgramLock(const ProgramLock &) = delete;
  ProgramLock &operator=(const ProgramLock &) = delete;
  bool runs = false;

private:
  int file = -1;
};

/// Checks the content of the folder, whatever will be written there.
llvm::Error checkContent(llvm::StringRef path, llvm::StringRef target, const FolderContent &content) {
  if (!content.exists || (content.owned.empty() && content.foreign.empty()))
    return llvm::Error::success();
  if (!content.isOutput)
    return refusal(path, "fsdpc did not write this folder (" + ownedFilesName +
                             " would list what it wrote), and it "
                             "holds " +
                             *content.foreign.begin() + "; give a folder that is absent or empty");
  if (content.foreign.contains(modelDataName.str()))
    return refusal(path, modelDataName +
                             " in it holds weights that a program saved, and the new model.onnx would be "
                             "read with them; move it away together with its model, or give another folder");
  return llvm::Error::success();
}

llvm::Error checkInput(llvm::StringRef path, llvm::StringRef target, const FolderContent &content,
                       llvm::StringRef input) {
  llvm::sys::fs::UniqueID id, own;
  if (llvm::sys::fs::getUniqueID(input, id))
    return llvm::Error::success(); // the importer reports an absent input
  for (const std::string &name : content.owned)
    if (!llvm::sys::fs::getUniqueID(target + llvm::Twine("/") + name, own) && own == id)
      return refusal(path, "the input " + input +
                               " is a file of this output and would be replaced; give another "
                               "folder");
  return llvm::Error::success();
}

bool isMountedOrReadOnlyBeside(const std::string &target) {
  struct stat own{}, parent{};
  const std::string folder = llvm::sys::path::parent_path(target).str();
  return ::stat(target.c_str(), &own) == 0 && ::stat(folder.c_str(), &parent) == 0 &&
         (own.st_dev != parent.st_dev || ::access(folder.c_str(), W_OK | X_OK) != 0);
}

/// Returns whether this process, and so perhaps the shell that started it, has its current directory in the folder.
bool isCurrent(llvm::StringRef target) {
  llvm::SmallString<128> current, resolved;
  if (llvm::sys::fs::current_path(current) || llvm::sys::fs::real_path(current, resolved))
    return false;
  return resolved == target || resolved.str().starts_with((target + "/").str());
}

/// Exchanges the folders by one rename, if owner and group stay the same.
bool exchangeFolders(const std::string &working, const std::string &target) {
  struct stat fresh{}, old{};
  if (::stat(working.c_str(), &fresh) != 0 || ::stat(target.c_str(), &old) != 0 || fresh.st_uid != old.st_uid ||
      fresh.st_gid != old.st_gid || ::chmod(working.c_str(), old.st_mode & 07777) != 0)
    return false;
  return ::renameat2(AT_FDCWD, working.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0;
}

/// While it exists, nothing but SIGKILL stops this thread.
class Uninterrupted {
public:
  Uninterrupted() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
  }
  ~Uninterrupted() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }

private:
  sigset_t before;
};

} // namespace

llvm::Error OutputFolder::check(llvm::StringRef path, llvm::StringRef input) {
  llvm::Expected<std::string> target = realTarget(path);
  if (!target)
    return target.takeError();
  llvm::Expected<FolderContent> content = contentOf(*target);
  if (!content)
    return content.takeError();
  if (llvm::Error error = checkContent(path, *target, *content))
    return error;
  if (llvm::Error error = checkInput(path, *target, *content, input))
    return error;
  return ProgramLock(*target).runs ? refusal(path, "a program runs from this folder; wait for its end, or give another")
                                   : llvm::Error::success();
}

llvm::Expected<OutputFolder> OutputFolder::create(llvm::StringRef path, llvm::StringRef input) {
  if (llvm::Error error = check(path, input))
    return error;
  llvm::Expected<std::string> target = realTarget(path);
  if (!target)
    return target.takeError();
  std::string working = (*target + (isMountedOrReadOnlyBeside(*target) ? "/" : "") + ".partial-" +
                         llvm::Twine(llvm::sys::Process::getProcessId()))
                            .str();
  if (std::error_code code = llvm::sys::fs::create_directories(working, true, llvm::sys::fs::all_all))
    return fileError(working, code);
  return OutputFolder(path.str(), *target, working);
}

OutputFolder::OutputFolder(std::string shown, std::string target, std::string working)
    : shown(std::move(shown)), target(std::move(target)), working(std::move(working)) {
  removeWhenInterrupted(this->working);
}

OutputFolder::OutputFolder(OutputFolder &&other)
    : shown(std::move(other.shown)), target(std::move(other.target)), working(std::move(other.working)) {
  other.working.clear();
}

OutputFolder::~OutputFolder() {
  if (working.empty())
    return;
  llvm::sys::fs::remove_directories(working);
  removeWhenInterrupted("");
}

llvm::Expected<std::string> OutputFolder::pathOf(llvm::StringRef name) const {
  llvm::SmallString<128> path(working);
  llvm::sys::path::append(path, name);
  if (std::error_code code =
          llvm::sys::fs::create_directories(llvm::sys::path::parent_path(path), true, llvm::sys::fs::all_all))
    return fileError(path, code);
  return path.str().str();
}

llvm::Error OutputFolder::write(llvm::StringRef name, llvm::StringRef text) {
  llvm::Expected<std::string> path = pathOf(name);
  if (!path)
    return path.takeError();
  return writeFile(*path, text);
}

llvm::Error OutputFolder::copyFrom(llvm::StringRef sourceTree, llvm::StringRef relativePath) {
  llvm::Expected<std::string> path = pathOf(relativePath);
  if (!path)
    return path.takeError();
  llvm::SmallString<128> source(sourceTree);
  llvm::sys::path::append(source, relativePath);
  if (std::error_code code = llvm::sys::fs::copy_file(source, *path))
    return fileError(source, code);
  return llvm::Error::success();
}

llvm::Error OutputFolder::commit() {
  llvm::Expected<std::set<std::string>> files = filesBelow(working);
  if (!files)
    return files.takeError();
  files->insert(ownedFilesName.str());
  std::set<std::string> listed = *files;
  listed.insert("train"); // a build of the source by hand puts it there
  if (llvm::Error error = write(ownedFilesName, ownedFilesText(listed)))
    return error;
  const Uninterrupted uninterrupted;
  const ProgramLock lock(target);
  llvm::Expected<FolderContent> content = contentOf(target, working);
  if (!content)
    return content.takeError();
  if (llvm::Error error = checkContent(shown, target, *content))
    return error;
  if (lock.runs)
    return refusal(shown, "a program was started from this folder meanwhile");
  if (!content->exists) {
    if (std::error_code code = llvm::sys::fs::rename(working, target))
      return fileError(target, code);
  } else if (std::string name = collision(target, *content, *files); !name.empty()) {
    return refusal(shown, name + " in it is not fsdpc's, and the new output has a file there; move it away");
  } else if (content->isOutput && content->foreign.empty() && !isCurrent(target) && exchangeFolders(working, target)) {
    removeOwned(working, content->owned);
  } else if (llvm::Error error = replaceFiles(working, *files, target, *content)) {
    return error;
  }
  removeWhenInterrupted("");
  working.clear();
  return llvm::Error::success();
}

llvm::Error writeText(llvm::StringRef path, llvm::StringRef text) {
  if (path.empty() || path == "-") {
    llvm::outs() << text;
    return llvm::Error::success();
  }
  return writeFile(path, text);
}

llvm::Error writeText(llvm::StringRef path, const Module &module) {
  return path.empty() || path == "-" ? writeText(path, toText(module)) : writeModule(module, path);
}

} // namespace fsdpc
