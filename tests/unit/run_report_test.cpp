// Logs of runs as the data of a page.
#include "frontend/report/run_report.h"
#include <gmock/gmock.h>

namespace fsdpc {
namespace {

using testing::HasSubstr;

std::string linesOf(llvm::ArrayRef<LogText> logs) {
  llvm::Expected<std::string> text = runReportLines(logs);
  return text ? *text : llvm::toString(text.takeError());
}

std::string failureOf(llvm::ArrayRef<LogText> logs) {
  llvm::Expected<std::string> text = runReportLines(logs);
  return text ? "" : llvm::toString(text.takeError());
}

constexpr const char *first = R"({"settings":{"options":{"lr":0.5,"log":"a"},"world_size":2}}
{"note":"fed otherwise"}
{"step":1,"loss":3.5,"compute_ms":null}
{"step":2,"loss":2.5,"lr":0.25}
{"step":2,"epoch":1,"val_loss":2.25}
{"skipped_step":3,"why":"the loss is NaN"}
{"checkpoint":{"step":3,"path":"c/3"}}
)";

TEST(RunReport, HoldsTheLinesOfEachLogAfterItsName) {
  EXPECT_EQ(linesOf({{"a", first}, {"b\"", "{\"step\":1}\n"}}),
            std::string("{\"run\":\"a\"}\n") + first + "{\"run\":\"b\\\"\"}\n{\"step\":1}\n");
}

TEST(RunReport, ALineThatARunLeftIncompleteIsLeftOut) {
  EXPECT_EQ(linesOf({{"a", "{\"step\":1}\n{\"step\":2,\"lo"}}), "{\"run\":\"a\"}\n{\"step\":1}\n");
  EXPECT_EQ(linesOf({{"a", "{\"step\":2,\"lo\n{\"settings\":{}}\n"}}), "{\"run\":\"a\"}\n{\"settings\":{}}\n");
}

TEST(RunReport, OtherFilesAreRefusedByNameAndLine) {
  EXPECT_THAT(failureOf({{"a", first}, {"b", "{\"step\":1}\nloss 3\n"}}), HasSubstr("b: line 2 is no line of a log"));
  EXPECT_THAT(failureOf({{"b", "[1]\n"}}), HasSubstr("b: line 1 is no line of a log"));
}

} // namespace
} // namespace fsdpc
