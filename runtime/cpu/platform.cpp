#include "runtime/common/process_memory.h"
#include "runtime/common/recompile_line.h"
#include "runtime/common/thread.h"
#include "runtime/cpu/allocation_guard.h"
#include "runtime/cpu/host_memory.h"
#include "runtime/cpu/link_bytes.h"
#include "runtime/cpu/lone_rank.h"
#include "runtime/cpu/mpi_platform.h"
#include "runtime/cpu/stuck_launcher.h"
#include "runtime/cpu/window_store.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>

// Defined if a library of this process (oneDNN) uses OpenMP.
extern "C" void omp_set_num_threads(int) __attribute__((weak));

namespace fsdpc::rt {

/// The program's functions, compiled with the kernels for x86-64-v4. Not defined in programs for one kind of processor.
extern const Functions programFunctionsV4 __attribute__((weak));

namespace {

/// MPI counts are of type `int`.
constexpr std::int64_t pieceBytes = std::int64_t{1} << 30;

/// How long the launcher may take to end the other ranks.
constexpr unsigned launcherGraceSeconds = 10;

/// Throws if the launcher has started more processes than this one, which MPI does not join to it.
void requireNoOthers(const std::string &command) {
  if (const auto why = whyAlone(command))
    throw Failure(ExitCode::incompatible, *why, true);
}

int sizeOf(MPI_Comm communicator) {
  int size;
  MPI_Comm_size(communicator, &size);
  return size;
}

std::int64_t usedBytes(const ProgramInfo &program, Space space) {
  for (const ArenaInfo &arena : program.arenas)
    if (arena.space == space)
      return arena.usedBytes;
  return 0;
}

void reportArena(const char *name, const ProgramInfo &program, Space space, const Arena &arena) {
  char line[160];
  const int length = std::snprintf(
      line, sizeof line, "arena %s: planned %lld used %lld changed %lld\n", name, static_cast<long long>(arena.bytes()),
      static_cast<long long>(usedBytes(program, space)), static_cast<long long>(arena.changedBytes()));
  // A single write, so that lines of different ranks do not interleave.
  std::fflush(stdout);
  [[maybe_unused]] const auto written = write(STDOUT_FILENO, line, static_cast<std::size_t>(length));
}

} // namespace

std::unique_ptr<Platform> startPlatform(int &argc, char **&argv) {
  std::string command;
  for (int i = 0; i < argc; ++i)
    command += (i > 0 ? " " : "") + shellQuoted(argv[i]);
  if (isTaskWithoutPmi()) {
    requireNoOthers(command);
    unsetenv("SLURM_STEP_ID"); // lets Open MPI start
  }
  int provided = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS)
    throw Failure(ExitCode::device, "MPI does not start");
  leaveOutOtherThreads();
  if (sizeOf(MPI_COMM_WORLD) == 1)
    requireNoOthers(command);
  return std::make_unique<MpiPlatform>(provided);
}

MpiPlatform::MpiPlatform(int providedThreadLevel) : threadLevel_(providedThreadLevel) {
  MPI_Comm_dup(MPI_COMM_WORLD, &world_);
  MPI_Comm_rank(world_, &rank_);
  MPI_Comm_size(world_, &worldSize_);
  MPI_Comm_split_type(world_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host_);
  openHeartbeats();
}

void MpiPlatform::openHeartbeats() {
  const std::int64_t bytes = HeartbeatPage::bytesFor(worldSize_);
  try {
    heartbeats_ = openSharedPage(host_, bytes);
  } catch (const Failure &) {
    // Without shared memory each rank watches only itself. If the program needs shared windows, opening them reports
    // the error.
    const std::int64_t pageBytes = sysconf(_SC_PAGESIZE);
    heartbeats_ = Arena::mapPrivate((bytes + pageBytes - 1) / pageBytes * pageBytes);
  }
}

