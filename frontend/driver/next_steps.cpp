#include "frontend/driver/next_steps.h"

#include "ir/reserved_names.h"
#include "passes/passes.h"
#include "passes/support/bytes_text.h"
#include "llvm/ADT/StringExtras.h"

namespace fsdpc {

namespace {

/// An input of the program that data must fill, without its batch dim.
struct Field {
  std::string name;
  Type ofSample;
};

/// --sample_packing fills the inputs that --separate_documents has added.
bool isFilled(llvm::StringRef name, bool separatesDocuments) {
  return separatesDocuments && (name == documentIdsName || name == documentPositionsName);
}

std::vector<Field> fieldsOf(const Module &module, bool separatesDocuments) {
  std::vector<Field> fields;
  for (const Argument &argument : module.function(FunctionKind::microStep)->arguments())
    if (argument.kind == ArgumentKind::input && !names::isReserved(argument.name) &&
        !isFilled(argument.name, separatesDocuments)) {
      const Type &type = argument.value->type();
      fields.push_back({argument.name, Type(type.dtype(), type.shape().drop_front(type.rank() > 0))});
    }
  return fields;
}

/// Whether a row of tokens gives input and labels.
bool takesTokens(llvm::ArrayRef<Field> fields) {
  return fields.size() == 2 && fields[0].ofSample == fields[1].ofSample && fields[0].ofSample.rank() == 1 &&
         fields[0].ofSample.dtype() == DType::i64;
}

std::string dataText(const Module &module, bool separatesDocuments) {
  const std::vector<Field> fields = fieldsOf(module, separatesDocuments);
  std::vector<std::string> texts;
  for (const Field &field : fields)
    texts.push_back(field.name + " " + toString(field.ofSample));
  std::string text = "DATA, a sample: " + llvm::join(texts, ", ") +
                     (separatesDocuments ? " or shorter (.safetensors with NAME.offsets)" : " (.safetensors, .npy)");
  if (takesTokens(fields))
    text += "; or tokens, " + std::to_string(fields[0].ofSample.dim(0) + 1) + " for each sample (.bin)" +
            (separatesDocuments ? ", with --document_end TOKEN" : "");
  return text + "\n";
}

std::string chosenByDefault(const Compilation &compilation, const OptionValues &values) {
  std::vector<std::string> chosen;
  if (!values.given("target"))
    chosen.push_back("target " + compilation.target->name().str());
  if (!values.given("strategy"))
    chosen.push_back("strategy " + values.text("strategy").str());
  if (!values.given("optimizer"))
    chosen.push_back("optimizer " + values.text("optimizer").str());
  if (!values.given("lr"))
    chosen.push_back("lr " + values.text("lr").str());
  return chosen.empty() ? "" : "by default: " + llvm::join(chosen, ", ") + "\n";
}

/// As a shell takes it.
std::string shellWord(llvm::StringRef word) {
  constexpr llvm::StringLiteral plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-=.,/:+";
  return word.find_first_not_of(plain) == llvm::StringRef::npos ? word.str() : "'" + word.str() + "'";
}

/// The options that a configuration has for the program, and those that it lacks to train.
std::string trainOptions(const OptionValues &values) {
  std::string text;
  for (const std::string &word : values.trainWords())
    text += " " + shellWord(word);
  const auto has = [&](llvm::StringRef name) {
    return llvm::any_of(values.trainWords(),
                        [&](llvm::StringRef word) { return word.drop_front(2).split('=').first == name; });
  };
  text += has("sample_packing") || !values.flag("separate_documents") ? "" : " --sample_packing";
  text += has("train_data") || has("batch") ? "" : " --train_data DATA";
  text += has("steps") || has("epochs") ? "" : " --steps 100";
  text += has("log") ? "" : " --log log.jsonl";
  return text + (has("save_model") ? "" : " --save_model trained.safetensors");
}

std::string launcher(int64_t ranks, const OptionValues &values) {
  std::string text = ranks == 1 ? "" : "mpirun -n " + std::to_string(ranks) + " ";
  for (const std::string &word : values.launchWords())
    text += ranks == 1 ? "" : shellWord(word) + " ";
  return text;
}

} // namespace

std::string nextSteps(const Compilation &compilation, const OptionValues &values) {
  const Module &module = *compilation.module;
  const int64_t ranks = module.worldSize();
  const int64_t bytes = module.facts.arenaBytes(Space::privateSpace) + module.facts.arenaBytes(Space::window);
  const std::string program = values.text("output").rtrim('/').str() + "/train";
  const bool isProgram = values.text("emit") == "program";
  std::string text = (isProgram ? "built " + program : "wrote the source of " + program) + " for " +
                     std::to_string(ranks) + (ranks == 1 ? " rank: " : " ranks: ") + compilation.target->name().str() +
                     ", " + bytesText(bytes) + " per rank\n" + chosenByDefault(compilation, values);
  if (!isProgram)
    text += "build it:  cmake -S " + values.text("output").str() + " -B BUILD && cmake --build BUILD\n";
  text += "train it:  " + launcher(ranks, values) + program + trainOptions(values) + "\n";
  return text + dataText(module, values.flag("separate_documents"));
}

} // namespace fsdpc
