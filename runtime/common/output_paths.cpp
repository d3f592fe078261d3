#include "runtime/common/output_paths.h"

#include "runtime/common/failure.h"
#include "runtime/common/file.h"
#include "runtime/common/model_folder.h"
#include "runtime/common/onnx_file.h"

#include <filesystem>
#include <vector>

namespace fsdpc::rt {
namespace {

struct NamedPath {
  std::string option, path;
};

/// Adds the files of "A.npy", "GLOB" or "x=A.npy,labels=B.npy". Names without a file are skipped; their reader reports
/// them.
void addData(std::vector<NamedPath> &paths, const std::string &option, const std::string &text) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string part = text.substr(begin, end - begin);
    if (const auto equals = part.find('='); equals != std::string::npos && !fileExists(part))
      part.erase(0, equals + 1);
    try {
      for (const std::string &file : expandGlob(part))
        paths.push_back({option, file});
    } catch (const Failure &) {
    }
    begin = end + 1;
  }
}

/// Whether both are the same regular file, or the same name of a file that does not exist yet. Devices and pipes may be
/// used twice.
bool isSame(const std::string &a, const std::string &b) {
  std::error_code ignored;
  const auto first = std::filesystem::weakly_canonical(a, ignored);
  const auto second = std::filesystem::weakly_canonical(b, ignored);
  const bool isSpecial = std::filesystem::exists(first, ignored) && !std::filesystem::is_regular_file(first, ignored);
  return !isSpecial && (first == second || std::filesystem::equivalent(first, second, ignored));
}

std::vector<NamedPath> inputsOf(const Options &options, const std::string &outDirectory) {
  std::vector<NamedPath> inputs;
  addData(inputs, "--train_data", options.trainData);
  addData(inputs, "--val_data", options.valData);
  if (!options.batch.empty())
    inputs.push_back({"--batch", options.batch});
  if (!options.loadModel.empty())
    inputs.push_back({"--load_model", options.loadModel});
  if (!options.loadAdapters.empty())
    inputs.push_back({"--load_adapters", options.loadAdapters});
  for (const char *own : {"/train", "/weights/model.safetensors", "/plan.json", "/run_page.html"})
    inputs.push_back({"this program's own file", outDirectory + own});
  return inputs;
}

std::vector<NamedPath> outputsOf(const ProgramInfo &program, const Options &options) {
  std::vector<NamedPath> outputs;
  const NamedPath named[] = {{"--save_model", options.saveModel},
                             {"--save_ema", options.saveEma},
                             {"--save_gradients", options.saveGradients},
                             {"--predict", options.predict},
                             {"--log", options.log},
                             {"--report", options.report},
                             {"--profile", options.profile},
                             {"--save_onnx", options.saveOnnx}};
  for (const NamedPath &output : named)
    if (!output.path.empty())
      outputs.push_back(output);
  for (const NamedPath &weights : {named[0], named[1]})
    if (isFolderName(weights.path))
      outputs.push_back({weights.option, weights.path + "/model.safetensors"});
  if (!options.saveOnnx.empty())
    outputs.push_back({"the data file of --save_onnx", onnxDataPath(options.saveOnnx)});
  return outputs;
}

} // namespace

void requireSeparateOutputs(const ProgramInfo &program, const Options &options, const std::string &outDirectory) {
  const std::vector<NamedPath> outputs = outputsOf(program, options);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    std::vector<NamedPath> others = inputsOf(options, outDirectory);
    others.insert(others.end(), outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(i));
    for (const NamedPath &other : others) {
      const bool replaces = (outputs[i].option == "--save_model" || outputs[i].option == "--save_ema") &&
                            other.option.starts_with("--load_");
      if (!replaces && isSame(outputs[i].path, other.path))
        throw Failure(ExitCode::usage, outputs[i].option + " " + outputs[i].path + ": is " + other.option +
                                           " too, and would be overwritten");
    }
  }
}

} // namespace fsdpc::rt
