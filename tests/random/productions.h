// What the generator can add to a graph: one production per op that may stand in the graph stage.
#pragma once

#include "tests/random/graph_maker.h"

namespace fsdpc {

/// Adds the op, with whatever it needs around it, and returns what later productions may use; nothing if the dice chose
/// shapes that the op refuses (what was built for it stays as dead code).
using ProductionFunction = std::optional<Tensor> (*)(GraphMaker &maker, Op op);

struct Production {
  Op op;
  ProductionFunction apply;
};

llvm::ArrayRef<Production> elementwiseProductions();
llvm::ArrayRef<Production> shapeProductions();
llvm::ArrayRef<Production> indexProductions();
llvm::ArrayRef<Production> productProductions(); ///< matmul, convolution, pooling
llvm::ArrayRef<Production> rowProductions();     ///< reductions, norms, softmax, attention, losses
/// Compositions that passes/graph recognises or rewrites: decomposed LayerNorm, RMSNorm, GELU, SiLU, rotary embedding
/// and attention, dropout.
llvm::ArrayRef<Production> patternProductions();

} // namespace fsdpc
