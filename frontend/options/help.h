// What is said of the options: help by topic, completion for shells, a page for man. All of it follows from
// optionTable.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace fsdpc {

/// A subcommand as help and manual show it.
struct CommandRow {
  llvm::StringRef usage, help;
};
llvm::ArrayRef<CommandRow> commandTable();

/// All commands and options.
std::string helpText();
/// The options of a group ("optimizer"), or one option. A UsageError for another topic.
llvm::Expected<std::string> helpText(llvm::StringRef topic);

/// A script that completes commands, options and their choices. `shell`: bash, zsh or fish; else a UsageError.
llvm::Expected<std::string> completionScript(llvm::StringRef shell);

/// In roff.
std::string manPage();

} // namespace fsdpc
