#include "runtime/common/option_values.h"

#include "runtime/common/failure.h"
#include "runtime/common/json.h"
#include "runtime/common/spelling.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace fsdpc::rt {
namespace {

template <class T>
std::optional<T> parsedNumber(std::string_view text) {
  T value{};
  if (text.starts_with('+'))
    text.remove_prefix(1);
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size())
    return std::nullopt;
  return value;
}

/// The valid ranges of torch.optim's formulas. frontend/options/value_ranges.cpp has those of the compile options.
struct Range {
  std::string_view name;
  double most;
  bool isOpen; ///< excludes `most`
};
constexpr double unbounded = std::numeric_limits<float>::max();
constexpr Range ranges[] = {{"lr", unbounded, false},
                            {"beta1", 1, true},
                            {"beta2", 1, true},
                            {"eps", unbounded, false},
                            {"weight_decay", unbounded, false},
                            {"momentum", unbounded, false},
                            {"dampening", 1, false},
                            {"rho", 1, false},
                            {"alpha", 1, false},
                            {"lr_decay", unbounded, false},
                            {"ema_decay", 1, true},
                            {"min_lr", unbounded, false},
                            {"gamma", unbounded, false},
                            {"warmup_ratio", 1, true},
                            {"max_norm", unbounded, false}};

std::int64_t requireInteger(const OptionRow &row, std::string_view text) {
  const auto value = parsedNumber<std::int64_t>(text);
  if (!value || *value < row.minimum)
    usage("--" + std::string(row.name) + " '" + std::string(text) + "': expected an integer of at least " +
          std::to_string(row.minimum));
  return *value;
}

Interval requireInterval(const OptionRow &row, const std::string &text) {
  std::string_view digits = text;
  Interval interval;
  for (const std::string_view ending : {"epochs", "epoch"})
    if (digits.ends_with(ending)) {
      digits.remove_suffix(ending.size());
      interval.inEpochs = true;
      break;
    }
  const auto count = parsedNumber<std::int64_t>(digits);
  if (!count || *count < 1)
    usage("--" + std::string(row.name) + " '" + text + "': expected a number of steps, or of epochs as in 1epoch");
  interval.count = *count;
  return interval;
}

std::vector<std::string> choicesOf(const OptionRow &row) {
  std::vector<std::string> choices;
  std::string_view rest = row.value;
  while (true) {
    const auto bar = rest.find('|');
    choices.emplace_back(rest.substr(0, bar));
    if (bar == std::string_view::npos)
      return choices;
    rest.remove_prefix(bar + 1);
  }
}

std::string requireChoice(const OptionRow &row, const std::string &text) {
  const auto choices = choicesOf(row);
  if (choices.size() == 1)
    return text;
  const std::string value = underscored(lowered(text));
  if (std::find(choices.begin(), choices.end(), value) == choices.end())
    usage("--" + std::string(row.name) + " '" + text + "': expected " + row.value + didYouMean(value, choices));
  return value;
}

std::vector<std::string> splitList(const std::string &text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (true) {
    const auto comma = text.find(',', begin);
    parts.push_back(text.substr(begin, comma - begin));
    if (comma == std::string::npos)
      return parts;
    begin = comma + 1;
  }
}

/// Parses text into the member of a row.
struct Setter {
  Options &options;
  const OptionRow &row;
  const std::string &text;

  void operator()(bool Options::*member) const {
    const std::string value = lowered(text);
    const bool yes = value == "true" || value == "1" || value == "yes" || value == "on";
    if (!yes && value != "false" && value != "0" && value != "no" && value != "off")
      usage("--" + std::string(row.name) + "=" + text + ": expected true or false");
    options.*member = yes;
  }
  void operator()(std::int64_t Options::*member) const { options.*member = requireInteger(row, text); }
  void operator()(std::optional<std::int64_t> Options::*member) const { options.*member = requireInteger(row, text); }
  void operator()(double Options::*member) const {
    options.*member = requireDouble(row.name, text);
    requireInRange(row.name, row.name, options.*member);
  }
  void operator()(Interval Options::*member) const { options.*member = requireInterval(row, text); }
  void operator()(std::string Options::*member) const {
    if (text.empty())
      usage("--" + std::string(row.name) + " needs a value");
    options.*member = requireChoice(row, text);
  }
  void operator()(std::vector<std::string> Options::*member) const {
    for (std::string &part : splitList(text))
      (options.*member).push_back(std::move(part));
  }
};

/// Returns the member of a row as JSON.
struct Getter {
  const Options &options;

  std::string operator()(bool Options::*member) const { return options.*member ? "true" : "false"; }
  std::string operator()(std::int64_t Options::*member) const { return std::to_string(options.*member); }
  std::string operator()(std::optional<std::int64_t> Options::*member) const {
    return options.*member ? std::to_string(*(options.*member)) : "null";
  }
  std::string operator()(double Options::*member) const { return jsonNumber(options.*member); }
  std::string operator()(std::string Options::*member) const {
    return (options.*member).empty() ? "null" : jsonString(options.*member);
  }
  std::string operator()(Interval Options::*member) const {
    const Interval interval = options.*member;
    if (interval.count == 0)
      return "null";
    return interval.inEpochs ? jsonString(std::to_string(interval.count) + "epoch") : std::to_string(interval.count);
  }
  std::string operator()(std::vector<std::string> Options::*member) const {
    std::string text = "[";
    for (const std::string &part : options.*member)
      text += (text.size() > 1 ? "," : "") + jsonString(part);
    return text + "]";
  }
};

} // namespace

void usage(const std::string &message) { throw Failure(ExitCode::usage, message, true); }

std::string lowered(std::string text) {
  for (char &c : text)
    if (c >= 'A' && c <= 'Z')
      c = static_cast<char>(c - 'A' + 'a');
  return text;
}

std::string underscored(std::string text) {
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

void requireInRange(const std::string &option, std::string_view name, double value) {
  for (const Range &range : ranges)
    if (range.name == name && !(value >= 0 && (range.isOpen ? value < range.most : value <= range.most)))
      usage("--" + option + " " + jsonNumber(value) + ": expected " +
            (range.most == unbounded ? "a number of at least 0 that f32 has"
             : range.isOpen          ? "from 0 to below 1"
                                     : "from 0 to 1"));
}

double requireDouble(const std::string &option, std::string_view text) {
  const auto value = parsedNumber<double>(text);
  if (!value || !std::isfinite(*value))
    usage("--" + option + " '" + std::string(text) + "': expected a number");
  return *value;
}

std::pair<double, double> requirePair(const std::string &option, std::string text) {
  std::erase_if(text, [](char c) { return c == '(' || c == ')' || c == ' '; });
  const auto comma = text.find(',');
  if (comma == std::string::npos)
    usage("--" + option + " '" + text + "': expected two numbers, A,B");
  return {requireDouble(option, std::string_view(text).substr(0, comma)),
          requireDouble(option, std::string_view(text).substr(comma + 1))};
}

void setOption(Options &options, const OptionRow &row, const std::string &text) {
  std::visit(Setter{options, row, text}, row.member);
}

std::string optionJson(const Options &options, const OptionRow &row) { return std::visit(Getter{options}, row.member); }

} // namespace fsdpc::rt
