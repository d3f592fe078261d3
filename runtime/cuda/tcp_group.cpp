#include "runtime/cuda/tcp_group.h"

#include "runtime/common/failure.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace fsdpc::rt {
namespace {

using Clock = std::chrono::steady_clock;

// A three-way handshake: the rank sends a hello, rank 0 returns it, the rank sends it again. Only then does either
// count the other as joined. So a stranger at either end is recognized, and a rank that gave up before the answer may
// call again.
constexpr std::uint64_t greeting = 0x66736470'632d3031;
constexpr auto retryInterval = std::chrono::milliseconds(50);
/// Rank 0 answers callers one after another, so it waits less long for a caller than callers wait for it.
constexpr double callerSeconds = 2, answerSeconds = 10;

struct Hello {
  std::uint64_t magic = greeting;
  std::int64_t rank = 0, size = 0;
  bool operator==(const Hello &) const = default;
};

[[noreturn]] void fail(const std::string &message) { throw Failure(ExitCode::device, message); }

class Socket {
public:
  explicit Socket(int handle = -1) : handle(handle) {}
  ~Socket() {
    if (handle >= 0)
      ::close(handle);
  }
  Socket(Socket &&other) noexcept : handle(std::exchange(other.handle, -1)) {}
  Socket &operator=(Socket &&other) noexcept {
    std::swap(handle, other.handle);
    return *this;
  }
  bool isOpen() const { return handle >= 0; }
  int get() const { return handle; }
  /// Limits everything that blocks on the socket; 0: no limit.
  void limit(double seconds) const;
  void send(const void *data, std::int64_t bytes) const;
  void receive(void *data, std::int64_t bytes) const;

private:
  int handle;
};

void Socket::limit(double seconds) const {
  timeval limit{};
  limit.tv_sec = static_cast<time_t>(seconds);
  limit.tv_usec = static_cast<suseconds_t>((seconds - static_cast<double>(limit.tv_sec)) * 1e6);
  ::setsockopt(handle, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(handle, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); // also limits connect
}

void Socket::send(const void *data, std::int64_t bytes) const {
  const auto *at = static_cast<const char *>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(handle, at, static_cast<std::size_t>(bytes), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent <= 0)
      throw Failure(ExitCode::timeout, std::string("a rank has left: ") + std::strerror(errno));
    at += sent;
    bytes -= sent;
  }
}

void Socket::receive(void *data, std::int64_t bytes) const {
  auto *at = static_cast<char *>(data);
  while (bytes > 0) {
    const ssize_t got = ::recv(handle, at, static_cast<std::size_t>(bytes), 0);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      throw Failure(ExitCode::timeout, "a rank has left");
    at += got;
    bytes -= got;
  }
}

/// Rank 0 keeps a socket per rank (its own is closed), the others one.
class TcpGroup final : public HostGroup {
public:
  TcpGroup(int rank, std::vector<Socket> sockets, int size)
      : sockets(std::move(sockets)), myRank(rank), worldSize(size) {}
  int rank() const override { return myRank; }
  int size() const override { return worldSize; }

  void exchange(const void *mine, std::int64_t bytes, void *all) override {
    gatherToRoot(mine, bytes, all);
    broadcast(all, bytes * worldSize);
  }

  void gatherToRoot(const void *mine, std::int64_t bytes, void *all) override {
    if (myRank != 0)
      return sockets[0].send(mine, bytes);
    auto *to = static_cast<std::byte *>(all);
    std::memmove(to, mine, static_cast<std::size_t>(bytes));
    for (int peer = 1; peer < worldSize; ++peer)
      sockets[static_cast<std::size_t>(peer)].receive(to + peer * bytes, bytes);
  }

