// Shared by LSTM, GRU and RNN: inputs, attributes, and the loop over time steps.
#pragma once

#include "frontend/onnx/translate/node_translation.h"
#include <functional>

namespace fsdpc {

/// An activation function of a recurrent op, with its parameters.
struct RecurrentActivation {
  std::string name; ///< in lower case
  double alpha = 0, beta = 0;
  Value *of(NodeTranslation &t, Value *x) const;
};

/// Weights of one direction. In all of them, the rows of the gates are concatenated.
struct RecurrentWeights {
  Value *input;                  ///< [G*H, I]
  Value *hidden;                 ///< [G*H, H]
  Value *biasInput, *biasHidden; ///< [G*H]; null without B
  Value *peepholes;              ///< [3*H]; null without P
};

/// h, and for LSTM c: [B, H] each. c is null for other ops.
struct RecurrentState {
  Value *hidden, *cell;
};

/// One recurrent node. Time steps are unrolled: one matmul of the entire sequence with W, then one per step with R.
class RecurrentNode {
public:
  RecurrentNode(NodeTranslation &t, int64_t gates, llvm::ArrayRef<llvm::StringRef> defaultActivations);

  NodeTranslation &t;
  const int64_t gates, hiddenSize;
  int64_t directions = 1, steps = 0, batch = 0;

  /// Computes one step from the input's matmul result [B, G*H] (with the sequence bias added) and the previous state.
  using Step = std::function<RecurrentState(const RecurrentWeights &weights, llvm::ArrayRef<RecurrentActivation>,
                                            Value *fromInput, const RecurrentState &before)>;
  /// Bias of the entire sequence's matmul: [G*H], or null.
  using SequenceBias = std::function<Value *(const RecurrentWeights &weights)>;
  /// Runs all directions and sets the outputs Y, Y_h and, with cells, Y_c.
  void run(bool hasCell, const SequenceBias &bias, const Step &step);

  /// Rows of gate g of [B, G*H], [G*H] or [G*H, ...].
  Value *gate(Value *all, int64_t axis, int64_t g, int64_t count = 1);
  Value *clipped(Value *x);
  /// x * w^T for w [N, K].
  Value *product(Value *x, Value *w);

private:
  struct Direction {
    std::vector<Value *> outputs; ///< [B, H] by time
    RecurrentState last;
  };
  void checkShapes();
  RecurrentWeights weightsOf(int64_t direction);
  Value *initialState(unsigned input, int64_t direction);
  Value *part(Value *all, int64_t direction);
  std::vector<Value *> masks();
  Direction runDirection(int64_t direction, bool hasCell, const SequenceBias &bias, const Step &step);
  void setSequenceOutput(llvm::ArrayRef<Direction> results);
  void setLastOutput(unsigned output, llvm::ArrayRef<Value *> last);

  Value *sequence = nullptr;                    ///< [T, B, I]
  std::vector<RecurrentActivation> activations; ///< of all directions
  bool isBatchFirst, isReverse;
  double clip;
};

} // namespace fsdpc
