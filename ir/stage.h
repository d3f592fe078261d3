// The five stages of a module, and in which of them an op may stand.
#pragma once

#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>

namespace fsdpc {

enum class Stage : uint8_t { graph, train, sharded, async, planned };
llvm::StringRef nameOf(Stage stage);
std::optional<Stage> stageFromName(llvm::StringRef name);

/// From one stage to another, both included. The default holds none: a descriptor has to say.
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
