// The arenas while a step runs: which buffers lie where, until when, and who still uses them.
#pragma once

#include "passes/check/extent_map.h"
#include "passes/check/fault.h"
#include "passes/check/stream_clocks.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"

namespace fsdpc::check {

/// A run of bytes with one owner at a time. Views, reshapes and waits are other names of their operand's buffer.
struct Buffer {
  enum class Kind : uint8_t { value, state, input, workspace };
  Kind kind = Kind::value;
  Place place;
  int64_t bytes = 0;
  int64_t elementBytes = 1;
  const Value *value = nullptr; ///< the value that it was made for or, after a node wrote in place, that it holds now
  const State *state = nullptr;
  const Node *node = nullptr; ///< a workspace's

  int32_t version = 0; ///< counts what was written over it in place
  const Node *overwrittenBy = nullptr;
  Moment writtenAt = 0;           ///< a state's current version
  Moment usedAt = 0;              ///< a state's last use by a compute node
  bool awaitsWrite = false;       ///< a state that already holds what a `write` has yet to make its value
  int32_t partOf = -1;            ///< the buffer of the pack that it became a part of
  CollectiveIndex writtenBy = -1; ///< the collective whose result or workspace it is
  llvm::SmallVector<CollectiveIndex, 2> readBy = {}; ///< collectives whose release is that of all readers
  Moment endedAt = -1;                               ///< of its free; -1: lives

  static Buffer of(const Value *value, CollectiveIndex writtenBy = -1);
  bool isPermanent() const { return kind == Kind::state || kind == Kind::input; }
};

class ArenaMemory {
public:
  explicit ArenaMemory(const Module &module);

  Buffer &operator[](int32_t index) { return buffers[index]; }
  const Buffer &operator[](int32_t index) const { return buffers[index]; }
  int32_t size() const { return static_cast<int32_t>(buffers.size()); }

  /// Inside its arena (module settings arena_private_bytes, arena_window_bytes, arena_host_bytes), and on a multiple of
  /// its element size. `node` may be null.
  llvm::Error checkPlace(const Buffer &buffer, const Node *node) const;
  /// A new buffer. What lay there must be over for whoever writes the new one (`buffer.writtenBy`, or the compute
  /// stream now): freed, and the free known to the writer. `parts`, ascending, may stay. `node` may be null.
  llvm::Expected<int32_t> occupy(const Buffer &buffer, const Node *node, llvm::ArrayRef<int32_t> parts = {});
  /// The one living buffer that lies exactly at `place`; -1 if something else lies there too, or nothing.
  int32_t exactlyAt(Place place, int64_t bytes) const;
  /// A new version, by the compute stream now or by the collective. What used the old one is over.
  void overwrite(int32_t index, const Node &by, CollectiveIndex collective);
  /// A collective reads the buffer.
  void addReader(int32_t index, CollectiveIndex collective);
  /// Nobody on any rank reads or writes the buffer any more, as far as collectives are concerned and the compute stream
  /// knows.
  bool isQuiet(const Buffer &buffer) const;
  /// Does the buffer's last version end, for everybody, before the collective begins?
  bool isQuietFor(const Buffer &buffer, CollectiveIndex next) const;
  /// "%x", "state @w", "the workspace of ..."
  static std::string describe(const Buffer &buffer);

  StreamClocks clocks;

private:
  llvm::Error checkOver(const Buffer &old, const Buffer &next, const Node *node) const;

  int64_t arenaBytes[std::size(allSpaces)]; ///< -1: the module does not say
  std::vector<Buffer> buffers;
  ExtentMap extents;
};

} // namespace fsdpc::check
