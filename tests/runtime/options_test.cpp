#include "runtime/common/familiar_options.h"
#include "runtime/common/json.h"
#include "runtime/common/options.h"
#include "runtime/common/spelling.h"
#include "tests/runtime/fake_program.h"
#include "tests/runtime/temporary_folder.h"

#include <gmock/gmock.h>

namespace fsdpc::rt {
namespace {

Options parse(std::vector<const char *> arguments) {
  static const FakeProgram program(1); // options refer to its scalars
  return parseOptions(program.info, arguments);
}

TEST(OptionsOfAProgram, EverySpellingOfAName) {
  EXPECT_EQ(parse({"--train_data", "a.npy"}).trainData, "a.npy");
  EXPECT_EQ(parse({"--train-data=a.npy"}).trainData, "a.npy");
  EXPECT_EQ(parse({"--fsdp_train_data", "a.npy"}).trainData, "a.npy");
  EXPECT_EQ(parse({"--train_data", "x=A.npy,labels=B.npy"}).trainData, "x=A.npy,labels=B.npy");
  EXPECT_EQ(parse({"--train_data=x=A.npy"}).trainData, "x=A.npy");
}

TEST(OptionsOfAProgram, NamesOfOtherTrainersAndOfTheCompilerLeadToOptionsThatExist) {
  EXPECT_FAILURE(parse({"--max_steps", "3"}), usage, "unknown option --max_steps; that is --steps N here");
  EXPECT_FAILURE(parse({"--checkpoint_every", "3"}), usage, "that is --checkpoint_interval N here");
  EXPECT_FAILURE(parse({"--bf16"}), usage,
                 "unknown option --bf16; that is chosen when compiling: fsdpc MODEL.onnx --mixed_precision bf16");
  for (const FamiliarOption &option : familiarOptions) {
    const std::string said(option.started);
    if (said.substr(0, 2) != "--" || said.substr(0, 4) == "--lr")
      continue; // --lr is an option of programs whose optimizer has it
    const std::string name = said.substr(2, said.find(' ') - 2);
    EXPECT_TRUE(std::any_of(optionTable().begin(), optionTable().end(), [&](const OptionRow &row) {
      return name == row.name;
    })) << name;
  }
}

TEST(OptionsOfAProgram, TheBeginningOfANameLeadsToTheShortestOneThatBeginsSo) {
  EXPECT_FAILURE(parse({"--early_stop", "3"}), usage, "unknown option --early_stop; did you mean '--early_stopping'?");
  EXPECT_EQ(nearestName("ab", {"abcdef"}), "");
  EXPECT_EQ(nearestName("early", {"early_stopping_patience", "early_stopping", "eagle"}), "eagle");
  EXPECT_EQ(nearestName("early", {"early_stopping_patience", "early_stopping"}), "early_stopping");
}

TEST(OptionsOfAProgram, BooleansAndRepetition) {
  EXPECT_TRUE(parse({"--train_data", "d", "--shuffle"}).shuffle);
  EXPECT_FALSE(parse({"--train_data", "d", "--shuffle", "--no_shuffle"}).shuffle);
  EXPECT_TRUE(parse({"--train_data", "d", "--shuffle=True"}).shuffle);
  EXPECT_FALSE(parse({"--train_data", "d", "--no-drop-last"}).dropLast);
  EXPECT_EQ(parse({"--train_data", "d", "--steps", "1", "--steps", "2"}).steps, 2);
  EXPECT_EQ(parse({"--train_data", "d", "--map", "a=b", "--map", "c=d,e=f"}).maps,
            (std::vector<std::string>{"a=b", "c=d", "e=f"}));
}

TEST(OptionsOfAProgram, ValuesMayBeginWithADash) {
  EXPECT_EQ(parse({"--train_data", "d", "--normalize", "-0.5,2"}).meanAndStd().first, -0.5F);
  EXPECT_FAILURE(parse({"--train_data", "d", "--steps", "-1"}), usage,
                 "--steps '-1': expected an integer of at least 0");
}

TEST(OptionsOfAProgram, ScalarsComeFromTheProgram) {
  const Options options = parse({"--train_data", "d", "--betas", "0.8,0.9"});
  EXPECT_EQ(options.scalar("lr"), 0.1);
  EXPECT_EQ(options.scalar("beta1"), 0.8);
  EXPECT_EQ(options.scalar("beta2"), 0.9);
  EXPECT_FAILURE(parse({"--momentum", "0.9"}), usage, "--momentum is compiled in");
  EXPECT_FAILURE(parse({"--nesterov"}), usage, "--nesterov is compiled in");
  EXPECT_FAILURE(parse({"--betas", "0.8"}), usage, "expected two numbers");
  EXPECT_FAILURE(parse({"--lr", "fast"}), usage, "expected a number");
}

TEST(OptionsOfAProgram, AGroupsOwnScalarsHaveOptionsAndMultiplesHaveNone) {
  FakeProgram program(1);
  program.scalars.push_back({"lr.head", false, 0.5, at::lr, "lr"});
  program.scalars.push_back({"lr.layer0", false, 0.05, at::lr, "lr", 0.5});
  program.info.scalars = program.scalars;
  const auto parsed = [&](std::vector<const char *> arguments) {
    arguments.insert(arguments.end(), {"--train_data", "d"});
    return parseOptions(program.info, arguments);
  };
  EXPECT_EQ(parsed({}).scalar("lr.head"), 0.5);
  EXPECT_EQ(parsed({"--lr.head", "0.25"}).scalar("lr.head"), 0.25);
  EXPECT_FAILURE(parsed({"--lr.head", "-1"}), usage, "--lr.head -1: expected a number of at least 0");
  EXPECT_FAILURE(parsed({"--lr.layer0", "1"}), usage, "unknown option --lr.layer0");
}

TEST(OptionsOfAProgram, StreamsAreAsCompiledUnlessGiven) {
  FakeProgram program(1);
  const auto streams = [&](std::vector<const char *> arguments) {
    arguments.insert(arguments.end(), {"--train_data", "d"});
    return parseOptions(program.info, arguments).streams;
  };
  EXPECT_EQ(streams({}), "auto");
  program.info.streams = "threads";
  EXPECT_EQ(streams({}), "threads");
  EXPECT_EQ(streams({"--streams", "inline"}), "inline");
  EXPECT_EQ(streams({"--streams", "auto"}), "auto");
}

TEST(OptionsOfAProgram, UnknownNamesAndValuesNameTheNearest) {
  EXPECT_FAILURE(parse({"--train_dat", "d"}), usage, "unknown option --train_dat; did you mean '--train_data'?");
  EXPECT_FAILURE(parse({"--no_shufle"}), usage, "did you mean '--no_shuffle'?");
  EXPECT_FAILURE(parse({"--batch", "b", "--steps", "1", "--checkpoint_interval", "10"}), usage,
                 "changes nothing without --checkpoint_folder");
  EXPECT_FAILURE(parse({"--lr_scheduler", "cosin"}), usage, "did you mean 'cosine'?");
  EXPECT_FAILURE(parse({"--step", "3"}), usage, "did you mean '--steps'?");
  EXPECT_FAILURE(parse({"data.safetensors"}), usage, "unexpected argument");
  EXPECT_FAILURE(parse({"--log"}), usage, "--log needs a value");
  EXPECT_EQ(parse({"--train_data", "d", "--progress", "NONE"}).progress, "none");
}

TEST(OptionsOfAProgram, WhatChangesNothingIsRefused) {
  EXPECT_FAILURE(parse({}), usage, "nothing to do");
  EXPECT_FAILURE(parse({"--train_data", "d", "--gamma", "0.5"}), usage, "--gamma changes nothing");
  EXPECT_FAILURE(parse({"--train_data", "d", "--min_lr", "0.5"}), usage, "--min_lr changes nothing");
  EXPECT_FAILURE(parse({"--train_data", "d", "--warmup_ratio", "0.1", "--warmup_steps", "3"}), usage,
                 "--warmup_ratio and --warmup_steps exclude each other");
  EXPECT_FAILURE(parse({"--train_data", "d", "--warmup_ratio", "1"}), usage,
                 "--warmup_ratio 1: expected from 0 to below 1");
  EXPECT_FAILURE(parse({"--train_data", "d", "--eval_every", "1epoch"}), usage, "without --val_data");
  EXPECT_FAILURE(parse({"--val_data", "d", "--eval_only", "--steps", "3"}), usage, "with --eval_only");
  EXPECT_FAILURE(parse({"--batch", "b", "--train_data", "d", "--steps", "3"}), usage, "exclude each other");
  EXPECT_FAILURE(parse({"--batch", "b"}), usage, "--batch needs --steps");
  EXPECT_FAILURE(parse({"--train_data", "d", "--lr_scheduler", "step"}), usage, "needs --step_size");
  EXPECT_FAILURE(parse({"--train_data", "d", "--normalize", "0.5,0"}), usage, "standard deviation is 0");
}

TEST(OptionsOfAProgram, IntervalsAreStepsOrEpochs) {
  const Options options = parse(
      {"--train_data", "d", "--lr_scheduler", "step", "--step_size", "2epoch", "--val_data", "v", "--eval_every", "7"});
  EXPECT_TRUE(options.stepSize.inEpochs);
  EXPECT_EQ(options.stepSize.count, 2);
  EXPECT_FALSE(options.evalEvery.inEpochs);
  EXPECT_EQ(options.evalEvery.count, 7);
  EXPECT_FAILURE(parse({"--train_data", "d", "--val_data", "v", "--eval_every", "0"}), usage,
                 "expected a number of steps");
}

TEST(OptionsOfAProgram, HelpListsEveryOptionAndTheSettingsResolveThem) {
  const std::string help = helpText(FakeProgram(1).info);
  const std::string settings = settingsJson(parse({"--train_data", "d"}));
  for (const OptionRow &row : optionTable()) {
    const std::string name = row.name;
    EXPECT_THAT(help, testing::HasSubstr("--" + name));
    if (name != "help" && name != "version") {
      EXPECT_THAT(settings, testing::HasSubstr('"' + name + "\":"));
    }
  }
  EXPECT_NE(help.find("--betas"), std::string::npos);
  EXPECT_NE(settings.find("\"seed\":3"), std::string::npos);
  EXPECT_NE(settings.find("\"epochs\":1"), std::string::npos);
  JsonReader reader(settings, "settings");
  while (reader.next() != JsonToken::end) {
  }
}

} // namespace
} // namespace fsdpc::rt
