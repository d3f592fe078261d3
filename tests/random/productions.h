// Productions that the generator can add to a graph: one per op that is allowed in the graph stage.
#pragma once

#include "tests/random/graph_maker.h"

namespace fsdpc {

/// Adds the op and the nodes that it needs, and returns a value that later productions may use. Returns nothing if the
/// random shapes are invalid for the op. Nodes built for it remain as dead code.
using ProductionFunction = std::optional<Tensor> (*)(GraphMaker &maker, Op op);

struct Production {
  Op op;
  ProductionFunction apply;
};

llvm::ArrayRef<Production> elementwiseProductions();
llvm::ArrayRef<Production> shapeProductions();
llvm::ArrayRef<Production> indexProductions();
llvm::ArrayRef<Production> matmulProductions(); ///< matmul, convolution, pooling
llvm::ArrayRef<Production> rowProductions();    ///< reductions, norms, softmax, attention, losses
/// Compositions that passes/graph recognises or rewrites: decomposed LayerNorm, RMSNorm, GELU, SiLU, rotary embedding
/// and attention, dropout.
llvm::ArrayRef<Production> patternProductions();

} // namespace fsdpc
