// Arenas and the memory of windows: what is mapped, what faults, and what fails with exit code 9 instead.
#include "runtime/cpu/arena.h"

#include "runtime/common/failure.h"
#include "runtime/common/process_memory.h"
#include "runtime/cpu/host_memory.h"
#include "runtime/cpu/window_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

namespace fsdpc::rt {
namespace {

constexpr std::int64_t page = 4096;

/// The message of the Failure that `action` throws, which must have the code `memory`.
template <class Action>
std::string memoryFailureOf(const Action &action) {
  try {
    action();
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, ExitCode::memory);
    return failure.what();
  }
  ADD_FAILURE() << "no failure";
  return "";
}

TEST(Arena, IsZeroAndWritableToTheLastByte) {
  for (std::int64_t bytes : {page, 5 * page, (std::int64_t{4} << 20) + page}) {
    const Arena arena = Arena::mapPrivate(bytes);
    EXPECT_EQ(arena.bytes(), bytes);
    EXPECT_TRUE(std::all_of(arena.data(), arena.data() + bytes, [](std::byte b) { return b == std::byte{0}; }));
    arena.data()[bytes - 1] = std::byte{1};
  }
  EXPECT_EQ(Arena::mapPrivate(0).data(), nullptr);
}

TEST(Arena, TellsTheHighestChangedByte) {
  Arena arena = Arena::mapPrivate(3 * page);
  arena.fillPattern();
  EXPECT_EQ(arena.changedBytes(), 0);
  arena.data()[10] ^= std::byte{1};
  EXPECT_EQ(arena.changedBytes(), 11);
  arena.data()[2 * page] ^= std::byte{0x80};
  EXPECT_EQ(arena.changedBytes(), 2 * page + 1);
}

TEST(ArenaDeathTest, LiesBetweenGuardPages) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // The second arena is aligned to 2 MiB, and so is the kernel's reservation if possible.
  for (const std::int64_t bytes : {2 * page, std::int64_t{4} << 20}) {
    const Arena arena = Arena::mapPrivate(bytes);
    volatile std::byte *data = arena.data();
    EXPECT_EXIT(data[bytes] = std::byte{1}, testing::KilledBySignal(SIGSEGV), "");
    EXPECT_EXIT(data[-1] = std::byte{1}, testing::KilledBySignal(SIGSEGV), "");
    EXPECT_EXIT(data[-page] = std::byte{1}, testing::KilledBySignal(SIGSEGV), "");
  }
}

TEST(Arena, ARequestNoMachineCanMeetIsExitCode9) {
  const std::string message = memoryFailureOf([] { Arena::mapPrivate(std::int64_t{1} << 60); });
  EXPECT_NE(message.find("1152921504606846976 bytes"), std::string::npos) << message;
}

class WindowStores : public testing::TestWithParam<bool> {
protected:
  WindowStore create(std::int64_t bytes) {
    return GetParam() ? WindowStore::anonymous(bytes) : WindowStore::inDirectory(testing::TempDir(), bytes);
  }
};

TEST_P(WindowStores, ShareWhatOneWritesAndPeersMayOnlyRead) {
  WindowStore created = create(4 * page);
  WindowStore opened = WindowStore::open(created.handle());
  created.removeName();
  created.reserve(0, 4 * page);
  const Arena own = Arena::mapShared(created.file(), 2 * page, 2 * page, Arena::Access::readWrite);
  const Arena peers = Arena::mapShared(opened.file(), 2 * page, 2 * page, Arena::Access::readOnly);
  own.data()[2 * page - 1] = std::byte{42};
  EXPECT_EQ(peers.data()[2 * page - 1], std::byte{42});
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  volatile std::byte *data = peers.data();
  EXPECT_EXIT(data[0] = std::byte{1}, testing::KilledBySignal(SIGSEGV), "");
}

INSTANTIATE_TEST_SUITE_P(, WindowStores, testing::Bool(),
                         [](const auto &info) { return info.param ? "anonymous" : "inDirectory"; });

