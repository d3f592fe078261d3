// Assigns offsets based on live ranges. Permanent buffers (states, inputs, constants) are placed first, in order. The
// others share the remaining space.
#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "passes/analysis/buffers.h"
#include "passes/passes.h"
#include "passes/plan/arena_layout.h"
#include <map>

namespace fsdpc {

namespace {

class Planner {
public:
  Planner(Module &module, const Target &target) : module(module), target(target) {}

  void run() {
    for (const std::unique_ptr<Function> &function : module.functions)
      for (Node *node : *function)
        node->schedule.workspaceBytes = target.workspaceBytes(*node);
    LiveRanges ranges(module, target);
    for (Space space : allSpaces)
      placeArena(ranges, space);
    for (State &state : module.states)
      state.place = ranges.buffers[ranges.bufferOfState.lookup(state.name)].place;
    for (const std::unique_ptr<Function> &function : module.functions)
      writePlaces(*function, ranges);
    for (const std::unique_ptr<Function> &function : module.functions)
      orderReuse(*function);
    module.stage = Stage::planned;
  }

private:
  void placeArena(LiveRanges &ranges, Space space) {
    int64_t alignment = target.alignmentBytes();
    int64_t base = 0, used = 0;
    std::vector<Buffer *> moving, ofPredict;
    for (Buffer &buffer : ranges.buffers) {
      if (buffer.space != space || (buffer.bytes == 0 && !buffer.permanent))
        continue;
      if (!buffer.permanent) {
        (ranges.isOfPredict(buffer) ? ofPredict : moving).push_back(&buffer);
        continue;
      }
      buffer.place = {space, base};
      used = base + buffer.bytes;
      base = roundUp(used, alignment);
    }
    used = std::max(used, placeMoving(moving, {space, base}));
    // No other function runs during predict, so it reuses all memory that is not permanent.
    const int64_t usedByPredict = placeMoving(ofPredict, {space, base});
    ArenaSize &arena = module.facts.arena(space);
    arena = {used, roundUp(used, target.arenaGranuleBytes()), std::nullopt};
    if (usedByPredict > *arena.bytes)
      arena.predictBytes = roundUp(usedByPredict, target.arenaGranuleBytes());
  }

  /// Returns the end of the last buffer; 0 if there is none.
  int64_t placeMoving(llvm::ArrayRef<Buffer *> buffers, Place base) {
    const ArenaLayout layout = layOut(buffers, target.alignmentBytes());
    for (size_t i = 0; i < buffers.size(); ++i)
      buffers[i]->place = {base.space, base.offsetBytes + layout.offsets[i]};
    return layout.heightBytes > 0 ? base.offsetBytes + layout.heightBytes : 0;
  }

  static void placeValue(Value *value, Place base, int64_t offsetBytes) {
    value->place = {base.space, base.offsetBytes + offsetBytes};
  }

  void writePlaces(Function &function, LiveRanges &ranges) {
    BufferAnalysis analysis(function);
    auto placeOf = [&](Value *root) {
      llvm::StringRef state = analysis.stateOf(root);
      size_t index = state.empty() ? ranges.bufferOfRoot.lookup(root) : ranges.bufferOfState.lookup(state);
      return ranges.buffers[index].place;
    };
    for (const Argument &argument : function.arguments())
      argument.value->place = placeOf(argument.value.get());
    for (Node *node : function) {
      for (unsigned i = 0; i < node->resultCount(); ++i) {
        if (node->result(i)->type().isToken())
          continue;
        BufferRef ref = analysis.bufferOf(node->result(i));
        placeValue(node->result(i), placeOf(ref.root), ref.offsetBytes);
      }
      if (auto workspace = ranges.bufferOfWorkspace.find(node); workspace != ranges.bufferOfWorkspace.end())
        node->schedule.workspace = ranges.buffers[workspace->second].place;
    }
  }

  /// Transfers run ahead of the compute stream: a start that writes memory freed on compute must wait for that free.
  void orderReuse(Function &function) {
    freed.clear();
    std::vector<Node *> scratchUsers; ///< since the last free, whose token covers their workspaces too
    for (Node *node : function) {
      if (node->op() == Op::free) {
        release(node->operand(0)->place, node->operand(0)->type().bytes(), node->result());
        for (Node *user : scratchUsers)
          release(user->schedule.workspace, user->schedule.workspaceBytes, node->result());
        scratchUsers.clear();
        continue;
      }
      Node *starts = infoOf(*node).has(startsTransfer) ? node : nullptr;
      for (unsigned i = 0; i < node->resultCount(); ++i)
        if (!node->result(i)->type().isToken())
          claim(node->result(i)->place, node->result(i)->type().bytes(), starts);
      if (node->schedule.workspaceBytes > 0) {
        claim(node->schedule.workspace, node->schedule.workspaceBytes, starts);
        if (!starts)
          scratchUsers.push_back(node);
      }
      Node *start = node->op() == Op::wait ? node->operand(0)->definer() : nullptr;
      if (start && start->schedule.workspaceBytes > 0)
        scratchUsers.push_back(start);
    }
  }

  void release(Place place, int64_t bytes, Value *token) {
    claim(place, bytes, nullptr);
    freed[{place.space, place.offsetBytes}] = {place.offsetBytes + bytes, token};
  }

  struct FreedRange {
    int64_t end = 0;
    Value *token = nullptr;
  };

  /// Removes [place, place + bytes) from the freed ranges; `start` waits for the tokens of the removed ranges.
  void claim(Place place, int64_t bytes, Node *start) {
    int64_t begin = place.offsetBytes, end = begin + bytes;
    auto entry = freed.lower_bound({place.space, begin});
    if (entry != freed.begin())
      if (auto previous = std::prev(entry); previous->first.first == place.space && previous->second.end > begin)
        entry = previous;
    while (entry != freed.end() && entry->first.first == place.space && entry->first.second < end) {
      auto [key, range] = *entry;
      entry = freed.erase(entry);
      if (start && !llvm::any_of(start->afterTokens(), [&](const auto &use) { return use->value() == range.token; }))
        start->addAfter(range.token);
      if (key.second < begin)
        freed[key] = {begin, range.token};
      if (range.end > end)
        entry = std::next(freed.insert({{place.space, end}, range}).first);
    }
  }

  Module &module;
  const Target &target;
  std::map<std::pair<Space, int64_t>, FreedRange> freed;
};

llvm::Error run(Module &module, const PassContext &context) {
  Planner(module, context.target).run();
  return llvm::Error::success();
}

} // namespace

const Pass planMemory = {"plan_memory", Stage::async, Stage::planned, false, run};

} // namespace fsdpc
