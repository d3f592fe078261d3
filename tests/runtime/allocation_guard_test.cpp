// The check of test builds that a step allocates nothing.
#include "runtime/cpu/allocation_guard.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sys/mman.h>
#include <thread>

namespace fsdpc::rt {
namespace {

#if FSDPC_ALLOCATION_GUARD

/// Allocates and frees where the compiler cannot see that nothing uses it.
void allocate(std::size_t bytes) {
  void *volatile memory = std::malloc(bytes);
  std::free(memory);
}

TEST(AllocationGuardDeathTest, ALargeAllocationInsideAStepEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto dies = [](auto allocation) {
    EXPECT_EXIT(
        {
          stepBegins();
          allocation();
        },
        testing::KilledBySignal(SIGABRT), "fsdpc: allocation of 4096 bytes inside step [12]");
  };
  dies([] { allocate(4096); });
  dies([] {
    void *volatile memory = std::calloc(4, 1024);
    std::free(memory);
  });
  dies([] {
    void *volatile memory = std::realloc(std::malloc(8), 4096);
    std::free(memory);
  });
  dies([] {
    void *volatile memory = std::aligned_alloc(64, 4096);
    std::free(memory);
  });
  dies([] {
    void *memory = nullptr;
    EXPECT_EQ(posix_memalign(&memory, 64, 4096), 0);
  });
  dies([] {
    char *volatile values = new char[4096];
    delete[] values;
  });
  dies([] { mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); });
  // Maps memory before a step and grows it within the step, so that only the growth is at fault.
  dies([] {
    stepEnds();
    void *const memory = mmap(nullptr, 2048, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stepBegins(StepPart::functions);
    mremap(memory, 2048, 4096, MREMAP_MAYMOVE);
  });
}

TEST(AllocationGuardDeathTest, SaysWhichPartOfAStepAllocates) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto dies = [](StepPart part, const char *message) {
    EXPECT_EXIT(
        {
          stepBegins();
          stepEnds();
          stepBegins(part);
          allocate(5000);
        },
        testing::KilledBySignal(SIGABRT), message);
  };
  dies(StepPart::feeding, "allocation of 5000 bytes while feeding the step after step 1");
  dies(StepPart::logging, "allocation of 5000 bytes while logging step 1");
}

TEST(AllocationGuardDeathTest, OnAnyThread) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::atomic<bool> go{false};
        std::thread thread([&] {
          while (!go)
            std::this_thread::yield();
          allocate(4096);
        });
        stepBegins();
        go = true;
        thread.join();
      },
      testing::KilledBySignal(SIGABRT), "allocation of 4096 bytes");
}

TEST(AllocationGuard, CountsSmallOnesAndThoseOfMpi) {
  testing::internal::CaptureStderr();
  stepBegins();
  allocate(100);
  allocate(200);
  {
    const MpiScope inMpi;
    allocate(10000);
  }
  stepEnds();
  allocate(1 << 20);
  const std::string printed = testing::internal::GetCapturedStderr();
  const AllocationCounts counts = stepAllocations();
  EXPECT_EQ(counts.small, 2);
  EXPECT_EQ(counts.smallBytes, 300);
  EXPECT_EQ(counts.mpi, 1);
  EXPECT_EQ(counts.mpiBytes, 10000);
  EXPECT_NE(printed.find("2 small allocations (300 bytes), 1 by MPI (10000 bytes)"), std::string::npos) << printed;
}

#else

TEST(AllocationGuard, IsNothingOutsideTheTestBuild) {
  stepBegins();
  void *volatile memory = std::malloc(1 << 20);
  std::free(memory);
  stepEnds();
  EXPECT_EQ(stepAllocations().small, 0);
}

#endif

} // namespace
} // namespace fsdpc::rt
