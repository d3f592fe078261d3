#include "ir/facts.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace fsdpc {

namespace {

std::optional<std::string> printed(const std::string &text) {
  return text.empty() ? std::nullopt : std::optional(text);
}
std::optional<std::string> printed(bool isSo) { return isSo ? std::optional(std::string()) : std::nullopt; }
std::optional<std::string> printed(std::optional<int64_t> number) {
  return number ? std::optional(llvm::itostr(*number)) : std::nullopt;
}
template <class T>
std::optional<std::string> printed(std::optional<T> choice) {
  return choice ? std::optional(spelled(*choice)) : std::nullopt;
}

bool readInto(std::string &field, llvm::StringRef text) {
  field = text.str();
  return !text.empty();
}
bool readInto(bool &field, llvm::StringRef text) {
  field = true;
  return text.empty();
}
bool readInto(std::optional<int64_t> &field, llvm::StringRef text) {
  int64_t number;
  if (text.getAsInteger(10, number))
    return false;
  field = number;
  return true;
}
template <class T>
bool readInto(std::optional<T> &field, llvm::StringRef text) {
  field = choiceFrom<T>(text);
  return field.has_value();
}

template <class T>
llvm::SmallVector<llvm::StringRef, 6> spellingsOf(const std::optional<T> &) {
  if constexpr (std::is_enum_v<T>)
    return choiceSpellings<T>();
  return {};
}
llvm::SmallVector<llvm::StringRef, 6> spellingsOf(const std::string &) { return {}; }
llvm::SmallVector<llvm::StringRef, 6> spellingsOf(bool) { return {}; }

template <auto field>
Fact row(llvm::StringRef name) {
  return {name.str(), [](const Facts &facts, size_t) { return printed(facts.*field); },
          [](llvm::StringRef text, Facts &facts, size_t) { return readInto(facts.*field, text); },
          spellingsOf(Facts().*field)};
}

template <auto field>
Fact arenaRow(Space space, llvm::StringRef end) {
  return {("arena_" + nameOf(space) + end).str(),
          [](const Facts &facts, size_t index) { return printed(facts.arenas[index].*field); },
          [](llvm::StringRef text, Facts &facts, size_t index) {
            // Rejects sizes that are negative or near the limit of 64 bits, so that sums of sizes cannot overflow.
            std::optional<int64_t> &bytes = facts.arenas[index].*field;
            return readInto(bytes, text) && *bytes >= 0 && *bytes <= int64_t(1) << 60;
          },
          {},
          indexOf(space)};
}

std::vector<Fact> makeList() {
  std::vector<Fact> rows = {
      row<&Facts::modelLoss>("model_loss"),
      row<&Facts::modelLossOutput>("model_loss_output"),
      row<&Facts::modelLossError>("model_loss_error"),
      row<&Facts::loss>("loss"),
      row<&Facts::lossReduction>("loss_reduction"),
      row<&Facts::labels>("labels"),
      row<&Facts::shiftedLabels>("shifted_labels"),
      row<&Facts::ignoreIndex>("ignore_index"),
      row<&Facts::optimizer>("optimizer"),
      row<&Facts::isOrderedByEvents>("ordered_by_events"),
      row<&Facts::lastPass>("last_pass"),
  };
  for (Space space : allSpaces) {
    rows.push_back(arenaRow<&ArenaSize::bytes>(space, "_bytes"));
    rows.push_back(arenaRow<&ArenaSize::usedBytes>(space, "_used_bytes"));
    rows.push_back(arenaRow<&ArenaSize::predictBytes>(space, "_predict_bytes"));
  }
  llvm::sort(rows, [](const Fact &a, const Fact &b) { return a.name < b.name; });
  return rows;
}

} // namespace

llvm::ArrayRef<Fact> factList() {
  static const std::vector<Fact> list = makeList();
  return list;
}

} // namespace fsdpc
