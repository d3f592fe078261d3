#include "frontend/tools/calibrate.h"

#include "frontend/compilation/machine.h"
#include "frontend/output/installation.h"
#include "ir/write_file.h"
#include "passes/cost/fit.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"

namespace fsdpc {

namespace {

llvm::Error mpirunFailed(const llvm::Twine &program, const llvm::Twine &why) {
  return llvm::createStringError("calibrate: mpirun " + program + ": " + why);
}

/// The calibration program with the kernels that programs use here.
std::string calibrationFor(const Installation &own) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("x86-64-v4") && llvm::sys::fs::exists(own.calibration + "_v4"))
    return own.calibration + "_v4";
#endif
  return own.calibration;
}

/// Runs the calibration program on `ranks` ranks and returns its samples.
llvm::Expected<std::vector<CostSample>> measure(int64_t ranks, std::optional<llvm::StringRef> transport) {
  llvm::Expected<const Installation &> own = installation();
  if (!own)
    return own.takeError();
  const std::string program = calibrationFor(*own);
  if (program.empty())
    return llvm::createStringError("calibrate: this build of fsdpc has no calibration program");
  llvm::ErrorOr<std::string> launcher = llvm::sys::findProgramByName("mpirun");
  if (!launcher)
    return mpirunFailed(program, "no mpirun in PATH");
  llvm::SmallString<128> output, log;
  for (llvm::SmallString<128> *path : {&output, &log})
    if (std::error_code code = llvm::sys::fs::createTemporaryFile("fsdpc-calibrate", "txt", *path))
      return llvm::createStringError("a temporary file: " + code.message());
  llvm::FileRemover removeOutput(output), removeLog(log);
  std::string count = std::to_string(ranks);
  llvm::SmallVector<llvm::StringRef, 8> command = {"mpirun", "-n", count, program};
  if (transport)
    command.push_back(*transport);
  std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(""), output.str(), log.str()};
  std::string problem;
  int code = llvm::sys::ExecuteAndWait(*launcher, command, std::nullopt, redirects, 0, 0, &problem);
  auto text = llvm::MemoryBuffer::getFile(code == 0 ? output : log);
  if (code != 0 || !text)
    return mpirunFailed(program,
                        "exit " + llvm::Twine(code) + " " + problem + (text ? "\n" + (*text)->getBuffer() : ""));
  return readSamples((*text)->getBuffer());
}

} // namespace

llvm::Error calibrate(const OptionValues &values) {
  const std::string path = values.text("output").empty() ? calibrationPath() : values.text("output").str();
  if (path.empty())
    return llvm::createStringError("calibrate: FSDPC_CACHE is empty, so nothing is kept: name the table with -o");
  int64_t ranks = std::max<int64_t>(2, values.integer("world_size"));
  llvm::Expected<std::vector<CostSample>> shared = measure(ranks, std::nullopt);
  if (!shared)
    return shared.takeError();
  llvm::Expected<std::vector<CostSample>> mpi = measure(ranks, llvm::StringRef("mpi"));
  if (!mpi)
    return mpi.takeError();
  Hardware hardware = fitHardware(*builtInHardware("cpu"), *shared, *mpi);
  hardware.name = "calibrated";
  if (llvm::Error error = replaceFile(path, toJson(hardware)))
    return error;
  llvm::outs() << "measured " << shared->size() + mpi->size() << " samples on " << ranks << " ranks: " << path << '\n';
  return llvm::Error::success();
}

} // namespace fsdpc
