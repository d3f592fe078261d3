// The five stages of a module, and the range of stages that may contain an op.
#pragma once

#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>

namespace fsdpc {

enum class Stage : uint8_t { graph, train, sharded, async, planned };
llvm::StringRef nameOf(Stage stage);
std::optional<Stage> stageFromName(llvm::StringRef name);

/// A range of stages, both ends included. The default is empty, so every descriptor must set it.
struct Stages {
  Stage first = Stage::planned;
  Stage last = Stage::graph;
  constexpr bool contain(Stage stage) const { return first <= stage && stage <= last; }
};

inline constexpr Stages everyStage{Stage::graph, Stage::planned};
inline constexpr Stages fromTrain{Stage::train, Stage::planned};
inline constexpr Stages fromSharded{Stage::sharded, Stage::planned};
inline constexpr Stages fromAsync{Stage::async, Stage::planned};
inline constexpr Stages untilTrain{Stage::graph, Stage::train};
inline constexpr Stages onlyTrain{Stage::train, Stage::train};
inline constexpr Stages onlySharded{Stage::sharded, Stage::sharded};

} // namespace fsdpc
