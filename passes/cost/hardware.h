// The performance figures of a machine: compute rates of its ranks, and costs of collectives per kind of link.
//
// A table has a name and one of three origins: built in (common GPU nodes, and an unmeasured CPU), measured by `fsdpc
// calibrate`, or a file (schema fsdpc.hardware/2, which `fsdpc calibrate` writes). Units: microseconds, bytes and
// operations per microsecond (10^6 per microsecond = 10^12 per second).
#pragma once

#include "ir/op.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"
#include <optional>
#include <string>
#include <vector>

namespace fsdpc {

/// The format of a table in a file. Its number changes with the meaning of a member.
inline constexpr llvm::StringLiteral hardwareSchema = "fsdpc.hardware/2";

llvm::StringRef nameOf(ComputeClass computeClass);

/// microseconds = overhead + max(flops / flopsPerMicrosecond, bytes / bytesPerMicrosecond): a roofline on the fused
/// node, at least Hardware::floorMicroseconds. Flops and bytes are the op's own (OpInfo::cost); a transcendental step
/// of a loop counts as several flops.
struct ComputeRate {
  double flopsPerMicrosecond = 1e5;
  double halfFlopsPerMicrosecond = 1e5; ///< operands of 16 bits
  double bytesPerMicrosecond = 1e4;
  double overheadMicroseconds = 0; ///< per call
};

/// How a collective moves its bytes. `ring`: every rank sends to its neighbour, n - 1 times (2 (n - 1) for all_reduce);
/// a rank moves (n - 1) / n of the full buffer, twice for all_reduce. `peerRead`: every rank reads its peers' memory; a
/// rank moves the full buffer, n full buffers for all_reduce.
enum class Algorithm : uint8_t { ring, peerRead };

/// microseconds = alpha + hops * hop + bytes moved by a rank / bytesPerMicrosecond
struct CollectiveRate {
  std::string op; ///< all_gather, reduce_scatter, all_reduce; empty: any
  double alphaMicroseconds = 0;
  double hopMicroseconds = 0;
  double bytesPerMicrosecond = 1e4;
};

/// The connection between two ranks. Of the rates that apply to a collective, the cheapest is used: a library picks its
/// protocol by size.
struct Link {
  Algorithm algorithm = Algorithm::ring;
  std::vector<CollectiveRate> rates;
  /// An artificially slowed link (`train --slow_link_microseconds A --slow_link_bytes_per_microsecond B`): every
  /// collective takes A + bytes moved / B longer. 0: not slowed down.
  double slowMicroseconds = 0;
  double slowBytesPerMicrosecond = 0;
};

/// Between a device and its host: microseconds of a copy = alpha + bytes / bytesPerMicrosecond, in either direction.
struct HostLink {
  double alphaMicroseconds = 1;
  double bytesPerMicrosecond = 1e4;
  /// The rate at which the host streams through its own memory for one rank, where it computes; 0: the compute device
  /// is the host.
  double computeBytesPerMicrosecond = 0;
};

struct Hardware {
  std::string name;
  int64_t ranksPerNode = 0; ///< per node; 0: all ranks are in one node
  /// True if the host issues ahead of the device: a start waits only for its operand and its tokens. Otherwise it also
  /// waits for its position in the program.
  bool hostRunsAhead = false;
  double floorMicroseconds = 0; ///< lower bound for every node: launch of a kernel
  /// The data sheet's matmul rates; `compute` has the fraction that is reached. 0: not known.
  double peakFlopsPerMicrosecond = 0;
  double halfPeakFlopsPerMicrosecond = 0;
  ComputeRate compute[computeClassCount];
  Link nodeLocal; ///< between ranks of one node
  Link network;   ///< between nodes; values for one rank's share of the node's network
  HostLink host;

  ComputeRate &rateOf(ComputeClass computeClass) { return compute[static_cast<size_t>(computeClass)]; }
  const ComputeRate &rateOf(ComputeClass computeClass) const { return compute[static_cast<size_t>(computeClass)]; }
};

/// Names of the built-in tables: cpu, a100_8, h100_8, h200_8, b200_8.
llvm::ArrayRef<llvm::StringRef> builtInHardwareNames();
std::optional<Hardware> builtInHardware(llvm::StringRef name);

/// Every value must be finite and, except for overheads and latencies, above 0. `source` names the text in errors.
llvm::Expected<Hardware> readHardware(llvm::StringRef text, llvm::StringRef source);
std::string toJson(const Hardware &hardware);

} // namespace fsdpc
