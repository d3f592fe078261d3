// The program that `fsdpc checkpoint` runs: it needs the files of programs, not the compiler.
#include "runtime/checkpoint_tool/commands.h"
#include "runtime/common/spelling.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>

namespace fsdpc::rt {
namespace {

constexpr const char *help = R"(fsdpc checkpoint ls FOLDER              the checkpoints of a folder
fsdpc checkpoint verify PATH            reads all bytes of a checkpoint, or of every one of a folder
fsdpc checkpoint export PATH -o OUT     parameters as FILE.safetensors; as FOLDER, in shards of --max_shard_bytes N; or, with
                                        --model OUT/model.onnx of the program, as FILE.onnx
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
  static const std::vector<std::string> names = {"--output", "--max_shard_bytes", "--model", "--world_size"};
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

std::int64_t integerOf(const Arguments &arguments, const std::string &name, std::int64_t least) {
  const auto found = arguments.options.find(name);
  if (found == arguments.options.end())
    return 0;
  const std::string &text = found->second;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least)
    usage(name + " " + text + ": expected an integer from " + std::to_string(least));
  return value;
}

/// Fails for options that the command does not have.
void allow(const Arguments &arguments, std::size_t words, std::initializer_list<const char *> options) {
  for (const auto &[name, value] : arguments.options)
    if (std::find_if(options.begin(), options.end(), [&](const char *known) { return name == known; }) == options.end())
      usage(name + " changes nothing for " + arguments.words[0]);
  if (arguments.words.size() != words)
    usage(arguments.words[0] + " takes " + std::to_string(words - 1) + " path(s); see fsdpc checkpoint --help");
}

std::string required(const Arguments &arguments, const std::string &name) {
  const auto found = arguments.options.find(name);
  if (found == arguments.options.end())
    usage(arguments.words[0] + " needs " + (name == "--output" ? "-o" : name));
  return found->second;
}

int run(const Arguments &arguments) {
  const std::vector<std::string> &words = arguments.words;
  const std::string command = words.empty() ? "help" : words[0];
  if (command == "help") {
    std::fputs(help, stdout);
    return 0;
  }
  if (command == "ls") {
    allow(arguments, 2, {});
    listFolder(words[1]);
  } else if (command == "verify") {
    allow(arguments, 2, {});
    verify(words[1]);
  } else if (command == "export") {
    allow(arguments, 2, {"--output", "--max_shard_bytes", "--model"});
    const auto model = arguments.options.find("--model");
    exportWeights(words[1], {required(arguments, "--output"), integerOf(arguments, "--max_shard_bytes", 1),
                             model == arguments.options.end() ? "" : model->second});
  } else if (command == "reshard") {
    allow(arguments, 2, {"--output", "--world_size"});
    required(arguments, "--world_size");
    reshard(words[1], required(arguments, "--output"),
            static_cast<int>(std::min<std::int64_t>(integerOf(arguments, "--world_size", 1), 100000)));
  } else if (command == "diff") {
    allow(arguments, 3, {});
    return printDifferences(words[1], words[2]) ? 0 : 1;
  } else {
    usage("no command '" + command + "': ls, verify, export, reshard, diff");
  }
  return 0;
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
