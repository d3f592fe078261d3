#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/layout.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/checkpoint/requests.h"
#include "runtime/common/duration.h"
#include "runtime/common/evaluation.h"
#include "runtime/common/shards.h"
#include "tests/runtime/run_fixture.h"

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <tuple>

namespace fsdpc::rt {
namespace {

/// A program of 4 ranks: one segment sharded over all, one over pairs (hybrid), one over ranks that are 2 apart, one on
/// every rank. Parameters of many sizes, some large enough to be written by several ranks.
struct ManySegments {
  std::vector<MeshAxisInfo> axes = {{"shard", 4, 1}, {"pairs", 2, 1}, {"apart", 2, 2}};
  std::vector<SegmentInfo> segments;
  std::vector<ParameterInfo> parameters;
  std::vector<OptimizerStateInfo> states;
  ProgramInfo info{};

  ManySegments() {
    for (int axis : {0, 1, 2, -1}) {
      const int segment = static_cast<int>(segments.size()),
                members = axis < 0 ? 1 : axes[static_cast<std::size_t>(axis)].size;
      std::int64_t offset = 0;
      for (const std::int64_t elements : {1, 7, 3, 50000, 129, 40001})
        parameters.push_back({"p",
                              DType::f32,
                              {1, {elements}},
                              segment,
                              std::exchange(offset, offset + elements),
                              true,
                              "p",
                              {0},
                              {1, {elements}},
                              0,
                              true});
      const std::int64_t shard = (offset + members - 1) / members;
      segments.push_back({"unit", DType::f32, shard * members, shard, {}, axis});
      states.push_back({"exp_avg", segment, DType::bf16, {Space::host, 64}, 0});
    }
    info.worldSize = 4;
    info.axes = axes;
    info.segments = segments;
    info.parameters = parameters;
    info.optimizerStates = states;
  }
};

TEST(CheckpointLayoutOfARank, TheSlicesOfAllRanksCoverEveryTensorOnceAndAreHeldByTheirWriter) {
  const ManySegments program;
  const CheckpointLayout layout(program.info);
  ASSERT_EQ(layout.tensors().size(), 48u);
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> ranges(48);
  std::int64_t bytes = 0;
  std::vector<std::int64_t> ofRank;
  for (int rank = 0; rank < 4; ++rank) {
    for (const TensorSlice &slice : layout.slicesOf(rank)) {
      const CheckpointTensor &tensor = layout.tensors()[slice.tensor];
      const ShardRange held =
          shardRange(*tensor.segment, program.info.parameters[static_cast<std::size_t>(tensor.parameter)],
                     shardIndex(program.info, *tensor.segment, rank));
      EXPECT_GE(slice.first, held.parameterElement);
      EXPECT_LE(slice.first + slice.elements, held.parameterElement + held.elements);
      EXPECT_EQ(slice.place.offsetBytes,
                tensor.place.offsetBytes +
                    (held.shardElement + slice.first - held.parameterElement) * byteSize(tensor.dtype));
      ranges[slice.tensor].emplace_back(slice.first, slice.elements);
    }
    ofRank.push_back(layout.bytesOf(rank));
    bytes += ofRank.back();
  }
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    std::sort(ranges[i].begin(), ranges[i].end());
    std::int64_t end = 0;
    for (const auto &[first, elements] : ranges[i]) {
      EXPECT_EQ(first, end) << layout.tensors()[i].name;
      end = first + elements;
    }
    EXPECT_EQ(end, layout.tensors()[i].elements);
  }
  EXPECT_EQ(bytes, layout.totalBytes());
  // No rank writes much more than its part.
  EXPECT_LT(*std::max_element(ofRank.begin(), ofRank.end()), layout.totalBytes() / 4 * 3 / 2);
}

/// The state of the fake program with an updated scalar: 6 of 12 steps are the first run.
class Checkpointed : public Run {
protected:
  static std::unique_ptr<FakeProgram> program(int ranks) {
    auto program = std::make_unique<FakeProgram>(ranks);
    program->scalars.push_back({"optimizer_step", true, 1, {Space::privateSpace, 432}});
    program->info.scalars = program->scalars;
    return program;
  }

