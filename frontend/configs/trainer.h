// How the file of one trainer is read: a table of its keys, and what several of them mean together.
#pragma once

#include "frontend/configs/setting.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringMap.h"
#include <deque>

namespace fsdpc {

/// Who takes an option: the compiler, the compiled program, the launcher (words of mpirun), or nobody.
enum class Receiver : uint8_t { nobody, compiler, program, launcher };

/// An option that a file means.
struct AdoptedOption {
  Receiver receiver = Receiver::nobody;
  std::string name, value;
  std::string where; ///< file, line and key, for messages
};

/// A line about one key for the user. If `option` is not empty, the key sets that option of the compiler, which is
/// shown as `set`, or leaves it open if that is empty; then the line depends on whether it is given.
struct ConfigLine {
  std::string text, option = {}, set = {};
};

/// A setting that would train something else, or is none of the trainer's. If `option` is not empty, that option of the
/// command line decides instead.
struct RefusedSetting {
  std::string text, option;
};

/// What a file of another trainer means.
struct Adopted {
  std::vector<AdoptedOption> options;
  std::vector<ConfigLine> lines;
  std::vector<RefusedSetting> refusals; ///< at most some tens
};

/// What becomes of one key of a trainer. `values`: "" for any, else "a|b=c|d=|*": values that are accepted, in any
/// case; b means c, d changes nothing, * is any other. `true` and `false` stand for all their spellings. A value that
/// is not listed is refused with the reason.
struct KeyRow {
  enum class Action : uint8_t {
    maps,     ///< the value is that of `option`
    combines, ///< Trainer::combine decides; `reason` says what of
    unread,   ///< has no effect here, and `reason` says why
    neutral,  ///< only `values` are accepted, and change nothing; of a mapping, that it is not `enabled`
  };
  llvm::StringRef key; ///< from the root: "fsdp_config.version"
  Action action;
  Receiver receiver = Receiver::nobody;
  llvm::StringRef option = {};
  llvm::StringRef values = {};
  llvm::StringRef reason = {};
  /// The trainer's own value if the file has none, where that changes what is trained.
  llvm::StringRef implied = {};
};

constexpr KeyRow maps(llvm::StringRef key, llvm::StringRef option, llvm::StringRef values = {},
                      llvm::StringRef reason = {}, llvm::StringRef implied = {}) {
  return {key, KeyRow::Action::maps, Receiver::compiler, option, values, reason, implied};
}
constexpr KeyRow trains(llvm::StringRef key, llvm::StringRef option, llvm::StringRef values = {},
                        llvm::StringRef reason = {}, llvm::StringRef implied = {}) {
  return {key, KeyRow::Action::maps, Receiver::program, option, values, reason, implied};
}
constexpr KeyRow launches(llvm::StringRef key, llvm::StringRef option) {
  return {key, KeyRow::Action::maps, Receiver::launcher, option};
}
constexpr KeyRow combines(llvm::StringRef key, llvm::StringRef reason) {
  return {key, KeyRow::Action::combines, Receiver::nobody, {}, {}, reason};
}
constexpr KeyRow unread(llvm::StringRef key, llvm::StringRef reason) {
  return {key, KeyRow::Action::unread, Receiver::nobody, {}, {}, reason};
}
/// `option`: the one of the compiler that decides instead, if the command line has it.
constexpr KeyRow needs(llvm::StringRef key, llvm::StringRef values, llvm::StringRef reason,
                       llvm::StringRef option = {}) {
  return {key, KeyRow::Action::neutral, Receiver::compiler, option, values, reason};
}

/// Many keys with equal rows. The key of `row` is the section that they are in, or "".
struct KeyGroup {
  KeyRow row;
  llvm::StringRef keys; ///< without their section, separated by spaces
};

/// All rows of a trainer.
class KeyTable {
public:
  KeyTable(std::initializer_list<llvm::ArrayRef<KeyRow>> lists, llvm::ArrayRef<KeyGroup> groups);
  KeyTable(const KeyTable &) = delete;
  llvm::ArrayRef<KeyRow> rows() const { return all; }

private:
  std::vector<KeyRow> all;
  std::deque<std::string> names; ///< which rows refer to
};

class Translation;

struct Trainer {
  llvm::StringRef name; ///< as its authors write it
  /// Whether the file is one of this trainer.
  bool (*recognizes)(const Setting &root);
  llvm::ArrayRef<KeyRow> (*rows)();
  /// The key of a row for the key of a file, which may have another spelling.
  std::string (*canonicalKey)(llvm::StringRef key);
  /// Why the trainer does not read a section of this file; "" if it does.
  std::string (*unreadSection)(const Setting &root, llvm::StringRef section);
  /// What several keys mean together. Runs after the rows.
  llvm::Error (*combine)(Translation &translation);
};

/// The trainer that the file is for, or null if the file is fsdpc's own.
const Trainer *trainerOf(const Setting &root);

/// The options that the file means. Unknown keys and values that would train something else are among the refusals,
/// with file, line, key and reason. Error: a file that this one names cannot be read.
llvm::Expected<Adopted> adopt(const Trainer &trainer, const Setting &root, llvm::StringRef path);

} // namespace fsdpc
