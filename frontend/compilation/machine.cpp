#include "frontend/compilation/machine.h"

#include "frontend/options/cache_folder.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SHA256.h"
#include <thread>
#include <unistd.h>

namespace fsdpc {

namespace {

std::string processorName() {
  auto text = llvm::MemoryBuffer::getFileAsStream("/proc/cpuinfo");
  if (!text)
    return "";
  llvm::StringRef rest = (*text)->getBuffer();
  size_t at = rest.find("model name");
  return at == llvm::StringRef::npos ? "" : rest.substr(at).split('\n').first.str();
}

llvm::Expected<Hardware> readTable(llvm::StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer)
    return llvm::make_error<UsageError>(("--hardware " + path + ": " + buffer.getError().message() + "; built in are " +
                                         llvm::join(builtInHardwareNames(), ", "))
                                            .str());
  return readHardware((*buffer)->getBuffer(), path);
}

CostModel modelOn(const Hardware &hardware, const OptionValues &values) {
  CostModel model;
  model.hardware = hardware;
  if (const int64_t ranks = values.integer("ranks_per_host"); ranks > 0)
    model.hardware.ranksPerNode = ranks;
  model.inlineStreams = !hardware.hostRunsAhead && collectivesRunInline(values);
  model.networkOnly = !hardware.hostRunsAhead && values.text("transport") == "mpi";
  model.threads = hardware.hostRunsAhead ? 1 : values.integer("threads");
  return model;
}

} // namespace

std::string calibrationPath() {
  const std::string folder = cacheFolder();
  if (folder.empty())
    return "";
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  llvm::SHA256 hasher;
  hasher.update(hardwareSchema);
  hasher.update("\n" + std::string(host) + "\n" + processorName() + "\n" +
                std::to_string(std::thread::hardware_concurrency()));
  return folder + "/hardware-" + llvm::toHex(hasher.final(), true).substr(0, 16) + ".json";
}

bool collectivesRunInline(const OptionValues &values) {
  if (const Streams streams = *choiceFrom<Streams>(values.text("streams")); streams != Streams::automatic)
    return streams == Streams::inlined;
  return static_cast<int64_t>(std::thread::hardware_concurrency()) <= values.integer("world_size");
}

llvm::Expected<Machine> machineOf(const OptionValues &values) {
  if (values.integer("ranks_per_host") < 0)
    return llvm::make_error<UsageError>(("--ranks_per_host " + values.text("ranks_per_host") + ": at least 0").str());
  llvm::StringRef name = values.text("hardware");
  if (name == "auto" && values.text("target") == "cuda")
    name = "h100_8";
  Hardware builtIn = *builtInHardware("cpu");
  if (name == "auto") {
    std::string calibrated = calibrationPath();
    if (!llvm::sys::fs::exists(calibrated))
      return Machine{modelOn(builtIn, values), modelOn(builtIn, values)};
    llvm::Expected<Hardware> table = readTable(calibrated);
    if (!table)
      return table.takeError();
    return Machine{modelOn(builtIn, values), modelOn(*table, values)};
  }
  if (std::optional<Hardware> table = builtInHardware(name))
    return Machine{modelOn(*table, values), modelOn(*table, values)};
  llvm::Expected<Hardware> table = readTable(name);
  if (!table)
    return table.takeError();
  return Machine{modelOn(*table, values), modelOn(*table, values)};
}

} // namespace fsdpc