  std::optional<Failure> train(int ranks, std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        "--train_data", data("train.safetensors", 20), "--shuffle", "--lr", "0.05", "--log_freq", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(*program(ranks), ranks, arguments);
  }

  /// By step.
  std::map<std::int64_t, double> rates(const std::string &log) {
    std::map<std::int64_t, double> result;
    for (const std::string &line : lines(log))
      if (!std::isnan(number(line, "lr")) && !line.starts_with("{\"settings\""))
        result[static_cast<std::int64_t>(number(line, "step"))] = number(line, "lr");
    return result;
  }

  std::string saved(const std::string &name) { return contentOf(folder.path(name)); }
  std::string checkpoints() { return folder.path("checkpoints"); }
  std::string stepFolder(std::int64_t step) { return checkpoints() + "/" + stepFolderName(step); }

  /// Loads a checkpoint as both ranks of a program of two would. Returns what is wrong with it; "": nothing.
  std::string faultOf(const std::string &path) {
    const auto fake = program(2);
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<std::byte> arena(8192);
      Context context;
      context.privateArena = arena.data();
      context.rank = rank;
      context.worldSize = 2;
      try {
        CheckpointReader reader(path);
        requireFits(fake->info, reader);
        loadState(fake->info, context, reader);
      } catch (const Failure &failure) {
        EXPECT_TRUE(failure.code == ExitCode::corrupt || failure.code == ExitCode::incompatible);
        return failure.what();
      }
    }
    return "";
  }
};

TEST_F(Checkpointed, AResumedRunHasTheBitsOfTheUninterruptedOne) {
  for (const char *staging : {"host", "off"})
    for (const int stop : {1, 3, 5, 7}) {
      std::filesystem::remove_all(checkpoints());
      ASSERT_FALSE(
          train(2, {"--steps", "12", "--save_model", folder.path("whole"), "--log", folder.path("whole.jsonl")}));
      ASSERT_FALSE(train(2, {"--steps", std::to_string(stop), "--checkpoint_folder", checkpoints(),
                             "--checkpoint_staging", staging, "--log", folder.path("log")}));
      ASSERT_FALSE(train(2, {"--steps", "12", "--checkpoint_folder", checkpoints(), "--resume", "auto", "--save_model",
                             folder.path("resumed"), "--log", folder.path("log")}));
      EXPECT_EQ(saved("whole"), saved("resumed")) << staging << " " << stop;
      std::vector<double> losses, expected;
      for (const std::string &line : lines("log"))
        if (!std::isnan(number(line, "loss")))
          losses.push_back(number(line, "loss"));
      for (const std::string &line : lines("whole.jsonl"))
        if (!std::isnan(number(line, "loss")))
          expected.push_back(number(line, "loss"));
      EXPECT_EQ(losses, expected) << "the log is continued";
      EXPECT_EQ(losses.size(), 12u);
    }
}

TEST_F(Checkpointed, AnyNumberOfRanksLoadsTheSameWeightsAndSkipsNoSample) {
  ASSERT_FALSE(train(2, {"--steps", "3", "--checkpoint_folder", checkpoints(), "--save_model", folder.path("two")}));
  ASSERT_FALSE(train(1, {"--steps", "3", "--resume", stepFolder(3), "--save_model", folder.path("one")}));
  EXPECT_EQ(saved("two"), saved("one"));
  // Eight samples of 20 are left; one rank takes two at a time.
  ASSERT_FALSE(train(1, {"--epochs", "1", "--resume", stepFolder(3), "--log", folder.path("log")}));
  const auto log = lines("log");
  EXPECT_EQ(
      std::count_if(log.begin(), log.end(), [](const std::string &line) { return !std::isnan(number(line, "loss")); }),
      4);
}

