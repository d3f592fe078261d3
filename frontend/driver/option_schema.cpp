#include "frontend/driver/option_schema.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/YAMLParser.h"

namespace fsdpc {

char UsageError::ID = 0;

namespace {

llvm::Error usage(const llvm::Twine &message) { return llvm::make_error<UsageError>(message.str()); }

std::string canonicalName(llvm::StringRef name) {
  std::string canonical = name.lower();
  std::replace(canonical.begin(), canonical.end(), '-', '_');
  if (llvm::StringRef rest = canonical; rest.consume_front("fsdp_"))
    return rest.str();
  return canonical;
}

const OptionRow *findRow(llvm::StringRef name) {
  for (const OptionRow &row : optionTable())
    if (row.name == name)
      return &row;
  return nullptr;
}

template <class Names>
std::string nearest(llvm::StringRef wanted, const Names &names) {
  std::string best;
  unsigned bestDistance = std::max<unsigned>(3, static_cast<unsigned>(wanted.size()) / 2);
  for (llvm::StringRef name : names)
    if (unsigned distance = wanted.edit_distance(name, true, bestDistance); distance < bestDistance) {
      bestDistance = distance;
      best = name.str();
    }
  return best.empty() ? "" : " (did you mean " + best + "?)";
}

std::string nearestOption(llvm::StringRef wanted) {
  llvm::SmallVector<llvm::StringRef, 64> names;
  for (const OptionRow &row : optionTable())
    names.push_back(row.name);
  return nearest(wanted, names);
}

llvm::Expected<std::string> checkedChoice(const OptionRow &row, llvm::StringRef value) {
  llvm::SmallVector<llvm::StringRef, 8> entries, names;
  row.values.split(entries, '|');
  std::string wanted = value.lower();
  for (llvm::StringRef entry : entries) {
    auto [name, meaning] = entry.split('=');
    names.push_back(name);
    if (name == wanted)
      return (meaning.empty() ? name : meaning).str();
  }
  return usage("--" + row.name + " " + value + ": not one of " + llvm::join(names, ", ") + nearest(wanted, names));
}

/// Is the word a value of the row? Where not, a choice that may stand without a value does.
bool namesChoice(const OptionRow &row, llvm::StringRef word) {
  llvm::SmallVector<llvm::StringRef, 8> entries;
  row.values.split(entries, '|');
  return llvm::any_of(entries, [&](llvm::StringRef entry) { return word.equals_insensitive(entry.split('=').first); });
}

llvm::Expected<std::string> checkedValue(const OptionRow &row, llvm::StringRef value) {
  int64_t integer;
  double real;
  switch (row.kind) {
  case OptionKind::integer:
    if (value.getAsInteger(10, integer))
      return usage("--" + row.name + " " + value + ": an integer is expected");
    return value.str();
  case OptionKind::real:
    if (value.getAsDouble(real))
      return usage("--" + row.name + " " + value + ": a number is expected");
    return value.str();
  case OptionKind::choice: return checkedChoice(row, value);
  case OptionKind::boolean:
    if (value.equals_insensitive("true") || value == "1" || value.equals_insensitive("false") || value == "0")
      return std::string(value.equals_insensitive("true") || value == "1" ? "true" : "false");
    return usage("--" + row.name + " " + value + ": true or false is expected");
  default: return value.str();
  }
}

} // namespace

llvm::Error OptionValues::set(llvm::StringRef name, std::optional<llvm::StringRef> value, llvm::StringRef where) {
  std::string canonical = canonicalName(name);
  const OptionRow *row = findRow(canonical);
  bool negated = false;
  if (!row && llvm::StringRef(canonical).starts_with("no_")) {
    row = findRow(llvm::StringRef(canonical).drop_front(3));
    negated = row && (row->kind == OptionKind::boolean || !row->bareValue.empty());
    row = negated ? row : nullptr;
  }
  if (!row)
    return usage(where + ": unknown option " + name + nearestOption(canonical));
  givenNames.insert(row->name.str());
  if (row->kind == OptionKind::list) {
    // Lists of passes may be given with commas; names of dims and parameters hold none.
    llvm::SmallVector<llvm::StringRef, 4> parts;
    value->split(parts, ',', -1, false);
    for (llvm::StringRef part : parts)
      lists[row->name.str()].push_back(part.str());
    return llvm::Error::success();
  }
  if (negated && value)
    return usage(where + ": --" + name + " takes no value");
  llvm::StringRef bare = row->bareValue.empty() ? "true" : row->bareValue;
  llvm::StringRef opposite = row->bareValue.empty() ? "false" : row->defaultValue;
  llvm::Expected<std::string> checked = checkedValue(*row, negated ? opposite : value.value_or(bare));
  if (!checked)
    return checked.takeError();
  values[row->name.str()] = *checked;
  return llvm::Error::success();
}

llvm::Expected<OptionValues> OptionValues::parse(llvm::ArrayRef<std::string> arguments) {
  OptionValues result;
  for (size_t i = 0; i < arguments.size(); ++i) {
    llvm::StringRef argument = arguments[i];
    if (argument == "-o")
      argument = "--output";
    if (argument == "-h")
      argument = "--help";
    if (!argument.consume_front("--")) {
      result.positionals.push_back(arguments[i]);
      continue;
    }
    auto [name, inlineValue] = argument.split('=');
    bool hasInline = argument.contains('=');
    std::optional<llvm::StringRef> value;
    if (hasInline)
      value = inlineValue;
    const OptionRow *row = findRow(canonicalName(name));
    bool mayBeBare = row && !row->bareValue.empty();
    if (mayBeBare && !hasInline && i + 1 < arguments.size() && namesChoice(*row, arguments[i + 1]))
      value = arguments[++i];
    else if (row && row->kind != OptionKind::boolean && !mayBeBare && !hasInline) {
      if (i + 1 == arguments.size())
        return usage("--" + name + ": a value is missing");
      value = arguments[++i];
    }
    if (row && row->name == "config") {
      if (llvm::Error error = result.readConfig(*value))
        return error;
      continue;
    }
    if (llvm::Error error = result.set(name, value, "command line"))
      return error;
  }
  return result;
}

/// One flat mapping; JSON is read as the YAML it is.
llvm::Error OptionValues::readConfig(llvm::StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer)
    return usage("--config " + path + ": " + buffer.getError().message());
  llvm::SourceMgr sources;
  std::string problem;
  sources.setDiagHandler([](const llvm::SMDiagnostic &diagnostic,
                            void *text) { *static_cast<std::string *>(text) = diagnostic.getMessage().str(); },
                         &problem);
  llvm::yaml::Stream stream((*buffer)->getMemBufferRef(), sources, false);
  auto *mapping = llvm::dyn_cast_or_null<llvm::yaml::MappingNode>(stream.begin()->getRoot());
  if (!mapping)
    return usage("--config " + path + ": a mapping of option names to values is expected " + problem);
  for (llvm::yaml::KeyValueNode &entry : *mapping) {
    llvm::SmallString<64> keyStorage, valueStorage;
    auto *key = llvm::dyn_cast_or_null<llvm::yaml::ScalarNode>(entry.getKey());
    if (!key)
      return usage("--config " + path + ": a key is not a name");
    llvm::StringRef name = key->getValue(keyStorage);
    if (auto *scalar = llvm::dyn_cast_or_null<llvm::yaml::ScalarNode>(entry.getValue())) {
      llvm::StringRef value = scalar->getValue(valueStorage);
      if (name == "model")
        positionals.push_back(value.str());
      else if (llvm::Error error = set(name, value, path))
        return error;
    } else if (auto *sequence = llvm::dyn_cast_or_null<llvm::yaml::SequenceNode>(entry.getValue())) {
      for (llvm::yaml::Node &item : *sequence) {
        auto *text = llvm::dyn_cast<llvm::yaml::ScalarNode>(&item);
        if (!text)
          return usage("--config " + path + ": " + name + " holds something that is not a value");
        if (llvm::Error error = set(name, text->getValue(valueStorage), path))
          return error;
      }
    } else {
      return usage("--config " + path + ": " + name + " has no value");
    }
  }
  return stream.failed() ? usage("--config " + path + ": " + problem) : llvm::Error::success();
}

