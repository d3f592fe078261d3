// Text of an option to its value, and back as JSON.
#pragma once

#include "runtime/common/options.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fsdpc::rt {

/// Throws Failure{usage}.
[[noreturn]] void usage(const std::string &message);

std::string lowered(std::string text);
/// With '_' for '-'.
std::string underscored(std::string text);

/// A finite number. Throws Failure{usage}.
double requireDouble(const std::string &option, std::string_view text);
/// Two numbers, "A,B" or "(A, B)". Throws Failure{usage}.
std::pair<double, double> requirePair(const std::string &option, std::string text);
/// Throws Failure{usage} if the formula of `name` is not defined for the value.
void requireInRange(const std::string &option, std::string_view name, double value);

/// Parses the text into the member of the row. Throws Failure{usage}.
void setOption(Options &options, const OptionRow &row, const std::string &text);
/// The member of the row as JSON.
std::string optionJson(const Options &options, const OptionRow &row);

} // namespace fsdpc::rt
