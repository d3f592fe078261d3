#include "frontend/options/help.h"
#include "frontend/options/option_schema.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

namespace fsdpc {

namespace {

/// The values that an option may have; none for numbers, names and files.
std::vector<std::string> choicesOf(const OptionRow &row) {
  std::vector<std::string> choices;
  if (row.kind != OptionKind::choice)
    return choices;
  for (llvm::StringRef choice : llvm::split(row.values, '|'))
    choices.push_back(choice.split('=').first.str());
  return choices;
}

/// --name, and --no_name for what can be switched off.
std::vector<std::string> spellingsOf(const OptionRow &row) {
  std::vector<std::string> names = {"--" + row.name.str()};
  if (row.kind == OptionKind::boolean)
    names.push_back("--no_" + row.name.str());
  return names;
}

std::string bashScript() {
  std::string text;
  llvm::raw_string_ostream out(text);
  std::vector<std::string> names, commands(subcommands().begin(), subcommands().end());
  out << "_fsdpc() {\n  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  case $previous in\n";
  for (const OptionRow &row : optionTable()) {
    llvm::append_range(names, spellingsOf(row));
    if (const std::vector<std::string> choices = choicesOf(row); !choices.empty())
      out << "    --" << row.name << ") COMPREPLY=($(compgen -W '" << llvm::join(choices, " ")
          << "' -- \"$current\")); return ;;\n";
  }
  out << "  esac\n  if [[ $current == -* ]]; then\n    COMPREPLY=($(compgen -W '" << llvm::join(names, " ")
      << "' -- \"$current\"))\n  elif ((COMP_CWORD == 1)); then\n    COMPREPLY=($(compgen -f -W '"
      << llvm::join(commands, " ") << "' -- \"$current\"))\n  else\n"
      << "    COMPREPLY=($(compgen -f -- \"$current\"))\n  fi\n}\ncomplete -o filenames -F _fsdpc fsdpc\n";
  return text;
}

/// In single quotes, for _arguments and fish.
std::string quoted(llvm::StringRef text) {
  std::string result;
  for (char c : text)
    result += c == '\'' ? "'\\''" : std::string(1, c);
  return result;
}

/// Colons and brackets separate the parts of an argument of _arguments.
std::string forZsh(llvm::StringRef text) {
  std::string result;
  for (char c : text)
    result += llvm::StringRef("[]:\\").contains(c) ? std::string("\\") + c : std::string(1, c);
  return quoted(result);
}

std::string zshScript() {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << "#compdef fsdpc\n_arguments \\\n  '1:command or model:_alternative \"commands:command:("
      << llvm::join(subcommands(), " ") << ")\" \"files:model:_files\"' \\\n";
  for (const OptionRow &row : optionTable())
    for (const std::string &name : spellingsOf(row)) {
      out << "  '*" << name << "[" << forZsh(row.help) << "]";
      if (const std::vector<std::string> choices = choicesOf(row); !choices.empty())
        out << ":" << forZsh(row.name) << ":(" << llvm::join(choices, " ") << ")";
      else if (row.kind != OptionKind::boolean)
        out << ":" << forZsh(row.values) << ":_files";
      out << "' \\\n";
    }
  out << "  '*:file:_files'\n";
  return text;
}

std::string fishScript() {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << "complete -c fsdpc -n __fish_use_subcommand -a '" << llvm::join(subcommands(), " ") << "'\n";
  for (const OptionRow &row : optionTable())
    for (const std::string &name : spellingsOf(row)) {
      out << "complete -c fsdpc -l " << llvm::StringRef(name).drop_front(2) << " -d '" << quoted(row.help) << "'";
      if (const std::vector<std::string> choices = choicesOf(row); !choices.empty())
        out << " -xa '" << llvm::join(choices, " ") << "'";
      else if (row.kind != OptionKind::boolean)
        out << " -r";
      out << '\n';
    }
  return text;
}

} // namespace

llvm::Expected<std::string> completionScript(llvm::StringRef shell) {
  if (shell == "bash")
    return bashScript();
  if (shell == "zsh")
    return zshScript();
  if (shell == "fish")
    return fishScript();
  return llvm::make_error<UsageError>("completion " + shell.str() + ": bash, zsh or fish is expected");
}

} // namespace fsdpc
