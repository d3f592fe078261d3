#include "frontend/onnx/translate/table.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc {

namespace {

TranslateFunction findOfMicrosoft(llvm::StringRef op) {
  for (TranslationRows family : {microsoftTranslations(), microsoftAttentionTranslations()})
    for (const TranslationRow &row : family)
      if (row.op == op)
        return row.translate;
  return nullptr;
}

} // namespace

TranslateFunction findTranslation(llvm::StringRef domain, llvm::StringRef op, int64_t opset) {
  static const llvm::StringMap<llvm::SmallVector<TranslationRow, 1>> rows = [] {
    llvm::StringMap<llvm::SmallVector<TranslationRow, 1>> map;
    for (TranslationRows family :
         {activationTranslations(), arithmeticTranslations(), constantTranslations(),  convolutionTranslations(),
          dropoutTranslations(),    einsumTranslations(),     indexTranslations(),     logicTranslations(),
          lossTranslations(),       matmulTranslations(),     normTranslations(),      reduceTranslations(),
          resizeTranslations(),     scatterTranslations(),    shapeTranslations(),     fourierTranslations(),
          gridSampleTranslations(), padTranslations(),        poolTranslations(),      trigonometryTranslations(),
          knownTranslations(),      randomTranslations(),     recurrentTranslations(), sequenceTranslations()})
      for (const TranslationRow &row : family)
        map[row.op].push_back(row);
    return map;
  }();
  if (domain == "com.microsoft")
    return findOfMicrosoft(op);
  auto found = rows.find(op);
  if (!domain.empty() || found == rows.end())
    return nullptr;
  for (const TranslationRow &row : found->second)
    if (opset >= row.firstOpset && opset <= row.lastOpset)
      return row.translate;
  return nullptr;
}

} // namespace fsdpc
