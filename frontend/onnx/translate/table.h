// The table of ONNX ops: name, opset range, translation function. One list per family, combined in table.cpp.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <limits>

namespace fsdpc {

class NodeTranslation;
using TranslateFunction = void (*)(NodeTranslation &);

struct TranslationRow {
  llvm::StringRef op; ///< of ai.onnx, or of com.microsoft in its own list
  TranslateFunction translate;
  int64_t firstOpset = 0; ///< of the model
  int64_t lastOpset = std::numeric_limits<int64_t>::max();
};

using TranslationRows = llvm::ArrayRef<TranslationRow>;
TranslationRows activationTranslations();
TranslationRows arithmeticTranslations();
TranslationRows constantTranslations();
TranslationRows convolutionTranslations();
TranslationRows dropoutTranslations();
TranslationRows einsumTranslations();
TranslationRows fourierTranslations();
TranslationRows gridSampleTranslations();
TranslationRows indexTranslations();
TranslationRows knownTranslations();
TranslationRows logicTranslations();
TranslationRows lossTranslations();
TranslationRows matmulTranslations();
TranslationRows microsoftAttentionTranslations(); ///< of com.microsoft
TranslationRows microsoftTranslations();          ///< of com.microsoft
TranslationRows normTranslations();
TranslationRows padTranslations();
TranslationRows poolTranslations();
TranslationRows randomTranslations();
TranslationRows recurrentTranslations();
TranslationRows reduceTranslations();
TranslationRows resizeTranslations();
TranslationRows scatterTranslations();
TranslationRows sequenceTranslations();
TranslationRows shapeTranslations();
TranslationRows trigonometryTranslations();

/// Null if there is no translation.
TranslateFunction findTranslation(llvm::StringRef domain, llvm::StringRef op, int64_t opset);

} // namespace fsdpc