  void broadcast(void *data, std::int64_t bytes) override {
    if (myRank != 0)
      return sockets[0].receive(data, bytes);
    for (int peer = 1; peer < worldSize; ++peer)
      sockets[static_cast<std::size_t>(peer)].send(data, bytes);
  }

private:
  std::vector<Socket> sockets;
  int myRank, worldSize;
};

/// Every address of the host: IPv6 and IPv4, or only IPv4 if IPv6 is not available.
socklen_t anyAddress(int family, int port, sockaddr_storage &storage) {
  const in_port_t networkPort = htons(static_cast<std::uint16_t>(port));
  storage = {};
  storage.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET) {
    reinterpret_cast<sockaddr_in &>(storage).sin_port = networkPort;
    return sizeof(sockaddr_in);
  }
  reinterpret_cast<sockaddr_in6 &>(storage).sin6_port = networkPort;
  return sizeof(sockaddr_in6);
}

Socket listenOn(int port) {
  int family = AF_INET6;
  Socket listener(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.isOpen())
    listener = Socket(::socket(family = AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1, off = 0;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6)
    ::setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  sockaddr_storage address;
  const socklen_t length = anyAddress(family, port, address);
  if (::bind(listener.get(), reinterpret_cast<sockaddr *>(&address), length) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0)
    fail("rank 0 cannot listen on port " + std::to_string(port) + ": " + std::strerror(errno) +
         "; give another place with FSDPC_RENDEZVOUS=host:port");
  return listener;
}

int portOf(const Socket &listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  ::getsockname(listener.get(), reinterpret_cast<sockaddr *>(&address), &length);
  return ntohs(address.ss_family == AF_INET ? reinterpret_cast<sockaddr_in &>(address).sin_port
                                            : reinterpret_cast<sockaddr_in6 &>(address).sin6_port);
}

/// Returns a closed socket if nobody accepts. Operations on the socket have the limit.
Socket connectTo(const std::string &host, int port, double limitSeconds) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    return Socket();
  Socket connected;
  for (const addrinfo *entry = found; entry && !connected.isOpen(); entry = entry->ai_next) {
    Socket candidate(::socket(entry->ai_family, entry->ai_socktype | SOCK_CLOEXEC, entry->ai_protocol));
    candidate.limit(limitSeconds);
    if (candidate.isOpen() && ::connect(candidate.get(), entry->ai_addr, entry->ai_addrlen) == 0)
      connected = std::move(candidate);
  }
  ::freeaddrinfo(found);
  return connected;
}

void sendAtOnce(const Socket &socket) {
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// Reads what rank 0 has written, if it has: host and port on one line. The file is complete because it was renamed
/// into place. The host's own name may be unknown on this host.
bool readRendezvousFile(RendezvousPoint &point) {
  std::ifstream file(point.file);
  if (!(file >> point.host >> point.port))
    return false;
  if (point.host == nameOfHost())
    point.host = "localhost";
  return true;
}

void writeRendezvousFile(const std::string &path, int port) {
  const std::string temporary = path + "." + std::to_string(::getpid());
  std::ofstream file(temporary);
  file << nameOfHost() << ' ' << port << '\n';
  file.close();
  if (!file || std::rename(temporary.c_str(), path.c_str()) != 0)
    fail("rank 0 cannot write " + path + ", where the ranks are to meet: " + std::strerror(errno));
}

std::string describe(const RendezvousPoint &point) {
  return point.file.empty() ? point.host + ":" + std::to_string(point.port) : point.file;
}

double secondsUntil(Clock::time_point deadline) {
  return std::chrono::duration<double>(deadline - Clock::now()).count();
}

/// Waits for the next connection. Returns a closed socket at the deadline.
Socket accept(const Socket &listener, Clock::time_point deadline) {
  for (;;) {
    const double left = secondsUntil(deadline);
    if (left <= 0)
      return Socket();
    pollfd waiting{listener.get(), POLLIN, 0};
    ::poll(&waiting, 1, static_cast<int>(std::min(left, 60.0) * 1e3) + 1);
    // The caller may have disconnected, or a signal may have interrupted the wait.
    if (Socket caller(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)); caller.isOpen())
      return caller;
  }
}

