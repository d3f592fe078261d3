// GoogleTest's main, with MPI for the tests that need it.
#include "tests/runtime/mpi_world.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

namespace fsdpc::rt::test {
namespace {
std::unique_ptr<Platform> thePlatform;
}

Platform &platform() {
  if (!thePlatform) {
    int argc = 0;
    char **argv = nullptr;
    thePlatform = startPlatform(argc, argv);
  }
  return *thePlatform;
}

void endPlatform() { thePlatform.reset(); }

} // namespace fsdpc::rt::test

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  if (std::getenv("OMPI_COMM_WORLD_SIZE"))
    fsdpc::rt::test::platform();
  const int status = RUN_ALL_TESTS();
  fsdpc::rt::test::endPlatform();
  return status;
}
