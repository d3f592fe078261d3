#include "tests/runtime/run_fixture.h"

namespace fsdpc::rt {
namespace {

std::string microStepCalls; ///< of the program below

void noteCall(Context &context, const char *what) {
  microStepCalls +=
      what + std::to_string(context.batchRank) + ":" + std::to_string(*context.at<std::int64_t>(at::labels)) + " ";
}

TEST_F(Run, AStepCallsPrologueAndThenMicroStepForEachMicroBatchInTurn) {
  FakeProgram program(1);
  program.info.gradientAccumulationSteps = 3;
  program.inputs[0].isInPrologue = false;
  program.info.functions.prologue = [](Context &context) {
    noteCall(context, "prologue");
    EXPECT_NE(context.at<float>(at::x)[1], 1) << "x is read for micro_step only";
  };
  program.info.functions.microStep = [](Context &context) {
    noteCall(context, "microStep");
    EXPECT_EQ(context.at<float>(at::x)[1], context.batchRank == 1 ? 1 : 0);
    *context.at<float>(at::loss) = static_cast<float>(context.batchRank);
  };
  program.info.functions.update = [](Context &) { microStepCalls += "update"; };
  microStepCalls.clear();
  const std::string log = folder.path("log");
  ASSERT_FALSE(run(program, 1, {"--batch", data("batch.safetensors", 6), "--steps", "1", "--log", log}));
  // Rows 0, 2 and 4.
  EXPECT_EQ(microStepCalls, "prologue0:0 prologue1:2 prologue2:0 microStep0:0 microStep1:2 microStep2:0 update");
  EXPECT_EQ(number(lines("log")[2], "loss"), 2) << "the last call has the loss of the step";
}

TEST_F(Run, AnEpochCountsTheSamplesOfAllMicroSteps) {
  FakeProgram program(2);
  program.info.gradientAccumulationSteps = 2;
  const std::string train = data("train.safetensors", 17), log = folder.path("log");
  ASSERT_FALSE(run(program, 2, {"--train_data", train, "--epochs", "1", "--log", log, "--log_freq", "1"}));
  EXPECT_EQ(lines("log").size(), 1u + 2 + 2 + 1) << "settings, memory twice, two steps of 8 samples, the memory report";
}

TEST_F(Run, ABatchGivesTheSameLossesAndWeightsOnEveryNumberOfRanks) {
  // The global batch is two rows per rank: compare against plain gradient descent on it.
  for (const int ranks : {1, 2}) {
    const std::string batch = data("batch.safetensors", 2 * ranks);
    const std::string log = folder.path("log"), out = folder.path("out.safetensors"),
                      grads = folder.path("grads.safetensors");
    ASSERT_FALSE(run(ranks, {"--batch", batch, "--steps", "3", "--log", log, "--log_freq", "1", "--save_model", out,
                             "--save_gradients", grads, "--lr", "0.1"}));
    double w[3] = {0.5, -0.25, 1};
    auto logged = lines("log");
    ASSERT_EQ(logged.size(), 7u);
    EXPECT_EQ(logged[0].rfind("{\"settings\":", 0), 0u);
    for (const auto &[at, when] : {std::pair<int, std::string>{1, "start_up"}, {2, "first_step"}}) {
      EXPECT_EQ(logged[static_cast<std::size_t>(at)], "{\"memory\":{\"when\":\"" + when +
                                                          "\",\"outside_plan_bytes\":" + std::to_string(699 + ranks) +
                                                          ",\"planned_bytes\":12288,\"host_arena_bytes\":0}}");
      logged.erase(logged.begin() + at); // leaves the step numbers unchanged
    }
    for (int step = 1; step <= 3; ++step) {
      double loss = 0, gradient[3] = {};
      for (int i = 0; i < 2 * ranks; ++i) {
        const double x0 = i & 1, x1 = (i >> 1) & 1, error = w[0] * x0 + w[1] * x1 + w[2] - x0 - 2 * x1;
        loss += error * error / (2 * ranks);
        gradient[0] += 2 * error * x0 / (2 * ranks);
        gradient[1] += 2 * error * x1 / (2 * ranks);
        gradient[2] += 2 * error / (2 * ranks);
      }
      for (int k = 0; k < 3 && step == 1; ++k)
        EXPECT_NEAR(tensor("grads.safetensors", "grad.w")[static_cast<std::size_t>(k)], gradient[k], 1e-6);
      EXPECT_NEAR(number(logged[static_cast<std::size_t>(step)], "loss"), loss, 1e-6);
      EXPECT_EQ(number(logged[static_cast<std::size_t>(step)], "step"), step);
      EXPECT_EQ(number(logged[static_cast<std::size_t>(step)], "memory_peak_bytes"), 12288);
      EXPECT_EQ(number(logged[static_cast<std::size_t>(step)], "comm_skew_ms"), 0.002);
      EXPECT_EQ(number(logged[static_cast<std::size_t>(step)], "memory_planned_bytes"), 12288);
      for (int k = 0; k < 3; ++k)
        w[k] -= 0.1 * gradient[k];
    }
    EXPECT_EQ(logged[4], "{\"memory_report\":{\"planned_bytes\":12288,\"world_size\":" + std::to_string(ranks) +
                             ",\"host_arena_bytes\":0,\"pss_growth_bytes\":" + std::to_string(5000 * ranks) +
                             ",\"pss_before_bytes\":" + std::to_string(300 * ranks) + "}}");
    for (int k = 0; k < 3; ++k)
      EXPECT_NEAR(tensor("out.safetensors", "w")[static_cast<std::size_t>(k)], w[k], 1e-6);
    EXPECT_EQ(tensor("out.safetensors", "scale"), (std::vector<float>{1, 2, 3, 4}));
  }
}

TEST_F(Run, EpochsEvaluateEverySampleOnce) {
  const std::string train = data("train.safetensors", 9), test = data("test.safetensors", 7);
  const std::string log = folder.path("log");
  testing::internal::CaptureStdout();
  ASSERT_FALSE(
      run(2, {"--train_data", train, "--val_data", test, "--epochs", "30", "--shuffle", "--lr", "0.2", "--log", log}));
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_NE(printed.find("epoch 30  train loss "), std::string::npos) << printed;
  EXPECT_NE(printed.find("correct 7/7  100.0 %"), std::string::npos) << printed;
  std::int64_t evaluations = 0;
  for (const std::string &line : lines("log"))
    if (line.find("val_loss") != std::string::npos) {
      ++evaluations;
      EXPECT_EQ(number(line, "val_total"), 7);
      EXPECT_EQ(number(line, "step"), 2 * evaluations); // nine samples are two batches of four
      EXPECT_EQ(number(line, "epoch"), evaluations);
    }
  EXPECT_EQ(evaluations, 30);
}

TEST_F(Run, EndsEarlyWhereEvaluationsDoNotGetBetterAndStaysSoWhenResumed) {
  const std::string log = folder.path("early.jsonl"), training = data("train.safetensors", 8),
                    test = data("test.safetensors", 7), saved = folder.path("checkpoints");
  const std::vector<std::string> arguments = {
      "--train_data", training, "--val_data",       test, "--steps", "30", "--eval_every",        "1",
      "--lr",         "0",      "--early_stopping", "3",  "--log",   log,  "--checkpoint_folder", saved,
      "--resume",     "auto"};
  const auto evaluations = [&] {
    const std::vector<std::string> all = lines("early.jsonl");
    return std::count_if(all.begin(), all.end(),
                         [](const std::string &line) { return line.find("val_loss") != std::string::npos; });
  };
  ASSERT_FALSE(run(2, arguments));
  EXPECT_EQ(evaluations(), 4); // the first is the best, three are no better
  ASSERT_FALSE(run(2, arguments));
  EXPECT_EQ(evaluations(), 4);
}

TEST_F(Run, TheSavedModelLoadsAndPredictsInTheOrderOfTheData) {
  const std::string test = data("test.safetensors", 7);
  const std::string weights = folder.path("w.safetensors");
  SafetensorsWriter writer(weights, {{"w", ElementType::f32, {3}}, {"scale", ElementType::f32, {2, 2}}});
  writer.write(*writer.find("w"), bytesOf<float>({1, 2, 0}).data());
  writer.commit();
  for (const int ranks : {1, 2}) {
    ASSERT_FALSE(run(ranks, {"--val_data", test, "--load_model", weights, "--predict", folder.path("p.safetensors")}));
    EXPECT_EQ(tensor("p.safetensors", "prediction"), (std::vector<float>{0, 1, 2, 3, 0, 1, 2}));
    testing::internal::CaptureStdout();
    ASSERT_FALSE(run(ranks, {"--val_data", test, "--load_model", weights, "--eval_only"}));
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "test loss 0.0000  correct 7/7  100.0 %\n");
  }
}

TEST_F(Run, OnnxIsTheModelAndItsData) {
  std::filesystem::create_directory(folder.path("saved"));
  ASSERT_FALSE(run(2, {"--steps", "0", "--save_onnx", folder.path("saved/a.onnx")}));
  EXPECT_EQ(contentOf(folder.path("saved/a.onnx")), "\x0a\x09the model");
  EXPECT_EQ(valuesOf<float>(contentOf(folder.path("saved/a.onnx.data"))),
            (std::vector<float>{0.5f, -0.25f, 1, 0, 1, 3, 2, 4})); // scale is transposed in the model
}

TEST_F(Run, WrongWorldSizePrintsTheCommandThatCompiles) {
  const auto failure = run(FakeProgram(2), 1, {"--batch", data("b.safetensors", 4), "--steps", "1"});
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ExitCode::incompatible);
  EXPECT_NE(std::string(failure->what()).find("/stages/graph.fsir --loss=mse --world_size=2 --world_size=1 -o "),
            std::string::npos);
}