llvm::StringRef OptionValues::text(llvm::StringRef name) const {
  auto found = values.find(name.str());
  if (found != values.end())
    return found->second;
  const OptionRow *row = findRow(name);
  assert(row && "options are asked for by their schema name");
  return row->defaultValue;
}

int64_t OptionValues::integer(llvm::StringRef name) const {
  int64_t value = 0;
  bool bad = text(name).getAsInteger(10, value);
  assert(!bad && "integers are checked when parsed; absent ones are not asked for");
  (void)bad;
  return value;
}

double OptionValues::real(llvm::StringRef name) const {
  double value = 0;
  bool bad = text(name).getAsDouble(value);
  assert(!bad && "numbers are checked when parsed; absent ones are not asked for");
  (void)bad;
  return value;
}

bool OptionValues::flag(llvm::StringRef name) const { return text(name) == "true"; }

llvm::ArrayRef<std::string> OptionValues::list(llvm::StringRef name) const {
  auto found = lists.find(name.str());
  return found == lists.end() ? llvm::ArrayRef<std::string>() : llvm::ArrayRef<std::string>(found->second);
}

std::string OptionValues::toJson(bool indented) const {
  llvm::json::Object object;
  if (!positionals.empty())
    object["model"] = positionals.front();
  for (const OptionRow &row : optionTable()) {
    if (row.isAboutThisRun)
      continue;
    if (row.kind == OptionKind::list) {
      if (!list(row.name).empty())
        object[row.name] = llvm::json::Array(list(row.name));
      continue;
    }
    llvm::StringRef value = text(row.name);
    if (!value.empty())
      object[row.name] = value;
  }
  llvm::json::Value value(std::move(object));
  return indented ? llvm::formatv("{0:2}", value).str() : llvm::formatv("{0}", value).str();
}

std::string helpText() {
  std::string text =
      "usage: fsdpc MODEL.onnx|STAGE.fsir [options] -o OUT    compile\n"
      "       fsdpc inspect MODEL.onnx                      what the file holds\n"
      "       fsdpc verify STAGE.fsir                       verifier and schedule checker alone\n"
      "       fsdpc reduce STAGE.fsir [-o FILE] -- CHECK    the smallest module for which CHECK FILE still exits 0\n";
  llvm::raw_string_ostream out(text);
  llvm::StringRef group;
  for (const OptionRow &row : optionTable()) {
    if (row.group != group)
      out << '\n' << row.group << '\n';
    group = row.group;
    std::string left = "  --" + row.name.str() + (row.values.empty() ? "" : " " + row.values.str());
    out << llvm::left_justify(left, 44) << (left.size() >= 44 ? "  " : "") << row.help;
    if (!row.defaultValue.empty())
      out << " [" << row.defaultValue << ']';
    out << '\n';
  }
  return text;
}

} // namespace fsdpc
