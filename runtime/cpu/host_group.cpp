#include "runtime/cpu/host_group.h"

#include <algorithm>
#include <map>

namespace fsdpc::rt {

HostGroup::HostGroup(const RankGroup &group, const std::vector<int> &hostOfRank) : ownMember_(group.member) {
  place(group, hostOfRank);
  pair();
  for (int host = 0; host < hosts(); ++host)
    for (const Subtree &members : subtreesOf(host))
      subtrees_.push_back({members, host});
  std::sort(subtrees_.begin(), subtrees_.end(),
            [](const HostSubtree &a, const HostSubtree &b) { return a.members.first < b.members.first; });
  const int subtrees = static_cast<int>(subtrees_.size());
  for (const Host &host : hosts_) {
    const int own = static_cast<int>(host.subtrees.size());
    maxSubtreesOfAHost_ = std::max(maxSubtreesOfAHost_, own);
    maxForeignSubtrees_ = std::max(maxForeignSubtrees_, subtrees - own);
  }
}

void HostGroup::place(const RankGroup &group, const std::vector<int> &hostOfRank) {
  std::map<int, int> numbers; // of hosts, by what the caller calls them
  for (int member = 0; member < group.size; ++member) {
    const int named = hostOfRank[static_cast<std::size_t>(group.rankOf(member))];
    const auto [entry, isNew] = numbers.try_emplace(named, hosts());
    if (isNew)
      hosts_.emplace_back();
    std::vector<int> &members = hosts_[static_cast<std::size_t>(entry->second)].members;
    hostOf_.push_back(entry->second);
    positionOf_.push_back(static_cast<int>(members.size()));
    members.push_back(member);
  }
  std::vector<bool> chosen(hostOf_.size());
  for (Host &host : hosts_) {
    std::fill(chosen.begin(), chosen.end(), false);
    for (const int member : host.members)
      chosen[static_cast<std::size_t>(member)] = true;
    host.subtrees = rt::subtreesOf(chosen);
  }
}

void HostGroup::pair() {
  lanes_ = static_cast<int>(std::min_element(hosts_.begin(), hosts_.end(), [](const Host &a, const Host &b) {
                              return a.members.size() < b.members.size();
                            })->members.size());
  sliceOf_.assign(hostOf_.size(), -1);
  for (const Host &host : hosts_)
    for (int lane = 0; lane < lanes_; ++lane) {
      const int member = host.members[static_cast<std::size_t>(lane)];
      sliceOf_[static_cast<std::size_t>(member)] = static_cast<int>(sliceOwners_.size());
      sliceOwners_.push_back(member);
    }

  std::vector<int> owners(static_cast<std::size_t>(lanes_)), ownersHere(owners.size()); // per lane
  for (int owner = 0; owner < size(); ++owner)
    ++owners[static_cast<std::size_t>(positionOf_[static_cast<std::size_t>(owner)] % lanes_)];
  for (int host = 0; host < hosts(); ++host) {
    std::fill(ownersHere.begin(), ownersHere.end(), 0);
    for (std::size_t i = 0; i < membersOf(host).size(); ++i)
      ++ownersHere[i % ownersHere.size()];
    for (std::size_t lane = 0; lane < owners.size(); ++lane)
      maxPartners_ = std::max(maxPartners_, owners[lane] - ownersHere[lane]);
  }

  slots_.assign(hostOf_.size(), -1);
  std::vector<int> taken(hostOf_.size());
  for (int owner = 0; owner < size(); ++owner) {
    if (hostOf(owner) == ownHost())
      continue;
    const int partner = partnerOf(owner, ownHost());
    slots_[static_cast<std::size_t>(owner)] = taken[static_cast<std::size_t>(partner)]++;
    if (partner == ownMember_)
      partners_.push_back(owner);
  }
}

int HostGroup::partnerOf(int owner, int host) const {
  return membersOf(host)[static_cast<std::size_t>(positionOf_[static_cast<std::size_t>(owner)] % lanes_)];
}

} // namespace fsdpc::rt
