// --tune: which of a library's algorithms each product uses, by time instead of by the library's guess.
//
// Rank 0 times what the library proposes for each product, alone and on memory of its own, when all products are there
// and before the first step; every rank then takes its choice, so that all compute the same bits. The choices are kept
// in OUT/tuning.json and hold for one device, one version of the library, and products of the same key: with another
// device or version they are timed again.
#pragma once

#include "runtime/cuda/host_group.h"

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fsdpc::rt {

/// What a library calls one of its algorithms; opaque here.
using Algorithm = std::array<std::uint64_t, 8>;

/// A product that can do with any of several algorithms. Between its announcement and `use` it is not run.
class Tunable {
public:
  virtual ~Tunable() = default;
  /// Shape, element types, scratch: products with equal keys take the same algorithm. A-Z, a-z, digits, spaces, _.
  virtual std::string key() const = 0;
  /// What the library proposes, its favourite first; at least one.
  virtual std::vector<Algorithm> candidates() const = 0;
  /// How long the candidate takes. Allocates and waits.
  virtual double microseconds(const Algorithm &candidate) = 0;
  virtual void use(const Algorithm &chosen) = 0;
};

/// The choices, and what they hold for.
struct TuningTable {
  std::string machine; ///< device and library
  std::map<std::string, Algorithm> choices;

  std::string toJson() const;
  /// Throws Failure{corrupt} naming `where`.
  static TuningTable fromJson(const std::string &text, const std::string &where);
};

/// Of one rank.
class Tuner {
public:
  /// `machine`: this rank's device and library.
  explicit Tuner(std::string machine) : machine(std::move(machine)) {}
  /// The product lives until `choose`.
  void add(Tunable &product) { products.push_back(&product); }
  /// Collective. Rank 0 takes what the file has for its machine, times the rest, and writes what is new; a file that
  /// cannot be written is a line on stderr. Throws Failure{disagreement}, `differs=tuning`, if ranks have different
  /// machines, and what `microseconds` throws.
  void choose(HostGroup &group, const std::string &path);

private:
  bool timeMissing(TuningTable &table);
  std::string machine;
  std::vector<Tunable *> products;
};

} // namespace fsdpc::rt