TEST_F(Checkpointed, ARateStatedInEpochsFollowsTheSamplesWhenTheGlobalBatchChanges) {
  // Of 20 samples, two ranks take 4 in a step, and one rank takes 2.
  const auto epochs = [&](std::vector<std::string> kind, const char *warmup, int ranks, const std::string &from,
                          const std::string &to) {
    std::filesystem::remove(folder.path("log"));
    std::filesystem::remove_all(folder.path(to));
    kind.insert(kind.end(), {"--epochs", "4", "--warmup_steps", warmup, "--log", folder.path("log")});
    kind.insert(kind.end(), {"--checkpoint_folder", folder.path(to), "--checkpoint_interval", "1"});
    kind.insert(kind.end(), {"--keep_latest_k", "0", "--resume", from == "none" ? from : folder.path(from)});
    EXPECT_FALSE(train(ranks, kind));
    return rates("log");
  };
  for (const std::vector<std::string> &kind :
       std::vector<std::vector<std::string>>{{"--lr_scheduler", "step", "--step_size", "1epoch", "--gamma", "0.5"},
                                             {"--lr_scheduler", "cosine"},
                                             {"--lr_scheduler", "linear"},
                                             {"--lr_scheduler", "wsd"}})
    for (const char *warmup : {"0", "3", "7"}) {
      const auto whole = epochs(kind, warmup, 2, "none", "whole");
      const auto one = epochs(kind, warmup, 1, "whole/" + stepFolderName(7), "one");
      const auto two = epochs(kind, warmup, 2, "one/" + stepFolderName(11), "two");
      ASSERT_EQ(std::make_tuple(whole.size(), one.size(), two.size()), std::make_tuple(20u, 26u, 11u));
      for (std::int64_t i = 0; i < 13; ++i)
        EXPECT_DOUBLE_EQ(one.at(8 + 2 * i), whole.at(8 + i)) << kind[1] << ", warm-up " << warmup << ", " << 4 * i;
      for (std::int64_t i = 0; i < 11; ++i)
        EXPECT_DOUBLE_EQ(two.at(12 + i), whole.at(10 + i)) << kind[1] << ", warm-up " << warmup << ", " << 4 * i;
    }
  epochs({}, "9", 2, "none", "whole");
  const auto one = epochs({"--lr_scheduler", "linear"}, "9", 1, "whole/" + stepFolderName(7), "one");
  EXPECT_DOUBLE_EQ(one.at(8), 0.05 * 8 / 9);
  EXPECT_DOUBLE_EQ(one.at(10), 0.05) << "the decay begins where the warm-up ends";
  EXPECT_DOUBLE_EQ(one.at(33), 0.05 / 24);
}

TEST_F(Checkpointed, ARateStatedInStepsCountsStepsWhenTheGlobalBatchChanges) {
  for (const std::vector<std::string> &kind : std::vector<std::vector<std::string>>{
           {"--lr_scheduler", "step", "--step_size", "5"}, {"--lr_scheduler", "cosine"}, {"--lr_scheduler", "wsd"}}) {
    std::filesystem::remove_all(checkpoints());
    std::vector<std::string> arguments = {"--steps", "24", "--warmup_steps", "3", "--log", folder.path("log")};
    arguments.insert(arguments.end(), kind.begin(), kind.end());
    std::vector<std::string> saves = arguments, goesOn = arguments;
    saves.insert(saves.end(),
                 {"--checkpoint_folder", checkpoints(), "--checkpoint_interval", "1", "--keep_latest_k", "0"});
    goesOn.insert(goesOn.end(), {"--resume", stepFolder(7)});
    std::filesystem::remove(folder.path("log"));
    ASSERT_FALSE(train(2, saves));
    auto expected = rates("log");
    std::filesystem::remove(folder.path("log"));
    ASSERT_FALSE(train(1, goesOn));
    std::erase_if(expected, [](const auto &rate) { return rate.first <= 7; });
    EXPECT_EQ(rates("log"), expected) << kind[1];
  }
}

