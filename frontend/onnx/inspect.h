// `fsdpc inspect`: what the import makes of a file, before any translation.
#pragma once

#include "frontend/onnx/classify.h"
#include "frontend/onnx/import.h"

namespace fsdpc {

/// A parameter with the module path of the node that reads it first; "" if unknown.
struct UseInGraph {
  const Parameter *parameter;
  std::string scope;
};

/// An input or output of the graph.
struct GraphValue {
  std::string name;
  bool isFloat = false;
  std::vector<std::string> dims; ///< numbers or symbols
};
std::vector<GraphValue> inputsOf(const ImportedModel &imported);
std::vector<GraphValue> outputsOf(const ImportedModel &imported);

/// The parameters that nodes read, in the order of their first use.
std::vector<UseInGraph> parametersInOrder(const ImportedModel &imported);
/// As Module::classes.
std::map<std::string, std::string> classesOf(const ImportedModel &imported);
/// By the name of the initializer.
llvm::StringMap<InitializerRole> initializerRoles(const ImportedModel &imported);

/// For people, in lines of at most 100 columns: ops with counts, dims, parameters with one line for all layers, units,
/// buffers and constants, what was repaired. Requires that the parameters have their units.
void printInspection(const ImportedModel &imported, llvm::ArrayRef<Unit> units, llvm::raw_ostream &out);
/// All of it, as one JSON object with one line for each parameter.
void printInspectionJson(const ImportedModel &imported, llvm::ArrayRef<Unit> units, llvm::raw_ostream &out);

} // namespace fsdpc
