#include "frontend/tools/run.h"

#include "frontend/compilation/program_target.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/Regex.h"
#include "llvm/Support/raw_ostream.h"
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

namespace fsdpc {

namespace {

/// What `fsdpc run` was asked for.
struct Request {
  std::vector<std::string> compileArguments; ///< with --world_size and -o
  std::vector<std::string> trainArguments;
  std::vector<std::string> launchArguments; ///< for mpirun or srun
  std::string options;                      ///< of the compiler, with those of files that a configuration names
  std::string output;
  int64_t ranks = 1;
};

llvm::Error usage(const llvm::Twine &message) { return llvm::make_error<UsageError>("run: " + message.str()); }

llvm::Expected<Request> parse(llvm::ArrayRef<std::string> arguments) {
  const std::string *dashes = llvm::find(arguments, "--");
  Request request;
  if (dashes != arguments.end())
    request.trainArguments.assign(dashes + 1, arguments.end());
  for (const std::string *word = arguments.begin(); word != dashes; ++word) {
    if (*word != "-n") {
      request.compileArguments.push_back(*word);
      continue;
    }
    if (++word == dashes)
      return usage("-n needs the number of ranks");
    request.compileArguments.push_back("--world_size=" + *word);
  }
  llvm::Expected<OptionValues> values = OptionValues::parse(request.compileArguments);
  if (!values)
    return values.takeError();
  chooseTarget(*values);
  printConfigLines(*values);
  if (values->positional().size() != 1)
    return usage("one model is expected: fsdpc run MODEL.onnx [options] -n N -- train options");
  request.ranks = values->integer("world_size");
  request.options = values->toJson(/*indented=*/false);
  // What the command line says comes later, and wins.
  request.trainArguments.insert(request.trainArguments.begin(), values->trainWords().begin(),
                                values->trainWords().end());
  request.launchArguments = values->launchWords().vec();
  if (request.ranks == 1 && !request.launchArguments.empty())
    return usage("launch: arguments change nothing for one rank, which is started directly");
  request.output = values->text("output");
  if (request.output.empty()) {
    request.output = (llvm::sys::path::stem(values->positional()[0]) + ".run").str();
    request.compileArguments.insert(request.compileArguments.end(), {"-o", request.output});
  }
  return request;
}

/// Changes whenever a compile might give another program: the options and arguments, and size and time of the files
/// that they name and of this compiler.
std::string keyOf(const Request &request) {
  std::string key;
  llvm::raw_string_ostream out(key);
  out << request.options << '\n';
  std::vector<std::string> files = {llvm::sys::fs::getMainExecutable(nullptr, nullptr)};
  for (const std::string &argument : request.compileArguments) {
    out << argument << '\n';
    files.push_back(argument);
    files.push_back(argument + ".data");
  }
  for (const std::string &file : files)
    if (llvm::sys::fs::file_status status;
        !llvm::sys::fs::status(file, status) && llvm::sys::fs::is_regular_file(status))
      out << file << ' ' << status.getSize() << ' ' << status.getLastModificationTime().time_since_epoch().count()
          << '\n';
  return key;
}

llvm::Error compileIfNeeded(const Request &request,
                            llvm::function_ref<llvm::Error(llvm::ArrayRef<std::string>)> compile) {
  std::string keyFile = request.output + "/run.key", key = keyOf(request);
  auto known = llvm::MemoryBuffer::getFile(keyFile);
  if (known && (*known)->getBuffer() == key && llvm::sys::fs::exists(request.output + "/train")) {
    llvm::errs() << request.output << ": is up to date\n";
    return llvm::Error::success();
  }
  if (llvm::Error error = compile(request.compileArguments))
    return error;
  return llvm::writeToOutput(keyFile, [&](llvm::raw_ostream &out) {
    out << key;
    return llvm::Error::success();
  });
}

/// What a program prints; "" if it is not in PATH or fails.
std::string outputOf(llvm::StringRef program, llvm::ArrayRef<llvm::StringRef> arguments) {
  llvm::ErrorOr<std::string> path = llvm::sys::findProgramByName(program);
  llvm::SmallString<128> output;
  if (!path || llvm::sys::fs::createTemporaryFile("fsdpc-run", "txt", output))
    return "";
  llvm::FileRemover remove(output);
  llvm::SmallVector<llvm::StringRef, 4> command = {program};
  llvm::append_range(command, arguments);
  std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(""), output.str(), output.str()};
  if (llvm::sys::ExecuteAndWait(*path, command, std::nullopt, redirects) != 0)
    return "";
  auto text = llvm::MemoryBuffer::getFile(output);
  return text ? (*text)->getBuffer().str() : "";
}

/// Whether srun connects the ranks by PMIx if it is told to, and by nothing if it is not.
bool needsPmix() {
  const llvm::Regex byNothing("MpiDefault *= *none");
  return !std::getenv("SLURM_MPI_TYPE") && byNothing.match(outputOf("scontrol", {"show", "config"})) &&
         llvm::StringRef(outputOf("srun", {"--mpi=list"})).contains("pmix");
}

/// The command that starts the program.
llvm::Expected<std::vector<std::string>> launchCommand(const Request &request) {
  std::vector<std::string> command;
  if (request.ranks > 1) {
    bool isSlurm = std::getenv("SLURM_JOB_ID") && llvm::sys::findProgramByName("srun");
    llvm::ErrorOr<std::string> launcher = llvm::sys::findProgramByName(isSlurm ? "srun" : "mpirun");
    if (!launcher)
      return llvm::createStringError("run: no mpirun in PATH; it belongs to Open MPI (package openmpi-bin)");
    command = {*launcher, "-n", std::to_string(request.ranks)};
    if (isSlurm && needsPmix())
      command.push_back("--mpi=pmix");
    if (const char *cores = std::getenv("SLURM_CPUS_PER_TASK"); isSlurm && cores)
      command.push_back("--cpus-per-task=" +
                        std::string(cores)); // since Slurm 22.05 srun does not take it from the job
  }
  if (request.ranks > 1)
    command.insert(command.end(), request.launchArguments.begin(), request.launchArguments.end());
  llvm::SmallString<128> program(request.output);
  if (std::error_code code = llvm::sys::fs::make_absolute(program))
    return llvm::createStringError("run: " + code.message());
  llvm::sys::path::append(program, "train");
  command.push_back(program.str().str());
  command.insert(command.end(), request.trainArguments.begin(), request.trainArguments.end());
  return command;
}

std::atomic<pid_t> launched{0};
static_assert(std::atomic<pid_t>::is_always_lock_free, "read by a signal handler");

extern "C" void askToSave(int) {
  if (pid_t process = launched.load())
    ::kill(process, SIGUSR1);
}

/// Starts the command in a process group of its own, where the terminal's ^C does not reach it, and waits.
llvm::Expected<int> launch(const std::vector<std::string> &command) {
  std::vector<char *> words;
  for (const std::string &word : command)
    words.push_back(const_cast<char *>(word.c_str()));
  words.push_back(nullptr);
  for (int number : {SIGTERM, SIGINT}) {
    struct sigaction action = {};
    action.sa_handler = askToSave;
    action.sa_flags = SA_RESTART;
    ::sigaction(number, &action, nullptr);
  }
  pid_t process = ::fork();
  if (process < 0)
    return llvm::createStringError(llvm::Twine("run: cannot start a process: ") + std::strerror(errno));
  if (process == 0) {
    ::setpgid(0, 0);
    ::execv(words[0], words.data());
    ::_exit(127);
  }
  launched = process;
  int status = 0;
  while (::waitpid(process, &status, 0) < 0)
    if (errno != EINTR)
      return llvm::createStringError(llvm::Twine("run: ") + std::strerror(errno));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
    return llvm::createStringError("run: cannot run " + command[0]);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

} // namespace

llvm::Expected<int> runModel(llvm::ArrayRef<std::string> arguments,
                             llvm::function_ref<llvm::Error(llvm::ArrayRef<std::string>)> compile) {
  llvm::Expected<Request> request = parse(arguments);
  if (!request)
    return request.takeError();
  if (llvm::Error error = compileIfNeeded(*request, compile))
    return error;
  llvm::Expected<std::vector<std::string>> command = launchCommand(*request);
  if (!command)
    return command.takeError();
  return launch(*command);
}

} // namespace fsdpc
