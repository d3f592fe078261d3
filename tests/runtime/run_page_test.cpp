// --report: the page holds lines of the log, a bounded number of them, and is always whole.
#include "runtime/common/run_page.h"
#include "tests/runtime/run_fixture.h"

namespace fsdpc::rt {
namespace {

/// The data between the frame's own text, without the first line, which is about the page.
std::string dataOf(const std::string &page) {
  const std::string text = contentOf(page), begin = "<b>", end = "</b>\n";
  EXPECT_EQ(text.substr(0, begin.size()), begin);
  EXPECT_EQ(text.substr(text.size() - end.size()), end);
  const std::size_t line = text.find('\n');
  return text.substr(line, text.size() - line - end.size());
}

std::string firstLineOf(const std::string &page) {
  const std::string text = contentOf(page);
  return text.substr(3, text.find_first_of("\n<", 3) - 3);
}

std::string stepLine(int step) { return "{\"step\":" + std::to_string(step) + ",\"loss\":1}\n"; }

class Page : public ::testing::Test {
protected:
  TemporaryFolder folder;
  std::string frame = folder.write("frame.html", "<b>RUNS</b>\n"), page = folder.path("page.html");
};

TEST_F(Page, HoldsTheLinesOfTheLogInItsOrderAndWhatBecameOfTheRun) {
  const std::string lines =
      "{\"settings\":{\"a\":1}}\n{\"step\":1,\"loss\":3}\n{\"step\":1,\"epoch\":1,\"val_loss\":2}\n";
  const std::string log = folder.write("run.jsonl", lines + "{\"step\":2,\"lo");
  RunPage writer(page, log, frame, 0);
  writer.update();
  EXPECT_EQ(dataOf(page) + "\n", "\n" + lines) << "without the line that is not whole";
  EXPECT_NE(firstLineOf(page).find("{\"run\":\"run\",\"state\":\"running\",\"why\":\"\",\"every\":1"),
            std::string::npos);
  std::ofstream(log, std::ios::app) << "ss\":1}\n{\"note\":\"</script>\"}\n";
  writer.update();
  EXPECT_EQ(dataOf(page) + "\n", "\n" + lines) << "the page is younger than a few seconds";
  writer.end("a <reason>");
  EXPECT_EQ(dataOf(page), "\n" + lines + "{\"step\":2,\"loss\":1}\n{\"note\":\"\\u003c/script>\"}");
  EXPECT_NE(firstLineOf(page).find("\"state\":\"ended\",\"why\":\"a \\u003creason>\""), std::string::npos);
  EXPECT_EQ(folder.names().size(), 3u) << "no temporary file is left";
}

TEST_F(Page, OfManyStepsEvenlySpreadOnesAreShownAndTheNewest) {
  std::string lines = "{\"settings\":{\"first\":true}}\n{\"settings\":{}}\n";
  for (int step = 1; step <= 2500; ++step)
    lines += stepLine(step);
  RunPage(page, folder.write("run.jsonl", lines), frame, 0).end("");
  std::string wanted = "\n{\"settings\":{}}\n";
  for (int step = 1; step <= 2500; step += 4)
    wanted += stepLine(step);
  EXPECT_EQ(dataOf(page) + "\n", wanted + stepLine(2500));
  EXPECT_NE(firstLineOf(page).find("\"every\":4"), std::string::npos);
}

TEST_F(Page, LinesThatAreLongerThanABufferAreWhole) {
  const std::string line = "{\"settings\":\"" + std::string(200000, '<') + "\"}";
  RunPage(page, folder.write("run.jsonl", line + "\n" + stepLine(1)), frame, 0).end("");
  const std::string data = dataOf(page);
  EXPECT_EQ(data.size(), 1 + line.size() + 5 * 200000 + stepLine(1).size());
  EXPECT_EQ(data.substr(data.size() - stepLine(1).size()), "\n" + stepLine(1).substr(0, stepLine(1).size() - 1));
}

TEST_F(Page, OfOtherLinesTheNewestAreShown) {
  std::string lines, wanted = "\n";
  for (int i = 0; i < 450; ++i) {
    const std::string line = "{\"note\":\"" + std::to_string(i) + "\"}\n";
    lines += line;
    wanted += i < 250 ? "" : line;
  }
  RunPage(page, folder.write("run.jsonl", lines), frame, 0).end("");
  EXPECT_EQ(dataOf(page) + "\n", wanted);
}

TEST_F(Page, OtherRanksAndRunsWithoutAPageWriteNothing) {
  RunPage(page, folder.path("absent"), frame, 1).end("");
  RunPage("", "", "", 0).end("");
  EXPECT_FALSE(fileExists(page));
}

TEST_F(Page, ALogThatCannotBeReadAndAMissingFrameAreRefused) {
  EXPECT_FAILURE(RunPage(page, "/dev/null", frame, 0), usage, "/dev/null is no file that can be read");
  EXPECT_FAILURE(RunPage(page, folder.write("log", ""), folder.path("absent"), 0), corrupt, "absent: no such file");
}

TEST_F(Page, APageThatCannotBeWrittenEndsNothing) {
  const std::string log = folder.write("run.jsonl", stepLine(1));
  RunPage writer(folder.path("gone/page.html"), log, frame, 0);
  writer.update();
  writer.end("");
  EXPECT_EQ(folder.names().size(), 2u);
}

class ReportedRun : public Run {
protected:
  ReportedRun() { folder.write("run_page.html", "<b>RUNS</b>\n"); }
};

TEST_F(ReportedRun, SaysHowItEndedAndGoesOnWithTheLogOfTheRunBefore) {
  const std::string page = folder.path("page.html"), train = data("train.safetensors", 8);
  const auto runFor = [&](const char *steps, const std::string &file) {
    return run(2, {"--train_data", file, "--steps", steps, "--log", folder.path("log.jsonl"), "--log_freq", "1",
                   "--report", page, "--checkpoint_folder", folder.path("saved"), "--resume", "auto"});
  };
  ASSERT_FALSE(runFor("2", train));
  EXPECT_NE(firstLineOf(page).find("\"run\":\"log\",\"state\":\"finished\""), std::string::npos);
  ASSERT_FALSE(runFor("3", train));
  const std::string data = dataOf(page);
  for (const char *part : {"{\"step\":1,", "{\"step\":2,", "\n{\"resumed\":", "{\"step\":3,"})
    EXPECT_NE(data.find(part), std::string::npos) << part;
  EXPECT_EQ(data.find("{\"settings\":"), data.rfind("{\"settings\":"));
}

TEST_F(ReportedRun, NeedsALog) {
  const auto failure = run(1, {"--batch", data("b.safetensors", 2), "--steps", "1", "--report", "page.html"});
  ASSERT_TRUE(failure);
  EXPECT_NE(std::string(failure->what()).find("--report page.html draws the figures of the log"), std::string::npos);
}

} // namespace
} // namespace fsdpc::rt
