#include "frontend/driver/init.h"

#include "frontend/driver/inspect.h"
#include "frontend/onnx/inspect.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"
#include <thread>
#include <unistd.h>

namespace fsdpc {

namespace {

struct ThisMachine {
  int64_t gpus = 0;
  int64_t cores = std::thread::hardware_concurrency();
  int64_t memoryBytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);

  ThisMachine() {
    while (llvm::sys::fs::exists("/dev/nvidia" + llvm::Twine(gpus)))
      ++gpus;
  }
  std::string text() const {
    return llvm::formatv("{0} core(s), {1:f1} GiB, {2}", cores, static_cast<double>(memoryBytes) / (int64_t(1) << 30),
                         gpus == 0 ? std::string("no GPU") : std::to_string(gpus) + " GPU(s)");
  }
};

/// `key: value  # comment`, or the whole line as a comment.
class ConfigWriter {
public:
  explicit ConfigWriter(llvm::raw_ostream &out) : out(out) {}
  void section(llvm::StringRef title) { out << "\n# " << title << '\n'; }
  void set(llvm::StringRef key, llvm::StringRef value, llvm::StringRef comment = "") { line("", key, value, comment); }
  void suggest(llvm::StringRef key, llvm::StringRef value, llvm::StringRef comment = "") {
    line("# ", key, value, comment);
  }

private:
  void line(llvm::StringRef mark, llvm::StringRef key, llvm::StringRef value, llvm::StringRef comment) {
    const std::string left = (mark + key + ": " + value).str();
    out << llvm::left_justify(left, comment.empty() ? 0 : 36) << (comment.empty() ? "" : "  # ") << comment << '\n';
  }
  llvm::raw_ostream &out;
};

/// Names of a model may have any characters.
std::string oneLine(llvm::StringRef text) {
  std::string result = text.str();
  for (char &c : result)
    c = llvm::isPrint(c) ? c : '?';
  return result;
}

std::string yamlQuoted(llvm::StringRef text) {
  std::string quoted;
  for (char c : oneLine(text))
    quoted += c == '\'' ? "''" : std::string(1, c);
  return "'" + quoted + "'";
}

/// The loss that the outputs tell of; empty if they do not.
std::string lossOf(llvm::ArrayRef<GraphValue> outputs) {
  for (const GraphValue &output : outputs)
    if (output.isFloat && output.dims.empty())
      return "model";
  for (const GraphValue &output : outputs)
    if (output.isFloat && llvm::StringRef(output.name).contains_insensitive("logits"))
      return "cross_entropy";
  return "";
}

void writeSizes(ConfigWriter &config, const ThisMachine &machine, llvm::ArrayRef<GraphValue> inputs) {
  config.section("Sizes");
  const bool hasGpu = machine.gpus > 0;
  config.set("world_size", std::to_string(std::max<int64_t>(machine.gpus, 1)),
             hasGpu ? "ranks: one for each GPU here" : "ranks; one uses all cores of a machine");
  const std::string batch = inputs.empty() || inputs[0].dims.empty() ? "" : inputs[0].dims[0];
  if (!batch.empty() && llvm::all_of(batch, llvm::isDigit))
    config.set("micro_batch_size", batch, "samples per rank; the file is for this number only");
  else
    config.set("micro_batch_size", "1", "samples per rank; `fsdpc estimate` says what fits");
  config.suggest("gradient_accumulation_steps", "1", "micro-steps of a step");
  llvm::SmallVector<std::string, 4> symbols;
  for (const GraphValue &input : inputs)
    for (const std::string &dim : llvm::ArrayRef(input.dims).drop_front(input.dims.empty() ? 0 : 1))
      if (!llvm::all_of(dim, llvm::isDigit) && !llvm::is_contained(symbols, dim)) {
        symbols.push_back(dim);
        config.suggest("dim", "[" + yamlQuoted(dim + "=128") + "]",
                       oneLine("the dim '" + dim + "' of " + input.name + " needs a size"));
      }
}

void writeLoss(ConfigWriter &config, llvm::ArrayRef<GraphValue> outputs) {
  config.section("Loss");
  std::vector<std::string> names;
  for (const GraphValue &output : outputs)
    names.push_back(output.name + " [" + llvm::join(output.dims, ", ") + "]");
  const std::string loss = lossOf(outputs), seen = oneLine("the outputs are " + llvm::join(names, "; "));
  if (loss.empty())
    config.suggest("loss", "cross_entropy", "choose: cross_entropy, nll, mse, l1, bce_with_logits; " + seen);
  else
    config.set("loss", loss, seen);
}

void writeRest(ConfigWriter &config, const ThisMachine &machine) {
  config.section("Optimizer");
  config.set("optimizer", "adamw");
  config.set("lr", "3e-4", "the program takes --lr, --lr_scheduler and --warmup_steps, too");
  config.set("weight_decay", "0.01");
  config.suggest("no_decay", "norms_biases");
  config.suggest("max_norm", "1.0", "clip the norm of the gradients");
  config.section("What each rank stores, and memory");
  config.set("strategy", "full_shard", "shard_grad_op, no_shard, hybrid_shard, auto");
  config.suggest("activation_checkpointing", "selective", "recompute instead of keeping");
  config.suggest("memory_budget",
                 std::to_string(std::max<int64_t>(1, machine.memoryBytes / (int64_t(1) << 30) * 9 / 10)) + "GiB",
                 "per rank; a larger plan is refused with what would help");
  config.section("Arithmetic");
  config.suggest("mixed_precision", "bf16", "forward and backward; sums, parameters and optimizer stay fp32");
  config.section("Adapters instead of all weights");
  config.suggest("lora", "'rank=16,alpha=32,targets=all_linear'");
}

/// A word or number as it is, anything else quoted.
std::string yamlValue(llvm::StringRef text) {
  const bool isPlain =
      !text.empty() && llvm::all_of(text, [](char c) { return llvm::isAlnum(c) || c == '.' || c == '_'; });
  return isPlain ? text.str() : yamlQuoted(text);
}

void writeGiven(llvm::raw_ostream &out, const OptionValues &values) {
  for (const OptionRow &row : optionTable()) {
    if (!values.given(row.name) || row.isAboutThisRun)
      continue;
    const bool isList = row.kind == OptionKind::list || row.kind == OptionKind::lines;
    out << row.name << ": "
        << (isList ? "[" + llvm::join(llvm::map_range(values.list(row.name), yamlValue), ", ") + "]"
                   : yamlValue(values.text(row.name)))
        << '\n';
  }
}

/// Words are --NAME=VALUE. A name that comes again has a list.
void writeTrainWords(llvm::raw_ostream &out, llvm::ArrayRef<std::string> words) {
  llvm::MapVector<llvm::StringRef, std::vector<std::string>> options;
  for (llvm::StringRef word : words) {
    auto [name, value] = word.drop_front(2).split('=');
    options[name].push_back(yamlValue(value));
  }
  out << (options.empty() ? "" : "train:\n");
  for (const auto &[name, values] : options)
    out << "  " << name << ": " << (values.size() == 1 ? values[0] : "[" + llvm::join(values, ", ") + "]") << '\n';
}

llvm::Error writeConfig(llvm::StringRef text, const OptionValues &values) {
  const llvm::StringRef target = values.text("output");
  if (target.empty() || target == "-") {
    llvm::outs() << text;
    return llvm::Error::success();
  }
  if (llvm::sys::fs::exists(target))
    return llvm::make_error<UsageError>("init -o " + target.str() + ": exists; give another name, or delete it");
  return llvm::writeToOutput(target, [&](llvm::raw_ostream &file) {
    file << text;
    return llvm::Error::success();
  });
}

} // namespace