TEST_F(Checkpointed, AShareOfTheStepsThatWarmsUpIsRoundedUp) {
  const auto ratesOf = [&](std::vector<std::string> arguments) {
    std::filesystem::remove(folder.path("log"));
    arguments.insert(arguments.end(), {"--lr_scheduler", "cosine", "--log", folder.path("log")});
    EXPECT_FALSE(train(2, arguments));
    return rates("log");
  };
  EXPECT_EQ(ratesOf({"--steps", "10", "--warmup_ratio", "0.3"}), ratesOf({"--steps", "10", "--warmup_steps", "3"}));
  EXPECT_EQ(ratesOf({"--steps", "10", "--warmup_ratio", "0.31"}), ratesOf({"--steps", "10", "--warmup_steps", "4"}));
  // Two ranks take the 20 samples in 5 steps.
  EXPECT_EQ(ratesOf({"--epochs", "4", "--warmup_ratio", "0.11"}), ratesOf({"--epochs", "4", "--warmup_steps", "3"}));
}

TEST_F(Checkpointed, AShareOfTheStepsIsThatOfTheRunThatBegan) {
  // Two ranks have 20 steps, of which 7 are done; one rank has 26 for the rest.
  const auto resumedRates = [&](const char *option, const char *value) {
    std::filesystem::remove_all(checkpoints());
    std::filesystem::remove(folder.path("log"));
    const std::vector<std::string> arguments = {"--epochs", "4", "--lr_scheduler", "cosine", option, value};
    std::vector<std::string> saves = arguments, goesOn = arguments;
    saves.insert(saves.end(),
                 {"--checkpoint_folder", checkpoints(), "--checkpoint_interval", "1", "--keep_latest_k", "0"});
    goesOn.insert(goesOn.end(), {"--resume", stepFolder(7), "--log", folder.path("log")});
    EXPECT_FALSE(train(2, saves));
    EXPECT_FALSE(train(1, goesOn));
    return rates("log");
  };
  for (const auto &[share, steps] : {std::pair("0.15", "3"), {"0.45", "9"}}) {
    const auto resumed = resumedRates("--warmup_ratio", share);
    EXPECT_EQ(resumed.size(), 26u);
    EXPECT_EQ(resumed, resumedRates("--warmup_steps", steps)) << share;
  }
}

TEST_F(Checkpointed, AShareOfTheStepsIsThatOfTheRunThatGoesOnIfItEndsBefore) {
  ASSERT_FALSE(train(2, {"--steps", "20", "--warmup_ratio", "0.45", "--checkpoint_folder", checkpoints(),
                         "--checkpoint_interval", "1", "--keep_latest_k", "0"}));
  const auto shortened = [&](const char *option, const char *value) {
    std::filesystem::remove(folder.path("log"));
    EXPECT_FALSE(train(2, {"--steps", "8", "--lr_scheduler", "linear", option, value, "--resume", stepFolder(5),
                           "--log", folder.path("log")}));
    return rates("log");
  };
  const auto resumed = shortened("--warmup_ratio", "0.45");
  EXPECT_EQ(resumed.size(), 3u);
  EXPECT_EQ(resumed, shortened("--warmup_steps", "4"));
}

TEST_F(Checkpointed, AFlippedBitAnywhereIsFound) {
  ASSERT_FALSE(train(2, {"--steps", "3", "--checkpoint_folder", checkpoints()}));
  ASSERT_EQ(faultOf(stepFolder(3)), "");
  std::mt19937_64 random(5);
  std::vector<std::string> files;
  for (const auto &entry : std::filesystem::directory_iterator(stepFolder(3)))
    files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  ASSERT_EQ(files.size(), 3u);
  for (int trial = 0; trial < 2000; ++trial) {
    const std::string &file = files[random() % files.size()];
    const std::string intact = contentOf(file);
    std::string damaged = intact;
    const std::size_t bit = random() % (damaged.size() * 8);
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    std::ofstream(file, std::ios::binary) << damaged;
    EXPECT_NE(faultOf(stepFolder(3)).find(file), std::string::npos) << file << " bit " << bit;
    std::ofstream(file, std::ios::binary) << intact;
  }
  EXPECT_EQ(faultOf(stepFolder(3)), "");
}

