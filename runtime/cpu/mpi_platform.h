// The cpu target's Platform: MPI for processes and host-side exchange, arenas as planned.
//
// Ranks of one host map each other's windows (SharedCommunicator). If the ranks live on several hosts, they also
// exchange between hosts (HostsCommunicator). A world of one rank needs neither launcher nor shared memory.
#pragma once

#include "runtime/common/platform.h"
#include "runtime/cpu/arena.h"
#include "runtime/cpu/communicator.h"
#include "runtime/cpu/cpu_context.h"
#include "runtime/cpu/cpu_level.h"
#include "runtime/cpu/cpu_share.h"
#include "runtime/cpu/hosts_communicator.h"
#include "runtime/cpu/matmul_log.h"
#include "runtime/cpu/mpi_window.h"
#include "runtime/cpu/stream.h"

#include <memory>
#include <optional>
#include <vector>

namespace fsdpc::rt {

class MpiPlatform final : public Platform {
public:
  /// Requires: MPI is initialized. The destructor finalizes it.
  explicit MpiPlatform(int providedThreadLevel);
  ~MpiPlatform() override;

  int rank() const override { return rank_; }
  int worldSize() const override { return worldSize_; }
  Context &openArenas(const ProgramInfo &program, const PlatformOptions &options) override;
  void barrier() override;
  void broadcast(void *data, std::int64_t bytes) override;
  std::int64_t maxOverRanks(std::int64_t value) override;
  std::int64_t sumOverRanks(std::int64_t value) override;
  void gatherToRoot(const void *mine, std::int64_t bytes, void *all) override;
  HeartbeatPage *heartbeats() override { return HeartbeatPage::at(heartbeats_.data()); }
  std::int64_t mappedArenaBytes() const override;
  std::int64_t proportionalSetGrowthBytes() const override;
  std::int64_t proportionalSetBytesBefore() const override { return proportionalSetBytesBefore_; }
  std::int64_t hostLinkBytes() const override { return links_ ? links_->own.bytes() : 0; }
  int hosts() const override { return hosts_; }
  OutsidePlan outsidePlan() const override;
  const char *streamModeName() const override;
  const char *cpuLevelName() const override { return nameOf(own_.level); }
  const Functions &functionsOf(const ProgramInfo &program) const override;
  std::optional<CommunicationTimes> takeCommunicationTimes() override;
  void drainCollectives() override;
  void recordMatmuls(bool on) override { on ? matmulLog().start() : matmulLog().stop(); }
  double replayMatmulsMicroseconds() override { return matmulLog().replayMicroseconds(); }
  [[noreturn]] void abort(int exitCode) override;

private:
  void openHeartbeats();
  void arrive();
  CpuLevel agreeOnCpuLevel(const char *planned);
  void findHosts(const ProgramInfo &program);
  void mapArenas(const ProgramInfo &program);
  HostMemory hostMemory() const;
  void startStreams(StreamMode requested, bool callsMpi, const CpuShare &share);
  void startCommunicator(const ProgramInfo &program, const PlatformOptions &options, bool oversubscribed);
  void reportChangedBytes() const;

  const int threadLevel_;
  int rank_ = 0;
  int worldSize_ = 1;
  MPI_Comm world_ = MPI_COMM_NULL; ///< for host-side exchange; collectives of the step have their own handles
  MPI_Comm host_ = MPI_COMM_NULL;  ///< the ranks of this host
  /// Those that share memory: of this host, or fewer (ProgramInfo::ranksPerHost). From here on they count as a host.
  MPI_Comm sharing_ = MPI_COMM_NULL;
  std::vector<int> hostOfRank_; ///< the lowest rank of the host
  int hosts_ = 1;
  const ProgramInfo *program_ = nullptr;
  std::int64_t proportionalSetBytesBefore_ = 0;
  Arena privateArena_;
  Arena hostArena_;
  Arena privateWindow_; ///< of a world of one rank
  Arena privateControl_;
  Arena heartbeats_; ///< outside the plan, like the control block
  std::optional<SharedWindows> sharedWindows_;
  std::optional<SharedWindows> links_; ///< with several hosts: what ranks receive for their host
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Stream> commStream_;
  std::unique_ptr<Stream> reduceStream_; ///< null unless some collective runs there
  std::unique_ptr<Stream> copyStream_;   ///< null without an arena for the host
  CpuContext own_;
  Context context_;
};

} // namespace fsdpc::rt
