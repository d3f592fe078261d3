// Comparisons, logic and choice.
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"
#include <limits>

namespace fsdpc {

namespace {

template <Op op>
void compare(NodeTranslation &t) {
  t.setOutput(0, t.binary(op, t.input(0), t.input(1)));
}
template <Op op>
void compareSwapped(NodeTranslation &t) {
  t.setOutput(0, t.binary(op, t.input(1), t.input(0)));
}

void logicalNot(NodeTranslation &t) { t.setOutput(0, t.unary(Op::logicalNot, t.input(0))); }
void isNan(NodeTranslation &t) { t.setOutput(0, t.unary(Op::isNan, t.input(0))); }

void isInfinite(NodeTranslation &t) {
  Value *x = t.input(0);
  bool positive = t.integer("detect_positive", 1) != 0, negative = t.integer("detect_negative", 1) != 0;
  if (!positive && !negative)
    return t.setOutput(0, t.constant(x->type().withDType(DType::boolean), 0));
  Value *signedX = positive && negative ? t.unary(Op::abs, x) : positive ? x : t.unary(Op::neg, x);
  t.setOutput(0, t.binary(Op::equal, signedX, std::numeric_limits<double>::infinity()));
}

void where(NodeTranslation &t) { t.setOutput(0, t.select(t.input(0), t.input(1), t.input(2))); }

constexpr TranslationRow rows[] = {
    {"And", compare<Op::logicalAnd>},
    {"Equal", compare<Op::equal>},
    {"Greater", compareSwapped<Op::less>},
    {"GreaterOrEqual", compareSwapped<Op::lessEqual>},
    {"IsInf", isInfinite},
    {"IsNaN", isNan},
    {"Less", compare<Op::less>},
    {"LessOrEqual", compare<Op::lessEqual>},
    {"Not", logicalNot},
    {"Or", compare<Op::logicalOr>},
    {"Where", where},
    {"Xor", compare<Op::logicalXor>},
};

} // namespace

TranslationRows logicTranslations() { return rows; }

} // namespace fsdpc