llvm::Error initConfig(llvm::StringRef path, const OptionValues &values) {
  llvm::Expected<ImportedModel> model = inspected(path, values);
  if (!model)
    return model.takeError();
  std::string text;
  llvm::raw_string_ostream out(text);
  const ThisMachine machine;
  out << "# Options of fsdpc for " << oneLine(path) << " on a machine with " << machine.text()
      << ".\n#   fsdpc --config FILE -o out\n"
      << "# A line that begins with # has no effect. `fsdpc help OPTION` says more, `fsdpc inspect` lists "
         "parameters.\n";
  ConfigWriter config(out);
  out << "model: " << yamlQuoted(path) << '\n';
  writeSizes(config, machine, inputsOf(*model));
  writeLoss(config, outputsOf(*model));
  writeRest(config, machine);
  return writeConfig(text, values);
}

llvm::Error initFromConfig(const OptionValues &values) {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << "# Options of fsdpc, as another trainer's file means them.\n#   fsdpc MODEL.onnx --config FILE -o out\n";
  writeGiven(out, values);
  writeTrainWords(out, values.trainWords());
  if (!values.launchWords().empty())
    out << "launch:\n  arguments: [" << llvm::join(llvm::map_range(values.launchWords(), yamlValue), ", ") << "]\n";
  return writeConfig(text, values);
}

} // namespace fsdpc
