#include "frontend/options/help.h"

#include "frontend/options/option_schema.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

namespace fsdpc {

namespace {

constexpr CommandRow commands[] = {
    {"MODEL.onnx|STAGE.fsir [options] -o OUT", "compile"},
    {"inspect MODEL.onnx", "the contents of the file"},
    {"init MODEL.onnx [-o FILE.yaml]", "a commented configuration for this machine to start from"},
    {"simulate MODEL.onnx [options]", "the predicted timeline (--hardware)"},
    {"calibrate", "measures this machine's costs once"},
    {"estimate MODEL.onnx [options]", "memory and communication of many plans, no code"},
    {"verify STAGE.fsir", "verifier and schedule checker alone"},
    {"run MODEL.onnx [options] -n N -- OPTIONS", "compiles if needed, launches; OPTIONS are the program's"},
    {"report LOG.jsonl... [-o report.html]", "logs of programs as one page of curves"},
    {"checkpoint ls|verify|export|reshard|diff", "looks at what programs saved (checkpoint --help)"},
    {"reduce STAGE.fsir [-o FILE] -- CHECK", "the smallest module for which CHECK FILE still exits 0"},
    {"help [TOPIC]", "this; the options of a group, or one option"},
    {"completion bash|zsh|fish", "a script that completes options in a shell"},
    {"man", "this as a page for man"},
};

void printOption(const OptionRow &row, llvm::raw_ostream &out) {
  const std::string left = "  --" + row.name.str() + (row.values.empty() ? "" : " " + row.values.str());
  out << llvm::left_justify(left, 44) << (left.size() >= 44 ? "  " : "") << row.help;
  if (row.name == "unit")
    out << llvm::join(unitKeys(), ", ");
  if (!row.defaultValue.empty())
    out << " [" << row.defaultValue << ']';
  out << '\n';
}

} // namespace

llvm::ArrayRef<CommandRow> commandTable() { return commands; }

std::string helpText() {
  std::string text;
  llvm::raw_string_ostream out(text);
  for (const CommandRow &command : commands)
    out << (&command == commands ? "usage: " : "       ") << llvm::left_justify(("fsdpc " + command.usage).str(), 46)
        << (command.usage.size() + 6 >= 46 ? " " : "") << command.help << '\n';
  llvm::StringRef group;
  for (const OptionRow &row : optionTable()) {
    if (row.group != group)
      out << '\n' << row.group << '\n';
    group = row.group;
    printOption(row, out);
  }
  return text;
}

llvm::Expected<std::string> helpText(llvm::StringRef topic) {
  std::string text, name = topic.ltrim('-').lower();
  std::replace(name.begin(), name.end(), '-', '_');
  llvm::raw_string_ostream out(text);
  llvm::SmallVector<llvm::StringRef, 128> topics;
  for (const OptionRow &row : optionTable()) {
    if (topics.empty() || !llvm::is_contained(topics, row.group))
      topics.push_back(row.group);
    topics.push_back(row.name);
    if (row.group == name || row.name == name)
      printOption(row, out);
  }
  if (!text.empty())
    return text;
  llvm::SmallVector<llvm::StringRef, 8> groups;
  for (const OptionRow &row : optionTable())
    if (!llvm::is_contained(groups, row.group))
      groups.push_back(row.group);
  return llvm::make_error<UsageError>("help " + topic.str() + ": no such topic" + didYouMean(name, topics) +
                                      "; there are " + llvm::join(groups, ", ") + ", and every option");
}

} // namespace fsdpc
