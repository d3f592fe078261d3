// Values, uses and nodes: the SSA graph. Nodes live in their function's list, which is their order of issue.
#pragma once

#include "ir/attributes.h"
#include "ir/type.h"
#include "llvm/ADT/iterator_range.h"
#include <cassert>
#include <memory>

namespace fsdpc {

class Function;
class Node;
class Value;

/// Memory spaces of the `planned` stage. A value in `window` has the same offset on every rank, and peers may read it.
/// `host` is not device memory: only copies and nodes on the host access it.
enum class Space : uint8_t { none, privateSpace, window, host };
inline constexpr Space allSpaces[] = {Space::privateSpace, Space::window, Space::host};
/// The index of a space in allSpaces.
inline size_t indexOf(Space space) { return static_cast<size_t>(space) - 1; }
llvm::StringRef nameOf(Space space); // "private", "window", "host"

struct Place {
  Space space = Space::none;
  int64_t offsetBytes = 0;
  bool isPlaced() const { return space != Space::none; }
  friend bool operator==(const Place &, const Place &) = default;
};

/// `reduce` has the reductions if they have a separate communicator. Otherwise they are on `comm` with the other
/// collectives. `copy` has copies between device and host. Nodes on `host` are computed by the host, at their position
/// in the order of `compute`.
enum class Stream : uint8_t { none, compute, comm, reduce, copy, host };
/// The streams of transfers, which consist of a start and a wait.
inline constexpr Stream transferStreams[] = {Stream::comm, Stream::reduce, Stream::copy};
/// The index of a stream in transferStreams.
inline size_t laneOf(Stream stream) { return static_cast<size_t>(stream) - static_cast<size_t>(Stream::comm); }
llvm::StringRef nameOf(Stream stream);

/// The part of a step that a node belongs to. A derivative has the unit of the node that it is derived from, and phase
/// backward. A value that backward recomputes for itself has phase recompute.
enum class Phase : uint8_t { none, forward, recompute, backward, update };
llvm::StringRef nameOf(Phase phase);

/// What happens between forward and backward to results that backward reads.
enum class Saving : uint8_t {
  keep,      ///< they stay in memory
  recompute, ///< they are freed and recomputed
};
llvm::StringRef nameOf(Saving saving);

/// The position of a node in the printed program: `unit @layers.0 forward { ... }`. unit -1: outside any unit.
struct Section {
  int32_t unit = -1;
  Phase phase = Phase::none;
  friend auto operator<=>(const Section &, const Section &) = default;
};

/// One operand slot of a node; the uses of a value form a doubly linked list.
class Use {
public:
  Value *value() const { return used; }
  Node *user() const { return owner; }
  unsigned index() const { return position; }
  Use *next() const { return following; }

private:
  friend class Node;
  friend class Value;
  void link(Value *value);
  void unlink();
  Value *used = nullptr;
  Node *owner = nullptr;
  unsigned position = 0;
  Use *following = nullptr;
  Use **precedingLink = nullptr;
};

class Value {
public:
  const Type &type() const { return valueType; }
  void setType(Type type) { valueType = std::move(type); }
  llvm::StringRef name() const { return valueName; }
  /// May collide with other names of the function. The printer makes names unique.
  void setName(llvm::StringRef name) { valueName = name.str(); }
  /// The defining node; null for a function argument.
  Node *definer() const { return node; }
  unsigned resultIndex() const { return index; }
  Function *function() const;

  bool hasUses() const { return firstUse != nullptr; }
  bool hasOneUse() const { return firstUse && !firstUse->next(); }
  Use *uses() const { return firstUse; }
  void replaceAllUsesWith(Value *other);

  Place place;

private:
  friend class Use;
  friend class Node;
  friend class Function;
  friend class Builder;
  Type valueType;
  std::string valueName;
  Node *node = nullptr;
  Function *parent = nullptr; ///< of an argument
  unsigned index = 0;
  Use *firstUse = nullptr;
};

/// How a node is executed. Scheduling and planning decide it. The computed value does not depend on it.
struct NodeSchedule {
  Saving saving = Saving::keep; ///< for forward nodes, from selectSaved until it is applied
  int32_t outline = -1;         ///< index into Module::outlines: this section is printed once for several units
  Stream stream = Stream::none; ///< from the async stage on
  int64_t workspaceBytes = 0;   ///< scratch that the target's implementation of the op needs
  Place workspace;
  int32_t records = -1; ///< the event that this compute node records for other streams when it ends; -1: none
  int32_t awaits = -1;  ///< the event after which this start may begin; -1: earlier waits of its stream suffice
  /// For a wait: a later wait on the same stream precedes every use of the awaited value, so this wait is skipped.
  bool implied = false;
};

class Node {
public:
  ~Node();
  Op op() const { return operation; }
  Function *function() const { return parent; }
  Node *next() const { return following; }
  Node *previous() const { return preceding; }

  unsigned operandCount() const { return static_cast<unsigned>(operandUses.size()); }
  Value *operand(unsigned i) const { return operandUses[i]->value(); }
  void setOperand(unsigned i, Value *value);
  void appendOperand(Value *value);
  /// Drops all operands and tokens. Needed before erasing nodes that use each other.
  void dropOperands();
  llvm::SmallVector<Value *, 4> operands() const;

  unsigned resultCount() const { return static_cast<unsigned>(resultValues.size()); }
  Value *result(unsigned i = 0) const { return resultValues[i].get(); }

  /// Ordering edges: this node starts only after these tokens (`after(%t)`). They are printed separately from operands.
  llvm::ArrayRef<std::unique_ptr<Use>> afterTokens() const { return afterUses; }
  void addAfter(Value *token);

  const AttributesBase *attributes() const { return attributeStruct.get(); }
  AttributesBase *attributes() { return attributeStruct.get(); }
  void setAttributes(std::unique_ptr<AttributesBase> attributes) { attributeStruct = std::move(attributes); }
  /// The op's attribute struct. Asserts that T is the op's type.
  template <class T>
  const T &get() const {
    assert(attributeStruct && attributeStruct->typeId() == Attributes<T>::id() && "attribute struct of another op");
    return static_cast<const Attributes<T> *>(attributeStruct.get())->value;
  }
  template <class T>
  T &get() {
    assert(attributeStruct && attributeStruct->typeId() == Attributes<T>::id() && "attribute struct of another op");
    return static_cast<Attributes<T> *>(attributeStruct.get())->value;
  }

  bool isBefore(const Node *other) const; ///< in the function's order; amortised O(1)
  void moveBefore(Node *position);
  void moveAfter(Node *position);
  /// Results must be unused.
  void erase();

  Section section;   ///< its position in the printed program
  int32_t unit = -1; ///< the unit it belongs to (a prefetched gather is in the section of another unit)
  NodeSchedule schedule;
  std::string source; ///< the ONNX node it was created from, for messages; may be empty

private:
  friend class Function;
  friend class Builder;
  friend class Value;
  Node(Op op, Function *parent) : operation(op), parent(parent) {}
  Op operation;
  Function *parent;
  Node *following = nullptr;
  Node *preceding = nullptr;
  uint64_t order = 0; ///< position key; valid while parent->orderValid
  std::vector<std::unique_ptr<Use>> operandUses;
  std::vector<std::unique_ptr<Use>> afterUses;
  std::vector<std::unique_ptr<Value>> resultValues;
  std::unique_ptr<AttributesBase> attributeStruct;
};

} // namespace fsdpc