TEST(WindowStore, LeavesNoNameBehind) {
  std::string path;
  {
    const WindowStore store = WindowStore::inDirectory(testing::TempDir(), page);
    path = store.handle().path;
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(WindowStore, TooLittleRoomIsExitCode9BeforeAnyPageIsTouched) {
  struct statfs status;
  if (statfs("/dev/shm", &status) != 0 || status.f_type != TMPFS_MAGIC || status.f_blocks == 0)
    GTEST_SKIP() << "no limited /dev/shm here";
  const std::int64_t bytes = (static_cast<std::int64_t>(status.f_blocks) + 1) * status.f_bsize;
  WindowStore store = WindowStore::inDirectory("/dev/shm", bytes);
  const std::string message = memoryFailureOf([&] { store.reserve(0, bytes); });
  EXPECT_NE(message.find("needs " + describeBytes(bytes)), std::string::npos) << message;
  EXPECT_NE(message.find(" left: No space left on device"), std::string::npos) << message;
}

TEST(WindowStore, AHandleOfAnotherFileIsRefused) {
  const WindowStore store = WindowStore::anonymous(page);
  WindowStore::Handle handle = store.handle();
  handle.inode += 1;
  EXPECT_EQ(memoryFailureOf([&] { WindowStore::open(handle); }),
            "window memory: " + std::string(handle.path) + " is another file here: Stale file handle");
  handle = store.handle();
  std::snprintf(handle.path, sizeof handle.path, "/proc/self/fd/999999");
  EXPECT_EQ(memoryFailureOf([&] { WindowStore::open(handle); }),
            "window memory: open /proc/self/fd/999999: No such file or directory");
}

TEST(HostMemory, TooLittleOnTheHostIsExitCode9) {
  EXPECT_NO_THROW(checkHostMemory(1000, 2, 1000));
  EXPECT_NO_THROW(checkHostMemory(1000, 2, -1));
  EXPECT_EQ(
      memoryFailureOf([] { checkHostMemory(std::int64_t{3} << 30, 4, std::int64_t{1} << 20); }),
      "the arenas of 4 ranks on this host need 3221225472 bytes (3.0 GiB), available are 1048576 bytes (1.0 MiB)");
}

/// A folder that replaces the root of /proc and /sys.
class FakeRoot {
public:
  FakeRoot() : path_(testing::TempDir() + "/fsdpc-root-" + std::to_string(getpid())) {}
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  void write(const std::string &file, const std::string &text) {
    const std::filesystem::path full = path_ + file;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  const std::string &path() const { return path_; }

private:
  std::string path_;
};

TEST(HostMemory, AvailableIsWhatTheTightestControlGroupLeaves) {
  FakeRoot root;
  root.write("/proc/meminfo", "MemTotal: 100 kB\nMemAvailable:    50 kB\nSwapFree:  10 kB\n");
  EXPECT_EQ(readAvailableMemoryBytes(root.path()), 60 * 1024);
  root.write("/proc/self/cgroup", "0::/jobs/mine\n");
  root.write("/sys/fs/cgroup/jobs/mine/memory.max", "max\n");
  root.write("/sys/fs/cgroup/jobs/mine/memory.current", "9000\n");
  EXPECT_EQ(readAvailableMemoryBytes(root.path()), 60 * 1024);
  root.write("/sys/fs/cgroup/jobs/memory.max", "20000\n");
  root.write("/sys/fs/cgroup/jobs/memory.current", "15000\n");
  root.write("/sys/fs/cgroup/jobs/memory.stat", "anon 1\ninactive_file 700\n");
  EXPECT_EQ(readAvailableMemoryBytes(root.path()), 5700);
  // Version 1, in a container: the path of the group does not exist inside. The root of the mount is the group.
  root.write("/proc/self/cgroup", "4:cpu,memory:/docker/abc\n");
  root.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "3000\n");
  root.write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
  EXPECT_EQ(readAvailableMemoryBytes(root.path()), 2000);
}

TEST(HostMemory, ProportionalSetSizeGrowsWithTouchedPages) {
  const std::int64_t before = readProportionalSetSizeBytes();
  if (before < 0)
    GTEST_SKIP() << "the kernel does not tell";
  const std::int64_t withFilesBefore = readProportionalSetSizeBytes(std::vector<MemoryRange>());
  Arena arena = Arena::mapPrivate(std::int64_t{64} << 20);
  const std::int64_t mapped = readProportionalSetSizeBytes();
  EXPECT_LT(mapped - before, std::int64_t{16} << 20);
  arena.fillPattern();
  EXPECT_GE(readProportionalSetSizeBytes() - mapped, arena.bytes());
  // Without the arena, the size is as before.
  EXPECT_LT(readProportionalSetSizeBytes({{arena.data(), arena.bytes()}}) - withFilesBefore, std::int64_t{16} << 20);
}

TEST(HostMemory, PagesOfFilesDoNotCount) {
  FakeRoot root;
  root.write("/rollup",
             "1000-9000 ---p 00000000 00:00 0 [rollup]\nRss: 90 kB\nPss: 50 kB\nPss_Dirty: 9 kB\nPss_Anon: 12 kB\n"
             "Pss_File: 30 kB\nPss_Shmem: 8 kB\n");
  EXPECT_EQ(readProportionalSetSizeBytes({}, root.path() + "/rollup"), 20 * 1024);
}

TEST(HostMemory, LeavesOutMappingsOfTheRangesAlone) {
  FakeRoot root;
  root.write("/smaps", "1000-3000 rw-p 00000000 00:00 0 \nSize: 8 kB\nPss: 8 kB\nPss_Dirty: 8 kB\n"
                       "3000-4000 r--p 00000000 00:00 7 /lib/a.so\nPss: 1 kB\n4000-6000 rw-p 0 00:00 0\nPss: 6 kB\n");
  const auto sizeWithout = [&](std::vector<MemoryRange> ranges) {
    return readProportionalSetSizeBytes(ranges, root.path() + "/smaps");
  };
  EXPECT_EQ(sizeWithout({}), 15 * 1024);
  EXPECT_EQ(sizeWithout({{reinterpret_cast<void *>(0x1000), 0x2000}}), 7 * 1024);
  EXPECT_EQ(sizeWithout({{reinterpret_cast<void *>(0x3000), 0x3000}, {nullptr, 0}}), 8 * 1024);
  EXPECT_EQ(readProportionalSetSizeBytes({}, root.path() + "/none"), -1);
}

} // namespace
} // namespace fsdpc::rt
