// The parts of verify(): each checks one group of the invariants that ir/README.md lists. Later groups rely on earlier
// ones.
#pragma once

#include "ir/module.h"
#include "llvm/Support/Error.h"

namespace fsdpc::rules {

llvm::Error checkTables(const Module &module);     ///< (V1): names and the mesh
llvm::Error checkStructure(const Module &module);  ///< (V2) to (V8): functions, nodes, types, references
llvm::Error checkInterfaces(const Module &module); ///< (V9), (V10): values passed between functions
llvm::Error checkStage(const Module &module);      ///< (V11) to (V14), (V18), (V23): rules of the stage
llvm::Error checkLifetimes(const Module &module);  ///< (V15) to (V17): frees and futures
llvm::Error checkPlaces(const Module &module);     ///< (V19), (V20), (V22): the memory plan
llvm::Error checkEvents(const Module &module);     ///< (V21): the order between streams

/// "(V3) micro_step: <message>", with the node's text on a separate line.
llvm::Error broken(llvm::StringRef label, const Node &node, const llvm::Twine &message);
llvm::Error broken(llvm::StringRef label, const Function &function, const llvm::Twine &message);
/// "(V1) <message>"
llvm::Error broken(llvm::StringRef label, const llvm::Twine &message);
/// %name, as printed.
std::string nameIn(const Function &function, const Value *value);

} // namespace fsdpc::rules