TEST_F(Checkpointed, TruncatedDeletedSwappedAndStaleFilesAreFound) {
  ASSERT_FALSE(train(2, {"--steps", "3", "--checkpoint_folder", checkpoints(), "--checkpoint_interval", "2"}));
  const std::string a = stepFolder(3) + "/" + rankFileName(0), b = stepFolder(3) + "/" + rankFileName(1),
                    old = stepFolder(2) + "/" + rankFileName(0);
  const std::string intact = contentOf(a), other = contentOf(b);
  for (std::size_t size = 0; size < intact.size(); size += 37) {
    std::ofstream(a, std::ios::binary) << intact.substr(0, size);
    EXPECT_NE(faultOf(stepFolder(3)).find(a), std::string::npos) << size;
  }
  std::ofstream(a, std::ios::binary) << intact << 'x';
  EXPECT_NE(faultOf(stepFolder(3)).find(a), std::string::npos);
  std::ofstream(a, std::ios::binary) << contentOf(old);
  EXPECT_NE(faultOf(stepFolder(3)).find(a), std::string::npos) << "the file of another step";
  std::ofstream(a, std::ios::binary) << other;
  std::ofstream(b, std::ios::binary) << intact;
  EXPECT_NE(faultOf(stepFolder(3)), "") << "files of two ranks swapped";
  std::ofstream(b, std::ios::binary) << other;
  std::filesystem::remove(a);
  EXPECT_NE(faultOf(stepFolder(3)).find(a), std::string::npos);
  std::ofstream(a, std::ios::binary) << intact;
  EXPECT_EQ(faultOf(stepFolder(3)), "");
  const std::string manifest = stepFolder(3) + "/" + manifestName;
  std::ofstream(manifest, std::ios::binary) << contentOf(stepFolder(2) + "/" + manifestName);
  EXPECT_NE(faultOf(stepFolder(3)), "") << "the manifest of another step";
}

TEST_F(Checkpointed, AutoGoesBackToTheNewestIntactOneAndSaysSo) {
  ASSERT_FALSE(train(2, {"--steps", "6", "--checkpoint_folder", checkpoints(), "--checkpoint_interval", "2",
                         "--keep_latest_k", "0", "--save_model", folder.path("whole")}));
  std::ofstream(stepFolder(6) + "/" + rankFileName(1), std::ios::binary | std::ios::app) << "x";
  testing::internal::CaptureStderr();
  ASSERT_FALSE(train(2, {"--steps", "6", "--checkpoint_folder", checkpoints(), "--resume", "auto", "--save_model",
                         folder.path("resumed")}));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("warning: a damaged checkpoint is not used: " + stepFolder(6)), std::string::npos) << said;
  EXPECT_NE(said.find("goes back to " + stepFolder(4)), std::string::npos) << said;
  EXPECT_EQ(saved("whole"), saved("resumed"));
  EXPECT_EQ(faultOf(stepFolder(6)), "") << "the run saved step 6 anew";
  for (const std::int64_t step : {2, 4, 6})
    std::filesystem::remove(stepFolder(step) + "/" + manifestName);
  const auto failure = train(2, {"--steps", "6", "--checkpoint_folder", checkpoints(), "--resume", "auto"});
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ExitCode::corrupt) << "never starts anew in silence";
}

TEST_F(Checkpointed, AnotherModelOrOrderIsRefusedWithTheDifferences) {
  ASSERT_FALSE(train(2, {"--steps", "3", "--checkpoint_folder", checkpoints()}));
  auto other = program(1);
  other->parameters[1].shape = {2, {4, 1}};
  other->parameters[0].name = "v";
  const auto failure =
      run(*other, 1,
          {"--train_data", data("train.safetensors", 20), "--shuffle", "--steps", "4", "--resume", stepFolder(3)});
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ExitCode::incompatible);
  for (const char *part :
       {"missing: v [3]", "missing: optimizer.sum.v [3]", "scale is [2, 2] there, [4, 1] here", "extra: w [3]"})
    EXPECT_NE(std::string(failure->what()).find(part), std::string::npos) << failure->what();
  for (const auto &[more, part] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--seed", "9"}, "its run had --seed 3"},
           {{"--no_shuffle"}, "its run was shuffled"},
           {{"--train_data", data("less.safetensors", 16)}, "20 samples in an epoch, this one has 16"}}) {
    std::vector<std::string> arguments = {"--steps", "4", "--resume", stepFolder(3)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto refused = train(2, arguments);
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->code, ExitCode::incompatible);
    EXPECT_NE(std::string(refused->what()).find(part), std::string::npos) << refused->what();
  }
}

