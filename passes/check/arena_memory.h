// The arenas during a step: the places and lifetimes of buffers, and the operations that still use them.
#pragma once

#include "passes/check/extent_map.h"
#include "passes/check/fault.h"
#include "passes/check/stream_clocks.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"

namespace fsdpc::check {

/// A contiguous range of bytes with one owner at a time. Views, reshapes and waits are aliases of their operand's
/// buffer.
struct Buffer {
  enum class Kind : uint8_t { value, state, input, workspace };
  Kind kind = Kind::value;
  Place place;
  int64_t bytes = 0;
  int64_t elementBytes = 1;
  const Value *value = nullptr; ///< its original value or, after an in-place write, the current one
  const State *state = nullptr;
  const Node *node = nullptr; ///< for a workspace

  int32_t version = 0; ///< counts in-place writes
  const Node *overwrittenBy = nullptr;
  Moment writtenAt = 0;           ///< of a state's current version
  Moment usedAt = 0;              ///< a state's last use by a compute node
  bool awaitsWrite = false;       ///< a state that already holds the value of a `write` that is still to come
  int32_t partOf = -1;            ///< the buffer of the pack that it is now a part of
  CollectiveIndex writtenBy = -1; ///< the collective whose result or workspace it is
  llvm::SmallVector<CollectiveIndex, 2> readBy = {}; ///< collectives whose release implies that of all readers
  Moment endedAt = -1;                               ///< at its free; -1: live

  static Buffer of(const Value *value, CollectiveIndex writtenBy = -1);
  bool isPermanent() const { return kind == Kind::state || kind == Kind::input; }
};

class ArenaMemory {
public:
  explicit ArenaMemory(const Module &module);

  Buffer &operator[](int32_t index) { return buffers[index]; }
  const Buffer &operator[](int32_t index) const { return buffers[index]; }
  int32_t size() const { return static_cast<int32_t>(buffers.size()); }

  /// Checks that the buffer is inside its arena (module settings arena_private_bytes, arena_window_bytes,
  /// arena_host_bytes), at a multiple of its element size. `node` may be null.
  llvm::Error checkPlace(const Buffer &buffer, const Node *node) const;
  /// Adds a new buffer. Requires: earlier buffers at these bytes are freed, and the free is ordered before the writer
  /// of the new one (`buffer.writtenBy`, or the compute stream now). `parts`, ascending, may stay. `node` may be null.
  llvm::Expected<int32_t> occupy(const Buffer &buffer, const Node *node, llvm::ArrayRef<int32_t> parts = {});
  /// The live buffer at exactly `place`; -1 if there is none or if another buffer overlaps it.
  int32_t exactlyAt(Place place, int64_t bytes) const;
  /// Starts a new version, written by the compute stream now or by the collective. Its uses replace those of the
  /// old version.
  void overwrite(int32_t index, const Node &by, CollectiveIndex collective);
  /// Records that a collective reads the buffer.
  void addReader(int32_t index, CollectiveIndex collective);
  /// True if no collective on any rank reads or writes the buffer any more, as far as the compute stream knows.
  bool isQuiet(const Buffer &buffer) const;
  /// True if all uses of the buffer's last version end before the collective begins.
  bool isQuietFor(const Buffer &buffer, CollectiveIndex next) const;
  /// "%x", "state @w", "the workspace of ..."
  static std::string describe(const Buffer &buffer);

  StreamClocks clocks;

private:
  llvm::Error checkOver(const Buffer &old, const Buffer &next, const Node *node) const;

  int64_t arenaBytes[std::size(allSpaces)];   ///< -1: not given by the module
  int64_t predictBytes[std::size(allSpaces)]; ///< for the nodes of predict
  std::vector<Buffer> buffers;
  ExtentMap extents;
};

} // namespace fsdpc::check
