// A pass that crashes, even by a stack overflow, leaves the module that it was given and exit code 70.
#include "frontend/driver/crash_reproducer.h"

#include "ir/text/text.h"
#include "tests/unit/small_net.h"
#include "llvm/Support/MemoryBuffer.h"

#include <csignal>
#include <gtest/gtest.h>

namespace fsdpc {
namespace {

volatile bool isEndless = true;

// NOLINTNEXTLINE(misc-no-recursion): the stack overflow is intended
int endStack(int depth) {
  volatile char frame[4096];
  frame[0] = static_cast<char>(depth);
  return isEndless ? endStack(depth + 1) + frame[0] : depth;
}

void dieIn(const std::string &path, void (*pass)()) {
  std::unique_ptr<Module> module = SmallNet::make(2);
  CrashReproducer crash(path);
  crash.remember("differentiate", *module);
  pass();
}

void expectReproducer(void (*pass)()) {
  const std::string path = testing::TempDir() + "fsdpc-crash-" + std::to_string(getpid()) + ".fsir";
  EXPECT_EXIT(dieIn(path, pass), testing::ExitedWithCode(70), "pass differentiate died\nreproducer: fsdpc " + path);
  auto buffer = llvm::MemoryBuffer::getFile(path);
  ASSERT_TRUE(static_cast<bool>(buffer)) << path;
  EXPECT_EQ((*buffer)->getBuffer().str(), toText(*SmallNet::make(2)));
  std::remove(path.c_str());
}

TEST(CrashReproducer, OfAnAbort) {
  expectReproducer([] { std::abort(); });
}

TEST(CrashReproducer, OfTheEndOfTheStack) {
  expectReproducer([] { endStack(0); });
}

} // namespace
} // namespace fsdpc
