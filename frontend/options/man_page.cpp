#include "frontend/options/help.h"
#include "frontend/options/option_schema.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

namespace fsdpc {

namespace {

/// A line of text: no request, no escape, hyphens that can be copied.
std::string roff(llvm::StringRef text) {
  std::string result = text.starts_with(".") || text.starts_with("'") ? "\\&" : "";
  for (char c : text)
    result += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
  return result;
}

} // namespace

std::string manPage() {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << ".TH FSDPC 1\n.SH NAME\nfsdpc \\- compiles an ONNX model into a fully sharded training program\n.SH "
         "SYNOPSIS\n";
  for (const CommandRow &command : commandTable())
    out << ".TP\n.B " << roff(("fsdpc " + command.usage).str()) << '\n' << roff(command.help) << '\n';
  out << ".SH OPTIONS\n";
  llvm::StringRef group;
  for (const OptionRow &row : optionTable()) {
    if (row.group != group)
      out << ".SS " << roff(row.group) << '\n';
    group = row.group;
    out << ".TP\n.B " << roff("--" + row.name.str() + (row.values.empty() ? "" : " " + row.values.str())) << '\n'
        << roff(row.help);
    if (row.name == "unit")
      out << roff(llvm::join(unitKeys(), ", "));
    out << (row.defaultValue.empty() ? "" : roff((" [" + row.defaultValue + "]").str())) << '\n';
  }
  out << ".SH EXIT STATUS\n0: done. 1: the model or a file. 2: the command line. 70: a fault of fsdpc.\n";
  return text;
}

} // namespace fsdpc
