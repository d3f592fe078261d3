// Dropout, as random numbers, a comparison and a select.
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"

namespace fsdpc {

namespace {

/// True if training_mode is true in the file. Without that input Dropout is the identity.
bool isActiveInFile(NodeTranslation &t) { return t.hasInput(2) && t.constantReal(2, "training_mode") != 0; }

/// y = u < ratio ? 0 : x / (1 - ratio) with u uniform in [0, 1), drawn again for every sample and step. A ratio of 1,
/// which PyTorch allows and ONNX does not, yields zeros.
void dropout(NodeTranslation &t) {
  Value *x = t.input(0);
  double ratio = t.hasInput(1) ? t.constantReal(1, "the ratio") : 0.5;
  if (!(ratio >= 0 && ratio <= 1))
    t.reject("a ratio of " + doubleText(ratio) + " is not in [0, 1]");
  TrainMode mode = t.state.trainMode;
  bool isActive = ratio > 0 && (mode == TrainMode::train || (mode == TrainMode::keep && isActiveInFile(t)));
  int64_t instance = t.state.dropouts++;
  Type maskType = x->type().withDType(DType::boolean);
  if (!isActive) {
    t.setOutput(0, x);
    return t.wantsOutput(1) ? t.setOutput(1, t.constant(maskType, 1)) : void();
  }
  if (ratio == 1) {
    t.setOutput(0, t.constantLike(x, 0));
    return t.wantsOutput(1) ? t.setOutput(1, t.constant(maskType, 0)) : void();
  }
  int64_t batchAxis = x->type().rank() > 0 ? 0 : -1;
  RandomUniformAttributes random{instance, batchAxis, Shape(x->type().shape())};
  Value *u = t.make(Op::randomUniform, {t.state.seed(), t.state.step()}, random);
  Value *keep = t.unary(Op::logicalNot, t.binary(Op::less, u, ratio));
  t.setOutput(0, t.select(keep, t.binary(Op::mul, x, 1 / (1 - ratio)), t.constantLike(x, 0)));
  if (t.wantsOutput(1))
    t.setOutput(1, keep);
}

constexpr TranslationRow rows[] = {{"Dropout", dropout, 12}};

} // namespace

TranslationRows dropoutTranslations() { return rows; }

} // namespace fsdpc
