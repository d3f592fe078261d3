// The cost of nodes and collectives on a machine. Only this file combines the hardware table with the IR.
#pragma once

#include "ir/module.h"
#include "passes/cost/hardware.h"

namespace fsdpc {

struct CostModel {
  Hardware hardware;
  /// Collectives run on the compute thread, in the wait that needs them (cpu, --streams inline).
  bool inlineStreams = false;
  /// Every collective is between nodes of one rank (cpu, --transport mpi).
  bool networkOnly = false;
  int64_t threads = 1; ///< compute threads of a rank; rates are per thread

  /// One execution of a node that computes or moves data; 0 for views, reads, starts, waits, frees.
  double nodeMicroseconds(const Node &node) const;
  /// One collective, from the moment its body runs on every rank. `start` is the node that starts it, or a synchronous
  /// collective. Its axis determines the links it uses: node-local if all its groups are within a node.
  double collectiveMicroseconds(const Node &start) const;
  /// One copy between the device and its host.
  double copyMicroseconds(const Node &start) const;
  double copyMicroseconds(int64_t bytes) const;
  /// The part of a copy of this many bytes that does not overlap with compute of the given duration.
  double exposedCopyMicroseconds(int64_t bytes, double overlappedMicroseconds) const;
  /// The applicable one of the three functions above.
  double microseconds(const Node &node) const;
};

/// The class that determines the rate of a node; nullopt for nodes without cost.
std::optional<ComputeClass> computeClassOf(const Node &node);

} // namespace fsdpc
