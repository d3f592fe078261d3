// The options schema: how options are spelled, what is refused and with which hint, configs, and the JSON that
// reproduces a compile.
#include "frontend/options/help.h"
#include "frontend/options/option_schema.h"
#include "ir/choices.h"
#include "runtime/common/familiar_options.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <gmock/gmock.h>

namespace fsdpc {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Words = std::vector<std::string>;

OptionValues parsed(const Words &words) {
  llvm::Expected<OptionValues> values = OptionValues::parse(words);
  if (values)
    return std::move(*values);
  ADD_FAILURE() << llvm::toString(values.takeError());
  return {};
}

/// The message of the UsageError; anything else fails the test.
std::string refusal(const Words &words) {
  llvm::Expected<OptionValues> values = OptionValues::parse(words);
  if (values) {
    ADD_FAILURE() << "accepted: " << llvm::join(words, " ");
    return "";
  }
  llvm::Error error = values.takeError();
  EXPECT_TRUE(error.isA<UsageError>());
  return llvm::toString(std::move(error));
}

/// A file with this text, removed at the end of the test.
class ConfigFile {
public:
  explicit ConfigFile(llvm::StringRef text) {
    llvm::SmallString<128> name;
    std::error_code error = llvm::sys::fs::createTemporaryFile("options", "yaml", name);
    EXPECT_FALSE(error) << error.message();
    remover.setFile(name);
    path = name.str();
    llvm::raw_fd_ostream(path, error) << text;
    EXPECT_FALSE(error) << error.message();
  }
  std::string path;

private:
  llvm::FileRemover remover;
};

/// Option values of a configuration file with this text, followed by `words`.
OptionValues configured(llvm::StringRef text, Words words = {}) {
  ConfigFile file(text);
  words.insert(words.begin(), {"--config", file.path});
  return parsed(words);
}

std::string refusedConfig(llvm::StringRef text) {
  ConfigFile file(text);
  std::string message = refusal({"--config", file.path});
  EXPECT_THAT(message, HasSubstr(file.path));
  return message;
}

llvm::json::Object jsonOf(const OptionValues &values) {
  llvm::Expected<llvm::json::Value> json = llvm::json::parse(values.toJson(false));
  if (!json || !json->getAsObject()) {
    ADD_FAILURE() << "not an object: " << values.toJson(false);
    llvm::consumeError(json.takeError());
    return {};
  }
  return *json->getAsObject();
}

//===- The table ----------------------------------------------------------===//

TEST(OptionTable, DefaultsAreValuesOfTheirOptions) {
  for (const OptionRow &row : optionTable())
    if (row.kind != OptionKind::list && !row.defaultValue.empty() && row.name != "config") {
      OptionValues values = parsed({"--" + row.name.str() + "=" + row.defaultValue.str()});
      EXPECT_EQ(values.text(row.name), row.defaultValue) << row.name.str();
    }
}

/// The values that the help lists without the spellings of other tools, which have the form other=value.
std::string listedValues(llvm::StringRef name) {
  const OptionRow *row = llvm::find_if(optionTable(), [&](const OptionRow &row) { return row.name == name; });
  llvm::SmallVector<llvm::StringRef, 8> values;
  row->values.split(values, '|');
  llvm::erase_if(values, [](llvm::StringRef value) { return value.contains('='); });
  llvm::sort(values);
  return llvm::join(values, ", ");
}

template <class T>
std::string spelledValues() {
  llvm::SmallVector<llvm::StringRef, 8> values;
  std::string text = choiceValues<T>();
  llvm::StringRef(text).split(values, ", ");
  llvm::sort(values);
  return llvm::join(values, ", ");
}

TEST(OptionTable, ListsTheValuesOfTheTypesThatOptionsSet) {
  EXPECT_EQ(listedValues("optimizer"), spelledValues<OptimizerKind>());
  EXPECT_EQ(listedValues("nonfinite"), spelledValues<NonFinite>());
  EXPECT_EQ(listedValues("streams"), spelledValues<Streams>());
  EXPECT_EQ(listedValues("cuda_graph"), spelledValues<CudaGraph>());
  EXPECT_EQ(listedValues("loss"), spelledValues<LossKind>());
  EXPECT_EQ(listedValues("loss_reduction"), spelledValues<LossReduction>());
  EXPECT_EQ(listedValues("auto_wrap_policy"), spelledValues<WrapPolicy>());
}

TEST(OptionTable, NamesAreUniqueAndCanonical) {
  std::set<llvm::StringRef> names;
  for (const OptionRow &row : optionTable()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name.str();
    EXPECT_EQ(row.name.lower(), row.name.str());
    EXPECT_FALSE(row.name.contains('-') || row.name.starts_with("fsdp_")) << row.name.str();
  }
}

TEST(OptionTable, HelpNamesEveryOption) {
  std::string help = helpText();
  for (const OptionRow &row : optionTable())
    EXPECT_THAT(help, HasSubstr("\n  --" + row.name.str())) << row.name.str();
}

//===- Spelling -----------------------------------------------------------===//

TEST(Options, DashesUnderscoresPrefixesAndCaseNameTheSameOption) {
  for (const char *name : {"--world_size", "--world-size", "--WORLD_SIZE", "--fsdp_world_size", "--FSDP-World-Size"}) {
    EXPECT_EQ(parsed({name, "4"}).integer("world_size"), 4) << name;
    EXPECT_EQ(parsed({name + std::string("=8")}).integer("world_size"), 8) << name;
  }
}

TEST(Options, ChoicesIgnoreCaseAndKnowSynonyms) {
  for (const char *value : {"full_shard", "FULL_SHARD", "1", "Zero3"})
    EXPECT_EQ(parsed({"--strategy", value}).text("strategy"), "full_shard") << value;
}

TEST(Options, AChoiceThatMayStandAloneTakesOnlyItsOwnValues) {
  EXPECT_EQ(parsed({}).text("deterministic"), "off");
  EXPECT_EQ(parsed({"--deterministic"}).text("deterministic"), "strategy");
  EXPECT_EQ(parsed({"--deterministic", "World"}).text("deterministic"), "world");
  EXPECT_EQ(parsed({"--deterministic=true"}).text("deterministic"), "strategy");
  EXPECT_EQ(parsed({"--deterministic", "--no_deterministic"}).text("deterministic"), "off");
  OptionValues values = parsed({"--deterministic", "model.onnx", "-o", "out"});
  EXPECT_EQ(values.text("deterministic"), "strategy");
  EXPECT_THAT(values.positional(), ElementsAre("model.onnx"));
  EXPECT_EQ(configured("deterministic: true").text("deterministic"), "strategy");
  EXPECT_THAT(refusal({"--deterministic=always"}), HasSubstr("not one of"));
}

TEST(Options, BooleansTakeNoFurtherWord) {
  OptionValues values = parsed({"--nesterov", "model.onnx"});
  EXPECT_TRUE(values.flag("nesterov"));
  EXPECT_THAT(values.positional(), ElementsAre("model.onnx"));
}

TEST(Options, BooleansAreNegatedOrGivenAValue) {
  for (const char *word : {"--no_forward_prefetch", "--no-forward-prefetch", "--fsdp_no_forward_prefetch",
                           "--forward_prefetch=false", "--forward_prefetch=0", "--forward_prefetch=FALSE"})
    EXPECT_FALSE(parsed({word}).flag("forward_prefetch")) << word;
  for (const char *word : {"--forward_prefetch", "--forward_prefetch=true", "--forward_prefetch=1"})
    EXPECT_TRUE(parsed({"--no_forward_prefetch", word}).flag("forward_prefetch")) << word;
}

TEST(Options, AnOptionWhoseNameBeginsWithNoIsNotANegation) {
  OptionValues values = parsed({"--no_tie"});
  EXPECT_TRUE(values.flag("no_tie"));
  EXPECT_THAT(values.list("tie"), IsEmpty());
}

TEST(Options, ValuesMayBeginWithADash) {
  OptionValues values = parsed({"--class_axis", "-1", "--loss_output", "--odd"});
  EXPECT_EQ(values.integer("class_axis"), -1);
  EXPECT_EQ(values.text("loss_output"), "--odd");
}

TEST(Options, AValueMayHoldAnEqualsSign) {
  EXPECT_EQ(parsed({"--labels=a=b"}).text("labels"), "a=b");
  EXPECT_THAT(parsed({"--dim=batch=8"}).list("dim"), ElementsAre("batch=8"));
}

TEST(Options, TheLastOfARepeatedOptionWins) {
  EXPECT_EQ(parsed({"--world_size", "2", "--world-size=4"}).integer("world_size"), 4);
}

TEST(Options, ListsGrowByRepetitionAndByCommas) {
  EXPECT_THAT(parsed({"--dim", "a=1", "--dim", "b=2"}).list("dim"), ElementsAre("a=1", "b=2"));
  EXPECT_THAT(parsed({"--skip", "a,b", "--skip=c"}).list("skip"), ElementsAre("a", "b", "c"));
}

TEST(Options, ShortNames) {
  OptionValues values = parsed({"-o", "out", "-h"});
  EXPECT_EQ(values.text("output"), "out");
  EXPECT_TRUE(values.flag("help"));
}

TEST(Options, OnlyWhatWasSaidIsGiven) {
  OptionValues values = parsed({"--lr", "0.1"});
  EXPECT_TRUE(values.given("lr"));
  EXPECT_FALSE(values.given("eps"));
  values.resolve("eps", "1e-8");
  EXPECT_FALSE(values.given("eps"));
  EXPECT_DOUBLE_EQ(values.real("eps"), 1e-8);
}

//===- What is refused ----------------------------------------------------===//

TEST(Options, UnknownNamesComeWithTheNearest) {
  EXPECT_THAT(refusal({"--world_sise", "2"}), HasSubstr("unknown option world_sise (did you mean world_size?)"));
  EXPECT_THAT(refusal({"--fsdp-stratgy", "x"}), HasSubstr("(did you mean strategy?)"));
  EXPECT_THAT(refusal({"--micro_batch", "2"}),
              HasSubstr("unknown option micro_batch (did you mean micro_batch_size?)"));
}

TEST(Options, WhatResemblesNothingGetsNoHint) {
  EXPECT_THAT(refusal({"--qqqqqqqqqq"}), testing::EndsWith("unknown option qqqqqqqqqq"));
}

TEST(Options, OnlyBooleansCanBeNegated) {
  EXPECT_THAT(refusal({"--no_lr"}), HasSubstr("unknown option no_lr"));
  EXPECT_THAT(refusal({"--learning-rate", "1"}), HasSubstr("unknown option learning-rate; that is --lr X here"));
  EXPECT_THAT(refusal({"--num_processes=2"}), HasSubstr("; that is --world_size N here"));
  EXPECT_THAT(refusal({"--epochs", "2"}), HasSubstr("; that is for the program: OUT/train --epochs N"));
  EXPECT_THAT(refusal({"--no_nesterov=false"}), HasSubstr("--no_nesterov takes no value"));
}

TEST(Options, NamesOfOtherTrainersLeadToOptionsThatExist) {
  std::vector<llvm::StringRef> names;
  for (const OptionRow &row : optionTable())
    names.push_back(row.name);
  for (const rt::FamiliarOption &option : rt::familiarOptions) {
    llvm::StringRef said = option.compiled;
    if (!said.consume_front("--"))
      continue;
    EXPECT_THAT(names, testing::Contains(said.take_while([](char c) { return c == '_' || llvm::isAlnum(c); })));
    const bool isOwn = llvm::is_contained(names, llvm::StringRef(option.name));
    EXPECT_TRUE(!isOwn || said.starts_with(llvm::StringRef(option.name))) << option.name.data();
  }
}

TEST(Options, UnknownChoicesComeWithAllAndTheNearest) {
  EXPECT_THAT(refusal({"--loss", "msee"}), testing::AllOf(HasSubstr("--loss msee: not one of cross_entropy, nll, mse"),
                                                          HasSubstr("(did you mean mse?)")));
}

TEST(Options, ValuesOfAnotherKindAreRefused) {
  EXPECT_THAT(refusal({"--world_size", "two"}), HasSubstr("--world_size two: an integer is expected"));
  EXPECT_THAT(refusal({"--world_size", "2.5"}), HasSubstr("an integer is expected"));
  EXPECT_THAT(refusal({"--world_size="}), HasSubstr("--world_size: a value is missing"));
  EXPECT_THAT(refusal({"--world_size", "99999999999999999999"}), HasSubstr("an integer is expected"));
  EXPECT_THAT(refusal({"--lr", "fast"}), HasSubstr("--lr fast: a number is expected"));
  EXPECT_THAT(refusal({"--nesterov=maybe"}), HasSubstr("--nesterov=maybe: true or false is expected"));
}

TEST(Options, AMissingValueIsNamed) { EXPECT_THAT(refusal({"--lr"}), HasSubstr("--lr: a value is missing")); }

//===- Configs ------------------------------------------------------------===//

TEST(OptionsConfig, ReadsYamlByTheSameRules) {
  OptionValues values = configured("# a comment\n"
                                   "model: m.onnx\n"
                                   "world-size: 4\n"
                                   "fsdp_strategy: FULL_SHARD\n"
                                   "nesterov: true\n"
                                   "betas: '0.8,0.9'\n"
                                   "dim: [a=1, b=2]\n"
                                   "skip:\n  - x\n  - y\n");
  EXPECT_THAT(values.positional(), ElementsAre("m.onnx"));
  EXPECT_EQ(values.integer("world_size"), 4);
  EXPECT_EQ(values.text("strategy"), "full_shard");
  EXPECT_TRUE(values.flag("nesterov"));
  EXPECT_EQ(values.text("betas"), "0.8,0.9");
  EXPECT_THAT(values.list("dim"), ElementsAre("a=1", "b=2"));
  EXPECT_THAT(values.list("skip"), ElementsAre("x", "y"));
}

TEST(OptionsConfig, ReadsJson) {
  OptionValues values = configured(R"({"world_size": 4, "lr": "0.5", "dim": ["a=1"], "forward_prefetch": false})");
  EXPECT_EQ(values.integer("world_size"), 4);
  EXPECT_DOUBLE_EQ(values.real("lr"), 0.5);
  EXPECT_FALSE(values.flag("forward_prefetch"));
  EXPECT_THAT(values.list("dim"), ElementsAre("a=1"));
}

TEST(OptionsHelp, NamesWhatUnitsMayBeGiven) {
  EXPECT_EQ(unitKeys().size(), unitChoices().size());
  EXPECT_THAT(helpText(), testing::HasSubstr("keys: " + llvm::join(unitKeys(), ", ") + "\n"));
}

TEST(OptionsConfig, CountsWhereItStands) {
  EXPECT_EQ(configured("world_size: 4\n", {"--world_size", "2"}).integer("world_size"), 2);
  ConfigFile file("world_size: 4\n");
  EXPECT_EQ(parsed({"--world_size", "2", "--config", file.path}).integer("world_size"), 4);
  EXPECT_EQ(parsed({"--world_size", "2", "--config=" + file.path}).integer("world_size"), 4);
}

TEST(OptionsConfig, FaultsNameTheFileAndTheHint) {
  EXPECT_THAT(refusedConfig("wurld_size: 2\n"), HasSubstr("unknown option wurld_size (did you mean world_size?)"));
  EXPECT_THAT(refusedConfig("world_size: {a: 1}\n"), HasSubstr("world_size has no value"));
  EXPECT_THAT(refusedConfig("- world_size\n"), HasSubstr("a mapping of option names to values is expected"));
  EXPECT_THAT(refusedConfig(""), HasSubstr("a mapping of option names to values is expected"));
  EXPECT_THAT(refusedConfig("dim: [[a]]\n"), HasSubstr("dim holds something that is not a value"));
  EXPECT_THAT(refusedConfig("world_size: 2\nstrategy: fullshard\n"),
              testing::AllOf(HasSubstr(":2: --strategy fullshard: not one of full_shard, "),
                             HasSubstr("(did you mean full_shard?)")));
  EXPECT_THAT(refusal({"--config", "no/such/file"}), HasSubstr("--config no/such/file: "));
}

TEST(OptionsConfig, DamagedFilesAreRefused) {
  for (const char *text : {"{\"world_size\": 2", "world_size: [1, 2", "a: b: c\n", "\"", "{", "? :", "&", "\x01\xff"})
    EXPECT_NE(refusedConfig(text), "") << text;
}

//===- toJson -------------------------------------------------------------===//

TEST(OptionsJson, HoldsEveryOptionThatShapesTheResult) {
  llvm::json::Object json = jsonOf(parsed({"m.onnx", "--dim", "a=1", "--output", "out", "--timing"}));
  EXPECT_EQ(json.getString("model"), llvm::StringRef("m.onnx"));
  for (const OptionRow &row : optionTable()) {
    bool wanted = !row.isAboutThisRun && (!row.defaultValue.empty() || row.name == "dim");
    EXPECT_EQ(json.get(row.name) != nullptr, wanted) << row.name.str();
  }
}

TEST(OptionsJson, ReadBackAsAConfigGivesTheSameOptions) {
  OptionValues values = parsed({"dir with spaces/\"m\".onnx", "--world_size", "4", "--no_forward_prefetch", "--dim",
                                "a=1", "--dim", "b=2", "--trainable", "^h\\.\\d+\\.(w|b): #\t'x'$", "--loss",
                                "BCE_with_logits", "--labels", "caf\xc3\xa9", "--lr", "-1e-3"});
  values.resolve("eps", "1e-06");
  for (bool indented : {false, true}) {
    OptionValues again = configured(values.toJson(indented));
    EXPECT_EQ(again.toJson(false), values.toJson(false));
    EXPECT_THAT(again.positional(), ElementsAre("dir with spaces/\"m\".onnx"));
    EXPECT_EQ(again.text("trainable"), "^h\\.\\d+\\.(w|b): #\t'x'$");
    EXPECT_EQ(again.text("eps"), "1e-06");
  }
}

} // namespace
} // namespace fsdpc