TEST_F(Run, BadDataEndsAllRanksBeforeTheFirstStep) {
  const auto failure = run(
      2, {"--train_data", data("t.safetensors", 8, 5), "--steps", "2", "--save_model", folder.path("m.safetensors")});
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ExitCode::corrupt);
  EXPECT_TRUE(failure->everyRank);
  EXPECT_NE(std::string(failure->what()).find("(sample 5 of labels): 99 is out of range"), std::string::npos)
      << failure->what();
  EXPECT_FALSE(fileExists(folder.path("m.safetensors")));
}

TEST_F(Run, TooFewSamplesAndWrongBatchesAreNamed) {
  EXPECT_NE(std::string(run(2, {"--train_data", data("t.safetensors", 3), "--steps", "2"})->what())
                .find("3 samples do not fill"),
            std::string::npos);
  EXPECT_NE(std::string(run(2, {"--batch", data("t.safetensors", 5), "--steps", "2"})->what())
                .find("holds 5 rows, the global batch of this program is 4"),
            std::string::npos);
}

TEST_F(Run, ALossThatIsNoNumberNamesTheStep) {
  const auto failure = run(2, {"--batch", data("b.safetensors", 4), "--steps", "500", "--lr", "1e20"});
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ExitCode::nonFinite);
  EXPECT_TRUE(failure->everyRank);
  EXPECT_NE(std::string(failure->what()).find("the loss of step 2"), std::string::npos) << failure->what();
}

TEST_F(Run, OutputsThatCannotBeWrittenAreKnownAtStart) {
  const auto failure =
      run(2, {"--batch", data("b.safetensors", 4), "--steps", "1", "--save_model", folder.path("no/m.safetensors")});
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ExitCode::storage);
  EXPECT_EQ(failure->reportingRank, 0);
}

TEST_F(Run, NoDropLastCountsEverySampleOfTheLastBatch) {
  const std::string log = folder.path("log");
  ASSERT_FALSE(run(
      2, {"--train_data", data("t.safetensors", 5), "--no_drop_last", "--log", log, "--log_freq", "1", "--lr", "0"}));
  const auto logged = lines("log");
  ASSERT_EQ(logged.size(), 6u);
  EXPECT_NEAR(number(logged[4], "loss"), 1.0, 1e-6); // sample 4 alone: y = 1 at x = 0, label 0
}

} // namespace
} // namespace fsdpc::rt
