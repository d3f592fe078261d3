#include "frontend/driver/machine.h"

#include "frontend/driver/calibrate.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include <thread>

namespace fsdpc {

namespace {

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
  model.inlineStreams = !hardware.hostRunsAhead && collectivesRunInline(values);
  model.networkOnly = !hardware.hostRunsAhead && values.text("transport") == "mpi";
  model.threads = hardware.hostRunsAhead ? 1 : values.integer("threads");
  return model;
}

} // namespace

bool collectivesRunInline(const OptionValues &values) {
  if (values.text("streams") != "auto")
    return values.text("streams") == "inline";
  return static_cast<int64_t>(std::thread::hardware_concurrency()) <= values.integer("world_size");
}

llvm::Expected<Machine> machineOf(const OptionValues &values) {
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