MpiPlatform::~MpiPlatform() {
  try {
    drainCollectives();
  } catch (const Failure &) {
    // The run has already ended, successfully or with its own message.
  }
  commStream_.reset();
  reduceStream_.reset();
  copyStream_.reset();
  communicator_.reset();
#if defined(FSDPC_TEST_BUILD)
  if (program_ && context_.target)
    reportChangedBytes();
#endif
  links_.reset();
  sharedWindows_.reset();
  if (sharing_ != MPI_COMM_NULL)
    MPI_Comm_free(&sharing_);
  MPI_Comm_free(&host_);
  MPI_Comm_free(&world_);
  MPI_Finalize();
}

Context &MpiPlatform::openArenas(const ProgramInfo &program, const PlatformOptions &options) {
  program_ = &program;
  findHosts(program);
  const CpuShare share = takeCpuShare(host_, options.threads);
  proportionalSetBytesBefore_ = readProportionalSetSizeBytes();
  mapArenas(program);
  startStreams(options.streams, hosts_ > 1, share);
  startCommunicator(program, options, share.oversubscribed);
  context_.rank = context_.batchRank = rank_;
  context_.worldSize = worldSize_;
  context_.threads = options.threads > 0 ? options.threads : share.rankCores;
  own_.communicator = communicator_.get();
  own_.commStream = commStream_.get();
  own_.reduceStream = reduceStream_.get();
  own_.level = agreeOnCpuLevel(program.cpuLevel);
  own_.copyStream = copyStream_.get();
  context_.target = &own_;
  if (omp_set_num_threads)
    omp_set_num_threads(context_.threads);
  attemptTogether(world_, [&] { requireThreads(context_.threads - 1); });
  barrier();
  return context_;
}

CpuLevel MpiPlatform::agreeOnCpuLevel(const char *planned) {
  const auto ofAll = [this](CpuLevel own) {
    return static_cast<CpuLevel>(-maxOverRanks(-static_cast<std::int64_t>(own)));
  };
  return ofAll(limitLibraryTo(ofAll(ownCpuLevel(planned))));
}

const Functions &MpiPlatform::functionsOf(const ProgramInfo &program) const {
  return own_.level >= CpuLevel::v4 && &programFunctionsV4 ? programFunctionsV4 : program.functions;
}

void MpiPlatform::findHosts(const ProgramInfo &program) {
  // Fewer ranks per host than there are: a trial of several hosts on one.
  const char *wanted = std::getenv("FSDPC_RANKS_PER_HOST");
  int ranksPerHost = wanted ? std::atoi(wanted) : program.ranksPerHost;
  MPI_Bcast(&ranksPerHost, 1, MPI_INT, 0, world_);
  int position, lowest = rank_;
  MPI_Comm_rank(host_, &position);
  MPI_Comm_split(host_, ranksPerHost > 0 ? position / ranksPerHost : 0, rank_, &sharing_);
  MPI_Bcast(&lowest, 1, MPI_INT, 0, sharing_);
  hostOfRank_.resize(static_cast<std::size_t>(worldSize_));
  MPI_Allgather(&lowest, 1, MPI_INT, hostOfRank_.data(), 1, MPI_INT, world_);
  hosts_ = 0;
  for (int rank = 0; rank < worldSize_; ++rank)
    hosts_ += hostOfRank_[static_cast<std::size_t>(rank)] == rank;
}

void MpiPlatform::mapArenas(const ProgramInfo &program) {
  const std::int64_t privateBytes = arenaBytes(program, Space::privateSpace);
  const std::int64_t windowBytes = arenaBytes(program, Space::window);
  const std::int64_t linkBytes = hosts_ > 1 ? linkBytesFor(worldSize_, channelsOf(programCollectives())) : 0;
  attemptTogether(world_, [&] {
    const int ranks = sizeOf(host_);
    checkHostMemory((privateBytes + windowBytes + linkBytes + arenaBytes(program, Space::host)) * ranks, ranks,
                    readAvailableMemoryBytes());
  });
  attemptTogether(world_, [&] {
    privateArena_ = Arena::mapPrivate(privateBytes);
    hostArena_ = Arena::mapPrivate(arenaBytes(program, Space::host));
  });
  attemptTogether(world_, [&] {
    if (worldSize_ == 1)
      privateWindow_ = Arena::mapPrivate(windowBytes);
    else
      sharedWindows_ = openSharedWindows(sharing_, windowBytes, worldSize_);
  });
  attemptTogether(world_, [&] {
    if (hosts_ > 1)
      links_ = openSharedWindows(sharing_, linkBytes, 0);
  });
  Arena &window = sharedWindows_ ? sharedWindows_->own : privateWindow_;
#if defined(FSDPC_TEST_BUILD)
  privateArena_.fillPattern();
  hostArena_.fillPattern();
  window.fillPattern();
#endif
  context_.privateArena = privateArena_.data();
  context_.hostArena = hostArena_.data();
  context_.windowArena = window.data();
}

