// What nodes and collectives cost on a machine. The one place where the hardware table meets the IR.
#pragma once

#include "ir/module.h"
#include "passes/cost/hardware.h"

namespace fsdpc {

struct CostModel {
  Hardware hardware;
  /// Collectives run on the compute thread, in the wait that needs them (cpu, --streams inline).
  bool inlineStreams = false;
  /// Every collective takes the network's way, also within a node (cpu, --transport mpi).
  bool networkOnly = false;
  int64_t threads = 1; ///< compute threads of a rank; rates are of one

  /// One execution of a node that computes or moves something; 0 for views, reads, starts, waits, frees.
  double nodeMicroseconds(const Node &node) const;
  /// One collective, from the moment its body runs on every rank. `start` is the node that starts it, or a synchronous
  /// collective. The axis it spans says which links it crosses: node-local if all its groups lie within a node.
  double collectiveMicroseconds(const Node &start) const;
  /// One copy between the device and its host.
  double copyMicroseconds(const Node &start) const;
  double copyMicroseconds(int64_t bytes) const;
  /// What a copy of so many bytes takes from computing that lasts so long and may run beside it.
  double exposedCopyMicroseconds(int64_t bytes, double besideMicroseconds) const;
  /// Whichever of the three it is.
  double microseconds(const Node &node) const;
};

/// The class whose rate a node has; nothing for nodes that cost nothing.
std::optional<ComputeClass> computeClassOf(const Node &node);

} // namespace fsdpc
