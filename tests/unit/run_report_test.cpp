// Logs of runs as the data of a page.
#include "frontend/report/run_report.h"
#include "llvm/Support/JSON.h"
#include <gmock/gmock.h>

namespace fsdpc {
namespace {

using testing::HasSubstr;

const llvm::json::Object &runAt(llvm::json::Value &report, size_t index) {
  return *(*report.getAsObject()->getArray("runs"))[index].getAsObject();
}

llvm::json::Value reportOf(llvm::ArrayRef<LogText> logs) {
  llvm::Expected<std::string> text = runReportJson(logs);
  if (!text) {
    ADD_FAILURE() << llvm::toString(text.takeError());
    return nullptr;
  }
  return llvm::cantFail(llvm::json::parse(*text));
}

std::string failureOf(llvm::ArrayRef<LogText> logs) {
  llvm::Expected<std::string> text = runReportJson(logs);
  return text ? "" : llvm::toString(text.takeError());
}

std::string textOf(const llvm::json::Value *value) {
  std::string text;
  if (value)
    llvm::raw_string_ostream(text) << *value;
  return text;
}

constexpr const char *first = R"({"settings":{"options":{"lr":0.5,"log":"a"},"world_size":2}}
{"note":"fed otherwise"}
{"step":1,"loss":3.5,"compute_ms":null}
{"step":2,"loss":2.5,"lr":0.25}
{"step":2,"epoch":1,"val_loss":2.25}
{"skipped_step":3,"why":"the loss is NaN"}
{"checkpoint":{"step":3,"path":"c/3"}}
)";

TEST(RunReport, HasFiguresByStepFlatSettingsAndEvents) {
  llvm::json::Value report = reportOf({{"a", first}});
  const llvm::json::Object &run = runAt(report, 0);
  EXPECT_EQ(textOf(run.get("name")), "\"a\"");
  EXPECT_EQ(textOf(run.get("settings")), R"({"options.log":"a","options.lr":0.5,"world_size":2})");
  EXPECT_EQ(textOf(run.get("series")),
            R"({"epoch":[[2,1]],"loss":[[1,3.5],[2,2.5]],"lr":[[2,0.25]],"val_loss":[[2,2.25]]})");
  EXPECT_EQ(textOf(run.get("events")), R"([[0,"fed otherwise"],[3,"skipped: the loss is NaN"],[3,"checkpoint c/3"]])");
}

TEST(RunReport, ALineThatIsStillBeingWrittenIsLeftOut) {
  llvm::json::Value report = reportOf({{"a", "{\"step\":1,\"loss\":3}\n{\"step\":2,\"lo"}});
  EXPECT_EQ(textOf(runAt(report, 0).get("series")), R"({"loss":[[1,3]]})");
}

TEST(RunReport, OtherFilesAreRefusedByNameAndLine) {
  EXPECT_THAT(failureOf({{"a", first}, {"b", "{\"step\":1}\nloss 3\n"}}), HasSubstr("b: line 2 is no line of a log"));
  EXPECT_THAT(failureOf({{"b", "[1]\n"}}), HasSubstr("b: line 1 is no line of a log"));
}

} // namespace
} // namespace fsdpc