void MpiPlatform::startStreams(StreamMode requested, bool callsMpi, const CpuShare &share) {
  bool threads = requested == StreamMode::threads ||
                 (requested == StreamMode::automatic && worldSize_ > 1 && share.hostCores > sizeOf(host_));
  // If MPI allows only one thread at a time, its collectives must run on the thread that also calls it between steps,
  // when a collective may be outstanding.
  if (callsMpi && threadLevel_ < MPI_THREAD_MULTIPLE) {
    if (requested == StreamMode::threads)
      throw Failure(ExitCode::device,
                    "--streams threads: this MPI library cannot be called from several threads; use --streams inline",
                    true);
    threads = false;
  }
  // The same on every rank, even if hosts differ.
  threads = maxOverRanks(threads) != 0;
  const Stream::Mode mode = threads ? Stream::Mode::threads : Stream::Mode::inlined;
  commStream_ = std::make_unique<Stream>(mode, share.oversubscribed);
  if (channelsOf(programCollectives()) > 1)
    reduceStream_ = std::make_unique<Stream>(mode, share.oversubscribed);
  if (hostArena_.bytes() > 0)
    copyStream_ = std::make_unique<Stream>(mode, share.oversubscribed);
}

HostMemory MpiPlatform::hostMemory() const {
  HostMemory memory;
  memory.hostOfRank = hostOfRank_;
  memory.control = &sharedWindows_->controlBlock();
  memory.ownLink = links_->own.data();
  memory.linkBytes = links_->own.bytes();
  const std::vector<const std::byte *> windows = sharedWindows_->addresses(), links = links_->addresses();
  for (std::size_t rank = 0, position = 0; rank < hostOfRank_.size(); ++rank) {
    const bool isHere = hostOfRank_[rank] == hostOfRank_[static_cast<std::size_t>(rank_)];
    memory.windows.push_back(isHere ? windows[position] : nullptr);
    memory.links.push_back(isHere ? links[position] : nullptr);
    position += isHere;
  }
  return memory;
}

void MpiPlatform::startCommunicator(const ProgramInfo &program, const PlatformOptions &platformOptions,
                                    bool oversubscribed) {
  CommunicatorOptions options;
  options.timeoutSeconds = platformOptions.timeoutSeconds;
  options.oversubscribed = oversubscribed;
  options.slowLink = platformOptions.slowLink;
  options.collectives = programCollectives();
  options.axes = program.axes;
  options.pulse = platformOptions.pulse;
  options.debug = platformOptions.debug;
  if (hosts_ > 1) {
    communicator_ = std::make_unique<HostsCommunicator>(world_, hostMemory(), options);
  } else if (sharedWindows_) {
    communicator_ = std::make_unique<SharedCommunicator>(rank_, sharedWindows_->controlBlock(),
                                                         sharedWindows_->addresses(), options);
  } else {
    privateControl_ = Arena::mapPrivate(sysconf(_SC_PAGESIZE));
    communicator_ = std::make_unique<SharedCommunicator>(
        0, *ControlBlock::at(privateControl_.data()), std::vector<const std::byte *>{privateWindow_.data()}, options);
  }
}

void MpiPlatform::reportChangedBytes() const {
  reportArena("private", *program_, Space::privateSpace, privateArena_);
  reportArena("window", *program_, Space::window, sharedWindows_ ? sharedWindows_->own : privateWindow_);
  if (hostArena_.bytes() > 0)
    reportArena("host", *program_, Space::host, hostArena_);
}

void MpiPlatform::arrive() { HeartbeatPage::at(heartbeats_.data())->of(rank_).arrive(); }

