// Command-line options of the importer.
#include "frontend/options/resolve.h"
#include <gmock/gmock.h>

namespace fsdpc {
namespace {

using testing::HasSubstr;

llvm::Expected<ImportOptions> importOptionsOf(const std::vector<std::string> &words) {
  llvm::Expected<OptionValues> values = OptionValues::parse(words);
  return values ? importOptions(*values) : values.takeError();
}

TEST(ImportOptionsOfTheCommandLine, NameWhatMayTrainAlthoughTheExporterChangedIt) {
  llvm::Expected<ImportOptions> options = importOptionsOf({"m.onnx", "--accept-changed", "bn[0-9]+\\..*,x"});
  ASSERT_TRUE(bool(options)) << llvm::toString(options.takeError());
  EXPECT_EQ(options->acceptChanged, "bn[0-9]+\\..*,x");
}

TEST(ImportOptionsOfTheCommandLine, AreRefusedWhereARegularExpressionIsNone) {
  for (const char *name : {"--trainable", "--frozen", "--accept_changed"}) {
    llvm::Expected<ImportOptions> options = importOptionsOf({"m.onnx", name, "bn[0"});
    ASSERT_FALSE(bool(options)) << name;
    llvm::Error error = options.takeError();
    EXPECT_TRUE(error.isA<UsageError>());
    EXPECT_THAT(llvm::toString(std::move(error)), HasSubstr(std::string(name) + " bn[0: "));
  }
}

} // namespace
} // namespace fsdpc
