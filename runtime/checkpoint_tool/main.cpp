// The program that `fsdpc checkpoint` runs: it needs the files of programs, not the compiler.
#include "runtime/checkpoint_tool/commands.h"
#include "runtime/common/spelling.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>
#include <map>

namespace fsdpc::rt {
namespace {

constexpr const char *help = R"(fsdpc checkpoint ls FOLDER              the checkpoints of a folder
fsdpc checkpoint verify PATH            reads all bytes of a checkpoint, or of every one of a folder
fsdpc checkpoint export PATH -o OUT     parameters as FILE.safetensors; as FOLDER, in shards of --max_shard_bytes N; or, with
                                        --model OUT/model.onnx of the program, as FILE.onnx; with --weights ema the moving
                                        averages of a program with --ema_decay
fsdpc checkpoint reshard PATH -o FOLDER --world_size N
fsdpc checkpoint diff A B               which tensors differ, and by how much; exit 1 if any does
PATH is a checkpoint (step-00000100), or a folder of checkpoints: the latest of it.
)";

struct Arguments {
  std::vector<std::string> words;
  std::map<std::string, std::string> options;
};

[[noreturn]] void usage(const std::string &message) { throw Failure(ExitCode::usage, "checkpoint: " + message); }

Arguments parse(int argc, char **argv) {
  static const std::vector<std::string> names = {"--output", "--max_shard_bytes", "--model", "--weights",
                                                 "--world_size"};
  Arguments result;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (word == "-o")
      word = "--output";
    if (!word.starts_with("--")) {
      result.words.push_back(word);
      continue;
    }
    const std::size_t equals = word.find('=');
    std::string name = word.substr(0, equals);
    std::replace(name.begin() + 2, name.end(), '-', '_');
    if (name == "--help")
      return {{"help"}, {}};
    if (std::find(names.begin(), names.end(), name) == names.end())
      usage("unknown option " + name + didYouMean(name, names, ""));
    if (equals == std::string::npos && i + 1 == argc)
      usage(name + " needs a value");
    result.options[name] = equals == std::string::npos ? argv[++i] : word.substr(equals + 1);
  }
  return result;
}

/// From 1 to `most`; 0: not given.
std::int64_t integerOf(const Arguments &arguments, const std::string &name, std::int64_t most) {
  const auto found = arguments.options.find(name);
  if (found == arguments.options.end())
    return 0;
  const std::string &text = found->second;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > most)
    usage(name + " " + text + ": expected an integer from 1 to " + std::to_string(most));
  return value;
}

std::string valueOf(const Arguments &arguments, const std::string &name) {
  const auto found = arguments.options.find(name);
  return found == arguments.options.end() ? "" : found->second;
}

/// Of the value of --weights: trained or ema.
bool takesAverages(const std::string &weights) {
  if (!weights.empty() && weights != "trained" && weights != "ema")
    usage("--weights " + weights + ": expected trained or ema");
  return weights == "ema";
}

struct Command {
  const char *name;
  std::size_t paths;
  std::vector<std::string> required, optional; ///< options
  std::function<int(const Arguments &)> run;
};

const std::vector<Command> &commands() {
  static const std::vector<Command> all = {
      {"ls", 1, {}, {}, [](const Arguments &a) { return listFolder(a.words[1]), 0; }},
      {"verify", 1, {}, {}, [](const Arguments &a) { return verify(a.words[1]), 0; }},
      {"export",
       1,
       {"--output"},
       {"--max_shard_bytes", "--model", "--weights"},
       [](const Arguments &a) {
         exportWeights(a.words[1], {valueOf(a, "--output"), integerOf(a, "--max_shard_bytes", INT64_MAX),
                                    takesAverages(valueOf(a, "--weights")), valueOf(a, "--model")});
         return 0;
       }},
      {"reshard",
       1,
       {"--output", "--world_size"},
       {},
       [](const Arguments &a) {
         reshard(a.words[1], valueOf(a, "--output"), static_cast<int>(integerOf(a, "--world_size", 99999)));
         return 0;
       }},
      {"diff", 2, {}, {}, [](const Arguments &a) { return printDifferences(a.words[1], a.words[2]) ? 0 : 1; }},
  };
  return all;
}

bool contains(const std::vector<std::string> &names, const std::string &name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void requireSensible(const Command &command, const Arguments &arguments) {
  for (const auto &[name, value] : arguments.options)
    if (!contains(command.required, name) && !contains(command.optional, name))
      usage(name + " changes nothing for " + command.name);
  for (const std::string &name : command.required)
    if (!arguments.options.contains(name))
      usage(std::string(command.name) + " needs " + (name == "--output" ? "-o" : name));
  if (arguments.words.size() != command.paths + 1)
    usage(std::string(command.name) + " takes " + std::to_string(command.paths) +
          " path(s); see fsdpc checkpoint --help");
}

int run(const Arguments &arguments) {
  const std::string name = arguments.words.empty() ? "help" : arguments.words[0];
  if (name == "help") {
    std::fputs(help, stdout);
    return 0;
  }
  for (const Command &command : commands())
    if (name == command.name) {
      requireSensible(command, arguments);
      return command.run(arguments);
    }
  usage("no command '" + name + "': ls, verify, export, reshard, diff");
}

} // namespace
} // namespace fsdpc::rt

int main(int argc, char **argv) {
  try {
    return fsdpc::rt::run(fsdpc::rt::parse(argc, argv));
  } catch (const fsdpc::rt::Failure &failure) {
    std::fprintf(stderr, "fsdpc: error: %s\n", failure.what());
    return static_cast<int>(failure.code);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "fsdpc: error: %s\n", error.what());
    return static_cast<int>(fsdpc::rt::ExitCode::memory);
  }
}
