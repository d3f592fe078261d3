// The default target of a program. A device alone is not enough: this fsdpc must be able to build for it.
#include "frontend/compilation/program_target.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include <gtest/gtest.h>

namespace fsdpc {
namespace {

/// An empty file instead of the driver's device node.
class DefaultTarget : public testing::Test {
protected:
  DefaultTarget() {
    EXPECT_FALSE(llvm::sys::fs::createTemporaryFile("nvidiactl", "", node));
    remover.setFile(node);
  }
  llvm::SmallString<128> node;
  llvm::FileRemover remover;
};

TEST_F(DefaultTarget, IsCudaWhereThereAreADeviceAndACompiler) { EXPECT_EQ(defaultTarget(node, true), "cuda"); }

TEST_F(DefaultTarget, IsCpuWhereThereIsADeviceAndNoCompiler) { EXPECT_EQ(defaultTarget(node, false), "cpu"); }

TEST_F(DefaultTarget, IsCpuWhereThereIsACompilerAndNoDevice) {
  ASSERT_FALSE(llvm::sys::fs::remove(node));
  EXPECT_EQ(defaultTarget(node, true), "cpu");
}

} // namespace
} // namespace fsdpc
