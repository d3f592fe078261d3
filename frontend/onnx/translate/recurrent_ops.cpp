// LSTM, GRU and RNN; and ReverseSequence, which is used with lengths.
#include "frontend/onnx/translate/recurrent.h"
#include "frontend/onnx/translate/table.h"

namespace fsdpc {

namespace {

using Activations = llvm::ArrayRef<RecurrentActivation>;

/// Both biases of a gate are used only as their sum.
Value *sumOfBiases(NodeTranslation &t, const RecurrentWeights &weights) {
  return weights.biasInput ? t.binary(Op::add, weights.biasInput, weights.biasHidden) : nullptr;
}

/// H' = f(X W^T + H R^T + b)
void rnn(NodeTranslation &t) {
  RecurrentNode node(t, 1, {"Tanh"});
  node.run(
      false, [&](const RecurrentWeights &weights) { return sumOfBiases(t, weights); },
      [&](const RecurrentWeights &weights, Activations f, Value *fromInput, const RecurrentState &before) {
        Value *sum = t.binary(Op::add, fromInput, node.product(before.hidden, weights.hidden));
        return RecurrentState{f[0].of(t, node.clipped(sum)), nullptr};
      });
}

/// Gates are in the order i, o, f, c.
RecurrentState lstmStep(RecurrentNode &node, bool couplesInputAndForget, const RecurrentWeights &weights, Activations f,
                        Value *fromInput, const RecurrentState &before) {
  NodeTranslation &t = node.t;
  Value *all = t.binary(Op::add, fromInput, node.product(before.hidden, weights.hidden));
  auto gate = [&](int64_t g, int64_t peephole, Value *cell) {
    Value *x = node.gate(all, 1, g);
    if (weights.peepholes && peephole >= 0)
      x = t.binary(Op::add, x, t.binary(Op::mul, cell, node.gate(weights.peepholes, 0, peephole)));
    return node.clipped(x);
  };
  Value *input = f[0].of(t, gate(0, 0, before.cell));
  Value *forget =
      couplesInputAndForget ? t.binary(Op::sub, t.constantLike(input, 1), input) : f[0].of(t, gate(2, 2, before.cell));
  Value *candidate = f[1].of(t, gate(3, -1, nullptr));
  Value *cell = t.binary(Op::add, t.binary(Op::mul, forget, before.cell), t.binary(Op::mul, input, candidate));
  Value *output = f[0].of(t, gate(1, 1, cell));
  return {t.binary(Op::mul, output, f[2].of(t, cell)), cell};
}

void lstm(NodeTranslation &t) {
  RecurrentNode node(t, 4, {"Sigmoid", "Tanh", "Tanh"});
  bool couples = t.integer("input_forget", 0) != 0;
  node.run(
      true, [&](const RecurrentWeights &weights) { return sumOfBiases(t, weights); },
      [&](const RecurrentWeights &weights, Activations f, Value *fromInput, const RecurrentState &before) {
        return lstmStep(node, couples, weights, f, fromInput, before);
      });
}

/// Gates are in the order z, r, h. In h, the hidden state is multiplied by r before its matmul with R, or after the
/// matmul and its bias (linear_before_reset).
RecurrentState gruStep(RecurrentNode &node, bool resetsAfter, const RecurrentWeights &weights, Activations f,
                       Value *fromInput, const RecurrentState &before) {
  NodeTranslation &t = node.t;
  Value *matrix = resetsAfter ? weights.hidden : node.gate(weights.hidden, 0, 0, 2);
  Value *fromHidden = node.product(before.hidden, matrix);
  if (resetsAfter && weights.biasHidden)
    fromHidden = t.binary(Op::add, fromHidden, weights.biasHidden);
  auto gate = [&](int64_t g) {
    return f[0].of(t, node.clipped(t.binary(Op::add, node.gate(fromInput, 1, g), node.gate(fromHidden, 1, g))));
  };
  Value *update = gate(0), *reset = gate(1);
  Value *share = resetsAfter ? t.binary(Op::mul, reset, node.gate(fromHidden, 1, 2))
                             : node.product(t.binary(Op::mul, reset, before.hidden), node.gate(weights.hidden, 0, 2));
  Value *candidate = f[1].of(t, node.clipped(t.binary(Op::add, node.gate(fromInput, 1, 2), share)));
  Value *fresh = t.binary(Op::mul, t.binary(Op::sub, t.constantLike(update, 1), update), candidate);
  return {t.binary(Op::add, fresh, t.binary(Op::mul, update, before.hidden)), nullptr};
}

void gru(NodeTranslation &t) {
  RecurrentNode node(t, 3, {"Sigmoid", "Tanh"});
  bool resetsAfter = t.integer("linear_before_reset", 0) != 0;
  node.run(
      false, [&](const RecurrentWeights &weights) { return resetsAfter ? weights.biasInput : sumOfBiases(t, weights); },
      [&](const RecurrentWeights &weights, Activations f, Value *fromInput, const RecurrentState &before) {
        return gruStep(node, resetsAfter, weights, f, fromInput, before);
      });
}

/// The first `length` elements of each sample's time axis, in reverse order. The others stay.
void reverseSequence(NodeTranslation &t) {
  Value *x = t.input(0), *lengths = t.cast(t.input(1), DType::i64);
  const Type &type = x->type();
  if (type.rank() < 2)
    t.reject(toString(type) + " has no time axis");
  int64_t batchAxis = t.normalAxis(t.integer("batch_axis", 1), type.rank()),
          timeAxis = t.normalAxis(t.integer("time_axis", 0), type.rank());
  if (batchAxis == timeAxis || batchAxis > 1 || timeAxis > 1 || type.elements() == 0)
    t.reject("batch_axis and time_axis must be 0 and 1, and no dim 0");
  int64_t steps = type.dim(timeAxis), samples = type.dim(batchAxis), rest = type.elements() / (steps * samples);
  Shape plane = {type.dim(0), type.dim(1)}, line = {1, 1};
  line[batchAxis] = samples;
  Value *length = t.broadcast(t.reshape(lengths, line), plane), *time = t.iota(plane, timeAxis);
  Value *fromEnd = t.binary(Op::sub, t.binary(Op::sub, length, 1), time);
  Value *source = t.select(t.binary(Op::less, time, length), fromEnd, time), *sample = t.iota(plane, batchAxis);
  Value *row = timeAxis == 0 ? t.binary(Op::add, t.binary(Op::mul, source, static_cast<double>(samples)), sample)
                             : t.binary(Op::add, t.binary(Op::mul, sample, static_cast<double>(steps)), source);
  Value *rows = t.reshape(x, {steps * samples, rest});
  t.setOutput(0, t.reshape(t.make(Op::gather, {rows, row}, AxisAttributes{0}), type.shape()));
}

constexpr TranslationRow rows[] = {
    {"GRU", gru},
    {"LSTM", lstm},
    {"RNN", rnn},
    {"ReverseSequence", reverseSequence},
};

} // namespace

TranslationRows recurrentTranslations() { return rows; }

} // namespace fsdpc
