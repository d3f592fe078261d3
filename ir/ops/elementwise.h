// Shared by the elementwise descriptors: shape rules, the evaluation loop, and two short forms of derivative rules.
//
// A ScalarFunction's dtype is that of the result. Arguments and result are f64 for every dtype. Booleans are 0 and 1.
#pragma once

#include "ir/ops/batch_rules.h"
#include "ir/ops/helpers.h"

#include <type_traits>

namespace fsdpc {

enum class ElementKind : uint8_t { any, number, integer, floating, boolean };

/// (C1) operands of one type; (C2) its dtype is of this kind. The result has `resultDType`, by default the operands'
/// dtype.
llvm::Error inferElementwise(const OpInfo &info, ElementKind kind, std::optional<DType> resultDType,
                             llvm::ArrayRef<Type> operands, llvm::SmallVectorImpl<Type> &results);

/// The result has the operands' type.
template <const OpInfo &info, ElementKind kind>
llvm::Error inferSame(llvm::ArrayRef<Type> operands, const AttributesBase *, llvm::SmallVectorImpl<Type> &results) {
  return inferElementwise(info, kind, std::nullopt, operands, results);
}
/// The result is bool.
template <const OpInfo &info, ElementKind kind>
llvm::Error inferPredicate(llvm::ArrayRef<Type> operands, const AttributesBase *,
                           llvm::SmallVectorImpl<Type> &results) {
  return inferElementwise(info, kind, DType::boolean, operands, results);
}

/// The function that a template parameter holds. For a captureless lambda a new object, because clang 19 with
/// AddressSanitizer drops the object behind the parameter.
template <auto function>
constexpr auto callable() {
  if constexpr (std::is_class_v<decltype(function)>)
    return decltype(function){};
  else
    return function;
}

/// results[0][i] = scalar(operands[...][i]).
void evaluateElementwise(EvaluateContext &context, ScalarFunction scalar);
template <auto scalar>
void evaluateWith(EvaluateContext &context) {
  evaluateElementwise(context, callable<scalar>());
}

/// vjp of f(x) -> y from a rule (builder, x, y, dy) -> dx.
template <auto rule>
void unaryVjp(VjpContext &context) {
  Value *dy = context.resultCotangents[0];
  if (dy && context.needed[0])
    context.operandCotangents[0] =
        callable<rule>()(context.builder, context.node.operand(0), context.node.result(), dy);
}

/// The input of a rule of a binary op.
struct BinaryVjp {
  Builder &builder;
  Value *a, *b, *y, *dy;
};
/// vjp of f(a, b) -> y from one rule per operand. A rule may return null for zero.
template <auto ruleA, auto ruleB>
void binaryVjp(VjpContext &context) {
  const Node &node = context.node;
  BinaryVjp view{context.builder, node.operand(0), node.operand(1), node.result(), context.resultCotangents[0]};
  if (view.dy && context.needed[0])
    context.operandCotangents[0] = callable<ruleA>()(view);
  if (view.dy && context.needed[1])
    context.operandCotangents[1] = callable<ruleB>()(view);
}

/// The descriptor of an elementwise op; `scalar` is a captureless lambda.
template <auto scalar>
constexpr OpInfo elementwiseOp(llvm::StringRef name, ElementBody element, llvm::StringRef doc,
                               llvm::ArrayRef<llvm::StringRef> operandNames, InferFunction infer, VjpFunction vjp,
                               uint32_t moreTraits = noTraits) {
  return {.name = name,
          .doc = doc,
          .operandNames = operandNames,
          .traits = pure | elementwise | moreTraits,
          .infer = infer,
          .evaluate = evaluateWith<scalar>,
          .scalar = scalar,
          .vjp = vjp,
          .cost = costOfTypes,
          .computeClass = ComputeClass::loop,
          .stages = everyStage,
          .batch = keepsBatch,
          .element = element};
}

} // namespace fsdpc
