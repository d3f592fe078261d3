// Ranks, as threads, that find each other over TCP: by port and by file, with strangers calling, and with timeouts.
#include "runtime/common/failure.h"
#include "runtime/cuda/tcp_group.h"
#include "tests/runtime/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <numeric>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace fsdpc::rt {
namespace {

using testing::HasSubstr;

constexpr double plentyOfSeconds = 20;

/// A socket of a caller that is not a rank.
class NonRankClient {
public:
  NonRankClient() : handle(::socket(AF_INET, SOCK_STREAM, 0)) { address.sin_family = AF_INET; }
  ~NonRankClient() { leave(); }
  NonRankClient(const NonRankClient &) = delete;
  NonRankClient &operator=(const NonRankClient &) = delete;

  /// Listens on a free port and returns it.
  int listen() {
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(handle, generic(), sizeof address), 0);
    EXPECT_EQ(::listen(handle, 8), 0);
    socklen_t length = sizeof address;
    ::getsockname(handle, generic(), &length);
    return ntohs(address.sin_port);
  }
  /// Retries until a socket listens.
  void connect(int port) {
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    while (::connect(handle, generic(), sizeof address) != 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  /// Accepts the next connection, which replaces its own socket.
  void accept() {
    const int accepted = ::accept(handle, nullptr, nullptr);
    ::close(std::exchange(handle, accepted));
  }
  void say(const void *data, std::size_t bytes) const {
    EXPECT_EQ(::send(handle, data, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }
  void leave() {
    if (handle >= 0)
      ::close(std::exchange(handle, -1));
  }

private:
  sockaddr *generic() { return reinterpret_cast<sockaddr *>(&address); }
  int handle;
  sockaddr_in address{};
};

int freePort() { return NonRankClient().listen(); }

LaunchEnvironment environmentOf(int rank, int size, const RendezvousPoint &point) { return {rank, size, rank, point}; }
RendezvousPoint at(int port) { return {"localhost", port, ""}; }

using Body = std::function<void(HostGroup &)>;

/// Runs one rank; an unexpected error fails the test.
void runRank(int rank, int size, const RendezvousPoint &point, const Body &body) {
  try {
    const auto group = joinOverTcp(environmentOf(rank, size, point), plentyOfSeconds);
    EXPECT_EQ(group->rank(), rank);
    EXPECT_EQ(group->size(), size);
    body(*group);
  } catch (const Failure &failure) {
    ADD_FAILURE() << "rank " << rank << ": " << failure.what();
  }
}

void runRanks(int size, const RendezvousPoint &point, const Body &body) {
  std::vector<std::thread> threads;
  for (int rank = size - 1; rank >= 0; --rank) // rank 0 is last: the others have to wait for it
    threads.emplace_back([&, rank] { runRank(rank, size, point, body); });
  for (std::thread &thread : threads)
    thread.join();
}

/// The error of joining with a short timeout.
std::string failureOf(int rank, int size, const RendezvousPoint &point) {
  try {
    joinOverTcp(environmentOf(rank, size, point), 0.3);
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, ExitCode::device);
    return failure.what();
  }
  return "none";
}

// ---- operations of a group

std::vector<std::int32_t> largeData(int seed) {
  std::vector<std::int32_t> values(100'000); // more than sockets buffer
  std::iota(values.begin(), values.end(), seed * 1000);
  return values;
}

void exchangeAndBroadcast(HostGroup &group) {
  for (int round = 0; round < 3; ++round) {
    const std::int64_t mine = 10 * round + group.rank();
    std::vector<std::int64_t> all(static_cast<std::size_t>(group.size()), -1), atRoot = all;
    group.exchange(&mine, sizeof mine, all.data());
    group.gatherToRoot(&mine, sizeof mine, group.rank() == 0 ? atRoot.data() : nullptr);
    for (int rank = 0; rank < group.size(); ++rank) {
      EXPECT_EQ(all[rank], 10 * round + rank);
      EXPECT_EQ(atRoot[rank], group.rank() == 0 ? 10 * round + rank : -1);
    }
    auto data = largeData(group.rank() == 0 ? round : -1);
    group.broadcast(data.data(), static_cast<std::int64_t>(data.size() * sizeof data[0]));
    EXPECT_EQ(data, largeData(round));
  }
}

void exchangeLargeData(HostGroup &group) {
  const auto mine = largeData(group.rank());
  std::vector<std::int32_t> all(mine.size() * static_cast<std::size_t>(group.size()));
  group.exchange(mine.data(), static_cast<std::int64_t>(mine.size() * sizeof mine[0]), all.data());
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto part = all.begin() + static_cast<std::ptrdiff_t>(mine.size()) * rank;
    EXPECT_TRUE(std::equal(part, part + static_cast<std::ptrdiff_t>(mine.size()), largeData(rank).begin())) << rank;
  }
}

TEST(TcpGroup, RanksThatMeetOnAPortExchangeGatherAndBroadcast) {
  for (const int size : {2, 4}) {
    runRanks(size, at(freePort()), exchangeAndBroadcast);
    runRanks(size, at(freePort()), exchangeLargeData);
  }
}

TEST(TcpGroup, RanksThatMeetThroughAFileDoToo) {
  const TemporaryFolder folder;
  for (const int size : {2, 4}) {
    const std::string file = folder.path("rendezvous");
    runRanks(size, {"", 0, file}, exchangeAndBroadcast);
    EXPECT_FALSE(std::ifstream(file).good()) << "the file stays for the next job";
  }
}

TEST(TcpGroup, ARankAloneOpensNothing) {
  const auto group = joinOverTcp({}, 0.1);
  const int mine = 7;
  int all = 0, atRoot = 0;
  group->exchange(&mine, sizeof mine, &all);
  group->gatherToRoot(&mine, sizeof mine, &atRoot);
  group->broadcast(&all, sizeof all);
  EXPECT_EQ(all, 7);
  EXPECT_EQ(atRoot, 7);
}

TEST(TcpGroup, ARankThatLeavesIsMissedByTheOthers) {
  runRanks(2, at(freePort()), [](HostGroup &group) {
    std::int64_t mine = 0, all[2];
    if (group.rank() == 0) {
      try {
        group.exchange(&mine, sizeof mine, all);
        ADD_FAILURE() << "exchanged with nobody";
      } catch (const Failure &failure) {
        EXPECT_EQ(failure.code, ExitCode::timeout);
        EXPECT_STREQ(failure.what(), "a rank has left");
      }
    }
  });
}

TEST(TcpGroup, AHostWithoutIPv6IsEnough) {
  const auto meetWithoutIPv6 = [] {
    const sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{std::size(program), const_cast<sock_filter *>(program)};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0)
      runRanks(2, at(freePort()), exchangeAndBroadcast);
    else
      std::fprintf(stderr, "this machine has no filter for system calls: not tested\n");
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(meetWithoutIPv6(), testing::ExitedWithCode(0), "");
}

TEST(TcpGroup, AHostWhoseNameNobodyKnowsIsEnoughForAFile) {
  const auto meetOnNamelessHost = [] {
    const char name[] = "nobody-knows-this.invalid";
    if (::unshare(CLONE_NEWUSER | CLONE_NEWUTS) == 0 && ::sethostname(name, sizeof name - 1) == 0) {
      const TemporaryFolder folder;
      runRanks(2, {"", 0, folder.path("rendezvous")}, exchangeAndBroadcast);
    } else {
      std::fprintf(stderr, "this machine's name may not be changed: not tested\n");
    }
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(meetOnNamelessHost(), testing::ExitedWithCode(0), "");
}

// ---- strangers

/// A rank's first message.
struct Greeting {
  std::uint64_t magic = 0x66736470'632d3031;
  std::int64_t rank = 1, size = 2;
};

/// Two ranks join although `visit` contacts rank 0 before rank 1 does.
void meetAfter(const std::function<void(NonRankClient &)> &visit) {
  const int port = freePort();
  std::thread root([&] { runRank(0, 2, at(port), exchangeAndBroadcast); });
  NonRankClient stranger;
  stranger.connect(port);
  visit(stranger);
  runRank(1, 2, at(port), exchangeAndBroadcast);
  root.join();
}

TEST(TcpGroup, StrangersWhoTalkToRankZeroTakeNobodysPlace) {
  const std::string garbage(1000, 'x');
  meetAfter([&](NonRankClient &stranger) { stranger.say(garbage.data(), garbage.size()); });
  meetAfter([&](NonRankClient &stranger) {
    stranger.say(garbage.data(), 5);
    stranger.leave();
  });
  meetAfter([](NonRankClient &stranger) { stranger.leave(); });
}

TEST(TcpGroup, RanksOfAnotherJobTakeNobodysPlace) {
  for (const Greeting &greeting : {Greeting{.size = 3}, Greeting{.rank = 0}, Greeting{.rank = 2}, Greeting{.rank = -1},
                                   Greeting{.magic = 1}, Greeting{.rank = std::int64_t{1} << 40}})
    meetAfter([&](NonRankClient &stranger) { stranger.say(&greeting, sizeof greeting); });
}

TEST(TcpGroup, ARankThatLeavesBeforeItIsAnsweredMayComeAgain) {
  meetAfter([](NonRankClient &stranger) {
    const Greeting greeting;
    stranger.say(&greeting, sizeof greeting);
    stranger.leave();
  });
}

TEST(TcpGroup, WhoeverListensAndSaysNothingIsNotRankZero) {
  NonRankClient listener;
  EXPECT_THAT(failureOf(1, 2, at(listener.listen())), HasSubstr("rank 1 does not find rank 0 at localhost:"));
}

TEST(TcpGroup, WhoeverListensAndSaysSomethingElseIsNotRankZero) {
  NonRankClient listener;
  const int port = listener.listen();
  std::thread talker([&] {
    listener.accept();
    const std::string banner = "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n";
    listener.say(banner.data(), banner.size());
  });
  EXPECT_THAT(failureOf(1, 2, at(port)), HasSubstr("does not find rank 0"));
  talker.join();
}

TEST(TcpGroup, TheFileOfAnEarlierJobMisleadsNobody) {
  const TemporaryFolder folder;
  const std::string file = folder.path("rendezvous");
  NonRankClient listener; // where the earlier job's rank 0 was
  const int port = listener.listen();
  std::ofstream(file) << "localhost " << port << '\n';
  std::thread other([&] { runRank(1, 2, {"", 0, file}, exchangeAndBroadcast); });
  listener.accept(); // rank 1 has used the old file
  listener.leave();
  runRank(0, 2, {"", 0, file}, exchangeAndBroadcast);
  other.join();
}

// ---- time

TEST(TcpGroup, RanksThatDoNotComeInTimeAreAFailureThatNamesThePlace) {
  const TemporaryFolder folder;
  const int port = freePort();
  const std::string file = folder.path("rendezvous");
  EXPECT_EQ(failureOf(0, 2, at(port)), "1 of 2 ranks did not join at localhost:" + std::to_string(port));
  EXPECT_EQ(failureOf(1, 2, at(port)), "rank 1 does not find rank 0 at localhost:" + std::to_string(port));
  EXPECT_EQ(failureOf(0, 3, {"", 0, file}), "2 of 3 ranks did not join at " + file);
  EXPECT_EQ(failureOf(2, 3, {"", 0, file}), "rank 2 does not find rank 0 at " + file);
}

TEST(TcpGroup, APlaceThatIsTakenIsAFailureThatSaysWhatToDo) {
  NonRankClient listener;
  EXPECT_THAT(failureOf(0, 2, at(listener.listen())), HasSubstr("give another place with FSDPC_RENDEZVOUS"));
  EXPECT_THAT(failureOf(0, 2, {"", 0, "/nonexistent/rendezvous"}), HasSubstr("cannot write /nonexistent/rendezvous"));
}

} // namespace
} // namespace fsdpc::rt
