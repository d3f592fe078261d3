// One file on its way to options: its keys by the rows of its trainer, and what becomes of them.
#pragma once

#include "frontend/configs/trainer.h"
#include "llvm/ADT/StringSet.h"
#include <optional>

namespace fsdpc {

/// The value in lower case; "true" or "false" for all spellings of those.
std::string canonicalValue(llvm::StringRef text);

/// The key of a name in a section; "": at the root.
std::string keyIn(llvm::StringRef section, llvm::StringRef name);

/// The shortest decimal of a number.
std::string numberText(double value);

class Translation {
public:
  Translation(const Trainer &trainer, llvm::StringRef path);

  /// Takes the file's keys and applies the rows, then the trainer's `combine`.
  llvm::Error read(const Setting &root);
  Adopted finish();

  // For `combine`. Keys are those of the rows.

  /// Null if the file has no such key, or no value for it.
  const Setting *find(llvm::StringRef key) const;
  /// canonicalValue of a scalar; "" if there is none.
  std::string text(llvm::StringRef key) const;
  bool isOn(llvm::StringRef key) const { return text(key) == "true"; }
  /// Refuses a value that is not an integer.
  std::optional<int64_t> integer(llvm::StringRef key);
  std::optional<double> real(llvm::StringRef key);
  /// The option has the value, because of the key.
  void use(llvm::StringRef key, Receiver receiver, llvm::StringRef option, llvm::StringRef value);
  void compile(llvm::StringRef key, llvm::StringRef option, llvm::StringRef value) {
    use(key, Receiver::compiler, option, value);
  }
  /// The option has the value of the key, which stays open if it is "auto".
  void useValue(llvm::StringRef key, llvm::StringRef option, Receiver receiver = Receiver::compiler);
  /// The same for a list, whose items are joined by commas. Does nothing if there is none.
  void useList(llvm::StringRef key, llvm::StringRef option);
  /// The option has the value, because the trainer does so if its file says nothing.
  void useDefault(llvm::StringRef key, llvm::StringRef shown, Receiver receiver, llvm::StringRef option,
                  llvm::StringRef value);
  void note(llvm::StringRef key, llvm::StringRef reason);
  void refuse(llvm::StringRef key, llvm::StringRef reason, llvm::StringRef option = "");
  /// The file leaves the option to the command line.
  void leaveOpen(llvm::StringRef key, llvm::StringRef option, Receiver receiver = Receiver::compiler);
  /// Reads a file of another trainer that is nested in this one, below `key` or in the file that `key` names.
  llvm::Error include(llvm::StringRef key, const Trainer &nested, const Setting &root);

  /// The file of a path in this file, which is relative to the current folder, or to the folder of this file.
  std::string besides(llvm::StringRef name) const;

private:
  /// A key of the file that has a value.
  struct Entry {
    const Setting *setting;
    std::string shown;     ///< the key as the file spells it, from the root
    std::string canonical; ///< as in the rows
  };

  void collect(const Setting &mapping, llvm::StringRef shownPrefix, llvm::StringRef prefix);
  void addEntry(const Setting &setting, std::string shown, std::string canonical);
  /// Beyond some tens of refusals, more of them help nobody.
  void complain(const llvm::Twine &text, llvm::StringRef option = "");
  void refuseUnknown(const Setting &setting, llvm::StringRef shown, llvm::StringRef canonical);
  void apply(const Entry &entry, const KeyRow &row);
  void applyValue(const Entry &entry, const KeyRow &row);
  void applyImplied();
  void noteKey(std::string shown, llvm::StringRef reason);
  const Entry *entryOf(llvm::StringRef key) const;
  void add(Receiver receiver, llvm::StringRef option, llvm::StringRef value, std::string where,
           const llvm::Twine &line);

  const Trainer &trainer;
  std::string path;
  const Setting *root = nullptr;
  llvm::StringMap<const KeyRow *> rows;
  llvm::StringSet<> sections;
  std::vector<Entry> entries; ///< in the order of the file
  llvm::StringMap<size_t> index;
  Adopted adopted;
  /// The keys without effect, by the reason.
  std::vector<std::pair<std::string, std::vector<std::string>>> unread;
};

extern const Trainer accelerate, axolotl, deepSpeed, torchTitan;

/// The strategy of a ZeRO stage, or "".
std::string zeroStrategy(llvm::StringRef stage);

} // namespace fsdpc
