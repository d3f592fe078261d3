#include "frontend/compilation/program_target.h"

#include "codegen/cpu/target.h"
#include "codegen/cuda/target.h"
#include "frontend/options/resolve.h"
#include "frontend/output/build_program.h"
#include "llvm/Support/FileSystem.h"
#include <thread>

namespace fsdpc {

namespace {

llvm::Error usage(const llvm::Twine &message) { return llvm::make_error<UsageError>(message.str()); }

constexpr int64_t maxThreads = 1024;

/// The options that only the other target has.
llvm::ArrayRef<llvm::StringRef> foreignOptions(llvm::StringRef target) {
  static constexpr llvm::StringRef ofCpu[] = {"streams", "threads", "transport"},
                                   ofCuda[] = {"allow_tf32", "attention", "tune", "cuda_graph", "node_ranges"};
  return target == "cuda" ? llvm::ArrayRef(ofCpu) : llvm::ArrayRef(ofCuda);
}

std::string changesNothing(llvm::StringRef option, llvm::StringRef target) {
  return ("--" + option + ": changes nothing for --target " + target).str();
}

} // namespace

llvm::StringRef defaultTarget(llvm::StringRef deviceNode, bool buildsCuda) {
  return buildsCuda && llvm::sys::fs::exists(deviceNode) ? "cuda" : "cpu";
}

void chooseTarget(OptionValues &values) {
  if (values.text("target").empty())
    values.resolve("target", defaultTarget("/dev/nvidiactl", buildsCudaPrograms()).str());
  const llvm::StringRef target = values.text("target");
  for (llvm::StringRef name : foreignOptions(target))
    if (changed(values, name))
      values.takeBack(name, changesNothing(name, target));
}

llvm::Error resolveTarget(OptionValues &values) {
  chooseTarget(values);
  const llvm::StringRef target = values.text("target");
  for (llvm::StringRef name : foreignOptions(target))
    if (changed(values, name))
      return usage(changesNothing(name, target));
  if (target == "cuda")
    return llvm::Error::success();
  if (values.text("test_build").ends_with("loopback"))
    return usage("--test_build " + values.text("test_build") + ": is for --target cuda");
  int64_t cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  if (values.integer("threads") < 0 || values.integer("threads") > maxThreads)
    return usage("--threads " + values.text("threads") + ": from 0 to " + llvm::Twine(maxThreads));
  if (values.integer("threads") == 0)
    values.resolve("threads", values.text("deterministic") == "world"
                                  ? "1"
                                  : std::to_string(std::max<int64_t>(1, cores / values.integer("world_size"))));
  return llvm::Error::success();
}

std::unique_ptr<Target> makeTarget(const OptionValues &values, const CostModel &model) {
  auto costMicroseconds = [model](const Node &node) { return model.microseconds(node); };
  auto exposedCopyMicroseconds = [model](int64_t bytes, double overlappedMicroseconds) {
    return model.exposedCopyMicroseconds(bytes, overlappedMicroseconds);
  };
  if (values.text("target") == "cuda")
    return makeCudaTarget({values.text("deterministic") != "off", costMicroseconds, exposedCopyMicroseconds});
  CpuTargetOptions options;
  options.threads = static_cast<int>(std::min<int64_t>(values.integer("threads"), maxThreads));
  options.costMicroseconds = costMicroseconds;
  options.exposedCopyMicroseconds = exposedCopyMicroseconds;
  return makeCpuTarget(options);
}

} // namespace fsdpc