TEST_F(Checkpointed, AFolderOfAnotherRunIsNotMixedWithThisOne) {
  ASSERT_FALSE(train(
      2, {"--steps", "3", "--checkpoint_folder", checkpoints(), "--checkpoint_interval", "1", "--keep_latest_k", "0"}));
  const auto anew = train(2, {"--steps", "3", "--checkpoint_folder", checkpoints()});
  ASSERT_TRUE(anew);
  EXPECT_EQ(anew->code, ExitCode::usage);
  EXPECT_NE(std::string(anew->what()).find("holds checkpoints of a run (step 3); give --resume auto"),
            std::string::npos);
  const auto earlier = train(2, {"--steps", "3", "--checkpoint_folder", checkpoints(), "--resume", stepFolder(1)});
  ASSERT_TRUE(earlier);
  EXPECT_NE(std::string(earlier->what()).find("a checkpoint of step 3, and the run would go on from step 1"),
            std::string::npos);
}

TEST_F(Checkpointed, OldOnesAreDeletedButNotTheBest) {
  // The learning rate is so large that the last evaluation is not the best.
  ASSERT_FALSE(train(2, {"--steps", "8", "--lr", "0.6", "--checkpoint_folder", checkpoints(), "--checkpoint_interval",
                         "2", "--keep_latest_k", "2", "--val_data", data("test.safetensors", 6), "--eval_every", "1",
                         "--save_best", "val_loss", "--log", folder.path("log")}));
  std::int64_t best = 0;
  double least = HUGE_VAL;
  for (const std::string &line : lines("log"))
    if (number(line, "val_loss") < least) {
      least = number(line, "val_loss");
      best = static_cast<std::int64_t>(number(line, "step"));
    }
  std::vector<std::int64_t> steps;
  for (const StepFolder &step : listCheckpoints(checkpoints()))
    steps.push_back(step.step);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{best, 6, 8}));
  EXPECT_LT(best, 6);
  EXPECT_EQ(CheckpointReader(stepFolder(8)).manifest().training.best->step, best);
}

TEST_F(Checkpointed, LeftoversOfAKilledRunAreRemoved) {
  for (const char *name : {"/step-00000005.tmp-0123456789abcdef", "/trash-step-00000001"}) {
    std::filesystem::create_directories(checkpoints() + name);
    std::ofstream(checkpoints() + name + "/" + rankFileName(0)) << "half";
  }
  ASSERT_FALSE(train(2, {"--steps", "1", "--checkpoint_folder", checkpoints()}));
  std::vector<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator(checkpoints()))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"lock", "step-00000001"}));
}

TEST_F(Checkpointed, AManifestThatLiesIsRefused) {
  ASSERT_FALSE(train(2, {"--steps", "3", "--checkpoint_folder", checkpoints()}));
  const std::string path = stepFolder(3) + "/" + manifestName;
  const Manifest intact = parseManifest(contentOf(path), path);
  EXPECT_EQ(manifestText(intact).size(), manifestText(parseManifest(manifestText(intact), "x")).size());
  const auto fault = [&](const std::function<void(Manifest &)> &change) -> std::string {
    Manifest manifest = intact;
    change(manifest);
    try {
      parseManifest(manifestText(manifest), path);
    } catch (const Failure &failure) {
      return failure.what();
    }
    return "";
  };
  for (const char *name : {"../weights", "/etc/passwd", ".hidden", ""})
    EXPECT_NE(fault([&](Manifest &m) { m.files[0].name = name; }).find("not a plain name"), std::string::npos) << name;
  const char *cover = "do not cover it once";
  EXPECT_NE(fault([](Manifest &m) { m.tensors[0].slices[0].first += 1; }).find(cover), std::string::npos);
  EXPECT_NE(fault([](Manifest &m) { m.tensors[0].slices[0].file = 7; }).find(cover), std::string::npos);
  EXPECT_NE(fault([](Manifest &m) { m.tensors[0].slices[0].hashes.clear(); }).find(cover), std::string::npos);
  EXPECT_NE(fault([](Manifest &m) { m.tensors[0].slices[0].elements = INT64_MAX; }), "");
  EXPECT_NE(fault([](Manifest &m) { m.tensors[0].dims = {INT64_MAX, INT64_MAX}; }).find("overflows"),
            std::string::npos);
}