/// Stores the caller's socket at its rank's position if it is a rank that has not joined yet.
bool acceptRank(Socket caller, const LaunchEnvironment &environment, std::vector<Socket> &sockets) {
  caller.limit(callerSeconds);
  sendAtOnce(caller);
  Hello hello, again;
  try {
    caller.receive(&hello, sizeof hello);
    const bool fits = hello.magic == greeting && hello.size == environment.worldSize && hello.rank > 0 &&
                      hello.rank < hello.size && !sockets[static_cast<std::size_t>(hello.rank)].isOpen();
    if (!fits)
      return false;
    caller.send(&hello, sizeof hello);
    caller.receive(&again, sizeof again);
  } catch (const Failure &) {
    return false;
  }
  if (again != hello)
    return false;
  caller.limit(0);
  sockets[static_cast<std::size_t>(hello.rank)] = std::move(caller);
  return true;
}

/// Rank 0: accepts all other ranks.
std::vector<Socket> gather(const LaunchEnvironment &environment, Clock::time_point deadline) {
  const RendezvousPoint &point = environment.rendezvousPoint;
  if (!point.file.empty())
    ::unlink(point.file.c_str()); // left by an earlier job
  const Socket listener = listenOn(point.file.empty() ? point.port : 0);
  if (!point.file.empty())
    writeRendezvousFile(point.file, portOf(listener));
  std::vector<Socket> sockets(static_cast<std::size_t>(environment.worldSize));
  for (int joined = 1; joined < environment.worldSize;) {
    Socket caller = accept(listener, deadline);
    if (!caller.isOpen())
      fail(std::to_string(environment.worldSize - joined) + " of " + std::to_string(environment.worldSize) +
           " ranks did not join at " + describe(point));
    joined += acceptRank(std::move(caller), environment, sockets);
  }
  if (!point.file.empty())
    ::unlink(point.file.c_str());
  return sockets;
}

/// Performs the handshake. Returns whether rank 0 is at the other end.
bool introduce(const Socket &socket, const LaunchEnvironment &environment) {
  const Hello hello{greeting, environment.rank, environment.worldSize};
  Hello answer;
  try {
    socket.send(&hello, sizeof hello);
    socket.receive(&answer, sizeof answer);
    if (answer != hello)
      return false;
    socket.send(&hello, sizeof hello);
  } catch (const Failure &) {
    return false;
  }
  return true;
}

/// Other ranks: retry until rank 0 accepts.
std::vector<Socket> join(const LaunchEnvironment &environment, Clock::time_point deadline) {
  RendezvousPoint point = environment.rendezvousPoint;
  for (; Clock::now() < deadline; std::this_thread::sleep_for(retryInterval)) {
    if (!point.file.empty() && !readRendezvousFile(point))
      continue;
    Socket socket = connectTo(point.host, point.port, std::clamp(secondsUntil(deadline), 0.01, answerSeconds));
    if (!socket.isOpen())
      continue;
    sendAtOnce(socket);
    if (!introduce(socket, environment))
      continue;
    socket.limit(0);
    std::vector<Socket> sockets;
    sockets.push_back(std::move(socket));
    return sockets;
  }
  fail("rank " + std::to_string(environment.rank) + " does not find rank 0 at " +
       describe(environment.rendezvousPoint));
}

} // namespace

std::unique_ptr<HostGroup> joinOverTcp(const LaunchEnvironment &environment, double timeoutSeconds) {
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeoutSeconds));
  std::vector<Socket> sockets;
  if (environment.worldSize > 1)
    sockets = environment.rank == 0 ? gather(environment, deadline) : join(environment, deadline);
  return std::make_unique<TcpGroup>(environment.rank, std::move(sockets), environment.worldSize);
}

} // namespace fsdpc::rt
