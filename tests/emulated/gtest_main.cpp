// GoogleTest's main for tests on the emulated device. A call has ended when it returns, unless a test selects another
// interleaving (interleaving.h).
#include <gtest/gtest.h>

#include <cstdlib>

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  ::setenv("FSDPC_EMULATED_EAGER", "1", 1); // before the device is first used
  return RUN_ALL_TESTS();
}
