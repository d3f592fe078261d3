// --tune: chooses the library's algorithm for each matmul by measured time instead of the library's heuristic.
//
// Rank 0 times the library's candidates for each matmul, in isolation and on separate memory, after all matmuls are
// created and before the first step. Every rank then takes its choice, so all ranks compute bitwise identical results.
// The choices are stored in OUT/tuning.json. They are valid for one device, one library version, and matmuls with the
// same key. With another device or version they are timed again.
#pragma once

#include "runtime/cuda/host_group.h"

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fsdpc::rt {

/// The library's identification of one of its algorithms; opaque here.
using Algorithm = std::array<std::uint64_t, 8>;

/// A matmul with a choice of algorithms. It must not run between `add` and `use`.
class Tunable {
public:
  virtual ~Tunable() = default;
  /// Shape, element types, scratch: matmuls with equal keys use the same algorithm. A-Z, a-z, digits, spaces, _.
  virtual std::string key() const = 0;
  /// The library's candidates, its first choice first; at least one.
  virtual std::vector<Algorithm> candidates() const = 0;
  /// The candidate's execution time. Allocates and waits.
  virtual double microseconds(const Algorithm &candidate) = 0;
  virtual void use(const Algorithm &chosen) = 0;
};

/// The choices, and the machine they are valid for.
struct TuningTable {
  std::string machine; ///< device and library
  std::map<std::string, Algorithm> choices;

  std::string toJson() const;
  /// Throws Failure{corrupt} naming `where`.
  static TuningTable fromJson(const std::string &text, const std::string &where);
};

/// The tuner of one rank.
class Tuner {
public:
  /// `machine`: this rank's device and library.
  explicit Tuner(std::string machine) : machine(std::move(machine)) {}
  /// The matmul must live until `choose`.
  void add(Tunable &product) { products.push_back(&product); }
  /// Collective. Rank 0 uses the file's choices for its machine, times the others, and writes new ones. If the file
  /// cannot be written, it prints a line to stderr. Throws Failure{disagreement}, `differs=tuning`, if ranks have
  /// different machines, and whatever `microseconds` throws.
  void choose(HostGroup &group, const std::string &path);

private:
  bool timeMissing(TuningTable &table);
  std::string machine;
  std::vector<Tunable *> products;
};

} // namespace fsdpc::rt
