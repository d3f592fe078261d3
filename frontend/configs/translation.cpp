#include "frontend/configs/translation.h"

#include "ir/usage_error.h"
#include "runtime/common/spelling.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include <charconv>
#include <cmath>

namespace fsdpc {

std::string canonicalValue(llvm::StringRef text) {
  const std::string lowered = text.trim().lower();
  for (llvm::StringRef word : {"true", "yes", "on", "y"})
    if (lowered == word)
      return "true";
  for (llvm::StringRef word : {"false", "no", "off", "n"})
    if (lowered == word)
      return "false";
  return lowered;
}

std::string numberText(double value) {
  char digits[32];
  return std::string(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

/// YAML's words for no value. An empty list or mapping says nothing, either.
static bool saysNothing(const Setting &setting) {
  if (!setting.isScalar())
    return setting.items.empty();
  const std::string text = canonicalValue(setting.text);
  return text.empty() || text == "null" || text == "~";
}

/// Items of lists or mappings.
static bool isSame(llvm::ArrayRef<Setting> a, llvm::ArrayRef<Setting> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Setting &first, const Setting &second) {
    return first.name == second.name && first.text == second.text && isSame(first.items, second.items);
  });
}

std::string keyIn(llvm::StringRef section, llvm::StringRef name) {
  return section.empty() ? name.str() : (section + "." + name).str();
}

constexpr size_t mostRefusals = 30;

/// "--x V", or "--x" and "--no_x" for booleans.
static std::string optionText(llvm::StringRef option, llvm::StringRef value) {
  if (value == "true" || value == "false")
    return (value == "true" ? "--" : "--no_") + option.str();
  return ("--" + option + " " + value).str();
}

Translation::Translation(const Trainer &trainer, llvm::StringRef path) : trainer(trainer), path(path.str()) {
  for (const KeyRow &row : trainer.rows()) {
    rows[row.key] = &row;
    for (size_t dot = row.key.find('.'); dot != llvm::StringRef::npos; dot = row.key.find('.', dot + 1))
      sections.insert(row.key.take_front(dot));
  }
}

llvm::Error Translation::read(const Setting &file) {
  root = &file;
  collect(file, "", "");
  for (const Entry &entry : entries)
    apply(entry, *rows.find(entry.canonical)->second);
  applyImplied();
  return trainer.combine(*this);
}

/// A mapping that is no row is a section. Settings are at most maxConfigDepth deep.
void Translation::collect(const Setting &mapping, llvm::StringRef shownPrefix, llvm::StringRef prefix) {
  for (const Setting &setting : mapping.items) {
    std::string shown = keyIn(shownPrefix, setting.name);
    std::string canonical = trainer.canonicalKey(keyIn(prefix, setting.name));
    const bool isRow = rows.contains(canonical);
    const std::string reason = trainer.unreadSection(*root, canonical);
    if (adopted.refusals.size() >= mostRefusals)
      return;
    if (!isRow && !sections.contains(canonical))
      refuseUnknown(setting, shown, canonical);
    else if (saysNothing(setting))
      continue;
    else if (!reason.empty())
      noteKey(shown, reason);
    else if (setting.isMapping() && sections.contains(canonical))
      collect(setting, shown, canonical);
    else if (isRow)
      addEntry(setting, std::move(shown), std::move(canonical));
    else
      complain(setting.where + ": " + shown + ": " + setting.shown() + ": keys and values are expected");
  }
}

/// A key may be repeated, or given in two spellings, only with one value.
void Translation::addEntry(const Setting &setting, std::string shown, std::string canonical) {
  auto [known, isNew] = index.try_emplace(canonical, entries.size());
  if (isNew)
    entries.push_back({&setting, std::move(shown), std::move(canonical)});
  else if (const Entry &first = entries[known->second];
           first.setting->text != setting.text || !isSame(first.setting->items, setting.items))
    complain(setting.where + ": " + shown + ": " + setting.shown() + ": but " + first.setting->where + " says " +
             first.setting->shown());
}

void Translation::complain(const llvm::Twine &text, llvm::StringRef option) {
  if (adopted.refusals.size() < mostRefusals)
    adopted.refusals.push_back({text.str(), option.str()});
}

void Translation::refuseUnknown(const Setting &setting, llvm::StringRef shown, llvm::StringRef canonical) {
  const auto [section, leaf] = canonical.contains('.') ? canonical.rsplit('.') : std::pair("", canonical);
  std::vector<std::string> names;
  for (const KeyRow &row : trainer.rows()) {
    llvm::StringRef rest = row.key;
    if (section.empty() || (rest.consume_front(section) && rest.consume_front(".")))
      names.push_back(rest.split('.').first.str());
  }
  llvm::StringRef prefix = llvm::StringRef(setting.name).ends_with(leaf)
                               ? llvm::StringRef(setting.name).drop_back(leaf.size())
                               : llvm::StringRef();
  complain(setting.where + ": " + shown.take_front(100) + ": is no key of " + trainer.name +
           rt::didYouMean(std::string_view(leaf), names, std::string_view(prefix)));
}

void Translation::apply(const Entry &entry, const KeyRow &row) {
  switch (row.action) {
  case KeyRow::Action::combines: return;
  case KeyRow::Action::unread:
    if (text(row.key) != "false") // which asks for nothing
      note(row.key, row.reason);
    return;
  case KeyRow::Action::maps:
  case KeyRow::Action::neutral: return applyValue(entry, row);
  }
}

/// The value that a row's list gives for a value of the file; nullopt if it is not listed.
static std::optional<std::string> listedValue(llvm::StringRef values, llvm::StringRef value) {
  llvm::SmallVector<llvm::StringRef, 8> listed;
  values.split(listed, '|');
  for (llvm::StringRef entry : listed) {
    auto [from, to] = entry.split('=');
    if (from == "*")
      return value.str();
    if (from == value)
      return (entry.contains('=') ? to : from).str();
  }
  return std::nullopt;
}

/// What is wrong with a value that a row's list does not have.
static std::string isNoneOf(llvm::StringRef values, llvm::StringRef value) {
  std::vector<std::string> names;
  for (llvm::StringRef entry : llvm::split(values, '|'))
    names.push_back(entry.split('=').first.str());
  return "is none of " + llvm::join(names, ", ") + rt::didYouMean(std::string_view(value), names);
}

void Translation::applyValue(const Entry &entry, const KeyRow &row) {
  const Setting &setting = *entry.setting;
  const bool isScalar = setting.isScalar();
  const std::string value = isScalar ? canonicalValue(setting.text) : "";
  if (row.action == KeyRow::Action::maps && row.values.empty() && isScalar && value != "auto")
    return use(row.key, row.receiver, row.option, value == "true" || value == "false" ? value : setting.text);
  const Setting *enabled = row.action == KeyRow::Action::neutral ? setting.find("enabled") : nullptr;
  if (enabled && canonicalValue(enabled->text) == "false")
    return;
  const bool isOpen = value == "auto" && row.action == KeyRow::Action::maps && !row.values.contains("auto");
  if (isOpen)
    return leaveOpen(row.key, row.option, row.receiver);
  const std::optional<std::string> listed = isScalar ? listedValue(row.values, value) : std::nullopt;
  if (!listed)
    return refuse(row.key,
                  !row.reason.empty() ? row.reason.str()
                  : isScalar          ? isNoneOf(row.values, value)
                                      : "one value is expected",
                  row.receiver == Receiver::compiler ? row.option : "");
  if (row.action == KeyRow::Action::maps && !listed->empty())
    use(row.key, row.receiver, row.option, *listed);
}

void Translation::applyImplied() {
  for (const KeyRow &row : trainer.rows())
    if (!row.implied.empty() && !find(row.key)) {
      const std::optional<std::string> listed = listedValue(row.values, row.implied);
      useDefault(row.key, row.implied, row.receiver, row.option, listed ? *listed : row.implied.str());
    }
}

const Translation::Entry *Translation::entryOf(llvm::StringRef key) const {
  assert(rows.contains(key) && "keys are those of the rows");
  auto found = index.find(key);
  return found == index.end() ? nullptr : &entries[found->second];
}

const Setting *Translation::find(llvm::StringRef key) const {
  const Entry *entry = entryOf(key);
  return entry ? entry->setting : nullptr;
}

std::string Translation::text(llvm::StringRef key) const {
  const Setting *setting = find(key);
  return setting && setting->isScalar() ? canonicalValue(setting->text) : "";
}

std::optional<int64_t> Translation::integer(llvm::StringRef key) {
  const std::optional<double> value = real(key);
  if (!value)
    return std::nullopt;
  if (*value != std::floor(*value) || std::abs(*value) > 1e15) {
    refuse(key, "an integer is expected");
    return std::nullopt;
  }
  return static_cast<int64_t>(*value);
}

std::optional<double> Translation::real(llvm::StringRef key) {
  double value;
  if (!find(key))
    return std::nullopt;
  if (!llvm::StringRef(text(key)).getAsDouble(value) && std::isfinite(value))
    return value;
  refuse(key, "a number is expected");
  return std::nullopt;
}

void Translation::add(Receiver receiver, llvm::StringRef option, llvm::StringRef value, std::string where,
                      const llvm::Twine &line) {
  const std::string shown = receiver == Receiver::launcher  ? ("mpirun " + option + " " + value).str()
                            : receiver == Receiver::program ? "out/train " + optionText(option, value)
                                                            : optionText(option, value);
  adopted.options.push_back({receiver, option.str(), value.str(), std::move(where)});
  adopted.lines.push_back(receiver == Receiver::compiler ? ConfigLine{line.str(), option.str(), shown}
                                                         : ConfigLine{(line + " -> " + shown).str()});
}

void Translation::use(llvm::StringRef key, Receiver receiver, llvm::StringRef option, llvm::StringRef value) {
  const Entry &entry = *entryOf(key);
  add(receiver, option, value, entry.setting->where + ": " + entry.shown, entry.shown + ": " + entry.setting->shown());
}

void Translation::useValue(llvm::StringRef key, llvm::StringRef option, Receiver receiver) {
  const Setting &setting = *find(key);
  if (!setting.isScalar())
    return refuse(key, "one value is expected");
  const std::string value = canonicalValue(setting.text);
  if (value == "auto")
    return leaveOpen(key, option, receiver);
  use(key, receiver, option, value == "true" || value == "false" ? value : setting.text);
}

void Translation::useList(llvm::StringRef key, llvm::StringRef option) {
  const Setting *setting = find(key);
  if (!setting || setting->isScalar())
    return setting ? useValue(key, option) : void();
  compile(key, option, llvm::join(setting->texts(), ","));
}

void Translation::useDefault(llvm::StringRef key, llvm::StringRef shown, Receiver receiver, llvm::StringRef option,
                             llvm::StringRef value) {
  const std::string line = (key + ": " + shown).str();
  add(receiver, option, value, path + ": " + key.str(), line + " by default in " + trainer.name);
}

void Translation::note(llvm::StringRef key, llvm::StringRef reason) { noteKey(entryOf(key)->shown, reason); }

void Translation::noteKey(std::string shown, llvm::StringRef reason) {
  auto known = llvm::find_if(unread, [&](const auto &entry) { return entry.first == reason; });
  if (known == unread.end())
    unread.push_back({reason.str(), {std::move(shown)}});
  else
    known->second.push_back(std::move(shown));
}

void Translation::refuse(llvm::StringRef key, llvm::StringRef reason, llvm::StringRef option) {
  const Entry &entry = *entryOf(key);
  complain(entry.setting->where + ": " + entry.shown + ": " + entry.setting->shown() + ": " + reason, option);
}

void Translation::leaveOpen(llvm::StringRef key, llvm::StringRef option, Receiver receiver) {
  const std::string text = entryOf(key)->shown + ": " + entryOf(key)->setting->shown();
  if (receiver == Receiver::compiler)
    adopted.lines.push_back({text, option.str()});
  else
    adopted.lines.push_back({text + ": not set; out/train --" + option.str() + " sets it"});
}

std::string Translation::besides(llvm::StringRef name) const {
  llvm::SmallString<128> beside(llvm::sys::path::parent_path(path));
  llvm::sys::path::append(beside, name);
  const bool isHere = llvm::sys::path::is_absolute(name) || llvm::sys::fs::exists(name);
  return isHere || !llvm::sys::fs::exists(beside) ? name.str() : beside.str().str();
}

llvm::Error Translation::include(llvm::StringRef key, const Trainer &nested, const Setting &root) {
  Translation inner(nested, path);
  if (llvm::Error error = inner.read(root))
    return error;
  const std::string prefix = entryOf(key)->shown + ": ";
  for (ConfigLine &line : inner.adopted.lines)
    adopted.lines.push_back({prefix + line.text, line.option, line.set});
  for (const auto &[reason, keys] : inner.unread)
    for (const std::string &inside : keys)
      noteKey(entryOf(key)->shown + "." + inside, reason);
  llvm::append_range(adopted.options, inner.adopted.options);
  llvm::append_range(adopted.refusals, inner.adopted.refusals);
  return llvm::Error::success();
}

Adopted Translation::finish() {
  for (const auto &[reason, keys] : unread)
    adopted.lines.push_back({llvm::join(keys, ", ") + ": not read: " + reason});
  return std::move(adopted);
}

} // namespace fsdpc
