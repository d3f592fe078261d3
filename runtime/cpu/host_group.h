// Where the members of a group live, and who sends what to whom when they live on several hosts.
//
// Every member can compute this from the group and the ranks' hosts, so all agree on it without a message. Hosts are
// numbered by their lowest member. A data block belongs to one member, its owner. Between its owner and another host it
// passes through one member of that host: the members of a host share this work.
#pragma once

#include "runtime/cpu/communicator.h"
#include "runtime/cpu/tree_sum.h"

#include <cstdint>
#include <span>
#include <vector>

namespace fsdpc::rt {

/// What one host can add alone of a sum over the group.
struct HostSubtree {
  Subtree members;
  int host = 0;
};

class HostGroup {
public:
  /// `hostOfRank`: any number per host, indexed by rank.
  HostGroup(const RankGroup &group, const std::vector<int> &hostOfRank);

  int hosts() const { return static_cast<int>(hosts_.size()); }
  int size() const { return static_cast<int>(hostOf_.size()); }
  int ownMember() const { return ownMember_; }
  int ownHost() const { return hostOf_[static_cast<std::size_t>(ownMember_)]; }
  int hostOf(int member) const { return hostOf_[static_cast<std::size_t>(member)]; }
  /// In ascending order.
  std::span<const int> membersOf(int host) const { return hosts_[static_cast<std::size_t>(host)].members; }
  int leaderOf(int host) const { return membersOf(host).front(); }
  bool isAlone() const { return membersOf(ownHost()).size() == 1; }
  /// Of all hosts, by their first member.
  std::span<const HostSubtree> subtrees() const { return subtrees_; }
  std::span<const Subtree> subtreesOf(int host) const { return hosts_[static_cast<std::size_t>(host)].subtrees; }

  /// The member of `host` that receives blocks of `owner` for its host, and sends its host's part of them to `owner`.
  /// `host` is not the owner's.
  int partnerOf(int owner, int host) const;
  /// The owners of other hosts that have this rank as partner, in ascending order.
  std::span<const int> partners() const { return partners_; }
  /// The position of `owner` among the partners of its partner on this host.
  int slotOf(int owner) const { return slots_[static_cast<std::size_t>(owner)]; }

  /// The members that own a slice of a buffer which all members have: the same number on every host. Owner number i is
  /// `sliceOwners()[i]`; for the other members `sliceOf` is -1.
  std::span<const int> sliceOwners() const { return sliceOwners_; }
  int sliceOf(int member) const { return sliceOf_[static_cast<std::size_t>(member)]; }

  // The most that any member of the group handles, which determines how the exchange is divided into rounds.
  int maxPartners() const { return maxPartners_; }
  int maxSubtreesOfAHost() const { return maxSubtreesOfAHost_; }
  int maxForeignSubtrees() const { return maxForeignSubtrees_; }

private:
  struct Host {
    std::vector<int> members;
    std::vector<Subtree> subtrees;
  };

  void place(const RankGroup &group, const std::vector<int> &hostOfRank);
  void pair();

  int ownMember_;
  std::vector<HostSubtree> subtrees_;
  std::vector<Host> hosts_;
  std::vector<int> hostOf_;
  std::vector<int> positionOf_; ///< among the members of the same host
  int lanes_ = 0;               ///< members of the smallest host
  std::vector<int> partners_;
  std::vector<int> slots_;
  std::vector<int> sliceOwners_;
  std::vector<int> sliceOf_;
  int maxPartners_ = 0;
  int maxSubtreesOfAHost_ = 0;
  int maxForeignSubtrees_ = 0;
};

} // namespace fsdpc::rt