void MpiPlatform::barrier() {
  arrive();
  MPI_Barrier(world_);
}

void MpiPlatform::broadcast(void *data, std::int64_t bytes) {
  arrive();
  auto *at = static_cast<std::byte *>(data);
  for (std::int64_t offset = 0; offset < bytes; offset += pieceBytes)
    MPI_Bcast(at + offset, static_cast<int>(std::min(pieceBytes, bytes - offset)), MPI_BYTE, 0, world_);
}

std::int64_t MpiPlatform::maxOverRanks(std::int64_t value) {
  arrive();
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_MAX, world_);
  return value;
}

std::int64_t MpiPlatform::sumOverRanks(std::int64_t value) {
  arrive();
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_SUM, world_);
  return value;
}

void MpiPlatform::gatherToRoot(const void *mine, std::int64_t bytes, void *all) {
  arrive();
  constexpr int tag = 1;
  const auto pieceAt = [&](std::int64_t offset) { return static_cast<int>(std::min(pieceBytes, bytes - offset)); };
  if (rank_ != 0) {
    const auto *from = static_cast<const std::byte *>(mine);
    for (std::int64_t offset = 0; offset < bytes; offset += pieceBytes)
      MPI_Send(from + offset, pieceAt(offset), MPI_BYTE, 0, tag, world_);
    return;
  }
  auto *to = static_cast<std::byte *>(all);
  std::memmove(to, mine, bytes);
  for (int rank = 1; rank < worldSize_; ++rank)
    for (std::int64_t offset = 0; offset < bytes; offset += pieceBytes)
      MPI_Recv(to + rank * bytes + offset, pieceAt(offset), MPI_BYTE, rank, tag, world_, MPI_STATUS_IGNORE);
}

std::int64_t MpiPlatform::mappedArenaBytes() const {
  return privateArena_.bytes() + (sharedWindows_ ? sharedWindows_->own : privateWindow_).bytes();
}

// All ranks are at the same point of the program. If only some of them ran a collective, the others would wait in MPI
// forever.
void MpiPlatform::drainCollectives() {
  if (communicator_)
    communicator_->drain();
}

const char *MpiPlatform::streamModeName() const {
  return commStream_ && commStream_->mode() == Stream::Mode::threads ? "threads" : "inline";
}

std::optional<CommunicationTimes> MpiPlatform::takeCommunicationTimes() {
  const CommunicatorTimes times = communicator_->takeTimes();
  CommunicationTimes result;
  result.communicationMicroseconds = times.communicationMicroseconds;
  result.exposedMicroseconds = times.exposedMicroseconds;
  result.skewMicroseconds = times.skewMicroseconds;
  return result;
}

std::int64_t MpiPlatform::proportionalSetGrowthBytes() const {
  const std::int64_t now = readProportionalSetSizeBytes();
  return now < 0 || proportionalSetBytesBefore_ < 0 ? -1 : std::max<std::int64_t>(0, now - proportionalSetBytesBefore_);
}

OutsidePlan MpiPlatform::outsidePlan() const {
  std::vector<MemoryRange> arenas;
  const auto add = [&](const Arena &arena) { arenas.push_back({arena.data(), arena.bytes()}); };
  for (const Arena *arena : {&privateArena_, &hostArena_, &privateWindow_})
    add(*arena);
  if (sharedWindows_) {
    add(sharedWindows_->own);
    std::for_each(sharedWindows_->peers.begin(), sharedWindows_->peers.end(), add);
  }
  if (links_) {
    add(links_->own);
    std::for_each(links_->peers.begin(), links_->peers.end(), add);
  }
  return {readProportionalSetSizeBytes(arenas), std::nullopt};
}

void MpiPlatform::abort(int exitCode) {
  if (sharedWindows_)
    sharedWindows_->controlBlock().endRun(rank_, exitCode);
  if (sizeOf(host_) < worldSize_)
    killLauncherAfter(launcherGraceSeconds);
  MPI_Abort(MPI_COMM_WORLD, exitCode);
  _exit(exitCode);
}

} // namespace fsdpc::rt