TEST_F(Checkpointed, AFigureThatIsNotFiniteStaysSo) {
  ASSERT_FALSE(train(2, {"--steps", "3", "--checkpoint_folder", checkpoints()}));
  Manifest manifest = parseManifest(contentOf(stepFolder(3) + "/" + manifestName), "x");
  const double notANumber = std::numeric_limits<double>::quiet_NaN();
  manifest.training.best = BestEvaluation{2, notANumber};
  manifest.training.evaluations = {1, 0, notANumber};
  const TrainingState read = parseManifest(manifestText(manifest), "x").training;
  ASSERT_TRUE(read.best);
  for (const double value : {read.best->value, read.evaluations.best}) {
    EXPECT_TRUE(std::isnan(value));
    EXPECT_TRUE(isBetter("val_loss", 5, value) && isBetter("val_accuracy", 5, value));
    EXPECT_FALSE(isBetter("val_loss", notANumber, value));
  }
}

TEST_F(Checkpointed, AManifestOfAnotherSchemaIsRefusedByPath) {
  ASSERT_FALSE(train(2, {"--steps", "3", "--checkpoint_folder", checkpoints()}));
  const std::string path = stepFolder(3) + "/" + manifestName;
  std::string text = contentOf(path);
  const std::size_t hash = text.rfind(",\"manifest_hash\"");
  text.resize(hash);
  text.replace(text.find(checkpointSchema), std::strlen(checkpointSchema), "fsdpc.checkpoint/9");
  const std::uint64_t hashed = checkpointHash(text.data(), static_cast<std::int64_t>(text.size()));
  std::ofstream(path, std::ios::binary) << text << ",\"manifest_hash\":\"" << hexOf({hashed}) << "\"}\n";
  EXPECT_EQ(faultOf(stepFolder(3)),
            path + ": a checkpoint of schema fsdpc.checkpoint/9; this program reads fsdpc.checkpoint/1");
}

TEST(Requests, AWishOfOneRankIsFollowedByAllAtTheSameBoundary) {
  alignas(128) std::byte memory[8 * 128] = {};
  HeartbeatPage *page = HeartbeatPage::at(memory);
  page->ask(5, saveRequest);
  page->ask(6, stopRequest); // by a rank that is one boundary ahead
  page->ask(5, stopRequest);
  EXPECT_EQ(page->askedFor(4), 0);
  EXPECT_EQ(page->askedFor(5), saveRequest | stopRequest);
  EXPECT_EQ(page->askedFor(6), stopRequest);
  page->ask(7, saveRequest);
  EXPECT_EQ(page->askedFor(5), 0);
  EXPECT_EQ(page->askedFor(7), saveRequest);
}

TEST(Duration, TimesAsPeopleWriteThem) {
  EXPECT_EQ(parseDuration("3h59m"), 3 * 3600 + 59 * 60);
  EXPECT_EQ(parseDuration("10min"), 600);
  EXPECT_EQ(parseDuration("1d2h3m4s"), 86400 + 7200 + 180 + 4);
  for (const char *text : {"", "10", "h", "5m3h", "3x", "-1s", "3h 5m", "99999999999999999999s"})
    EXPECT_EQ(parseDuration(text), std::nullopt) << text;
}

} // namespace
} // namespace fsdpc::rt
