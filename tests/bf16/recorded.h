// Recording of a program's nodes: the instrumented program text, and the file with the nodes' operands and results.
#pragma once

#include "ir/eval/evaluate.h"
#include "ir/node.h"
#include "llvm/Support/Error.h"

#include <vector>

namespace fsdpc::rounding {

/// A node that has statements, with its section and index in the program.
struct NumberedNode {
  int section, index;
  const Node *node;
};

struct InstrumentedProgram {
  std::string text;    ///< text of program.cpp or program.cu
  std::string regions; ///< input of the recorder
  std::vector<NumberedNode> nodes;
};

/// For a planned module. Constants need not be recorded: they may be outside the arenas.
InstrumentedProgram instrument(const Module &module, llvm::StringRef target);

/// One execution of one node.
struct Recording {
  const Node *node;
  std::vector<HostTensor> operands, results;
};
/// Reads the recorder's file: the nodes that ran, in the order of `nodes`.
llvm::Expected<std::vector<Recording>> readRecordings(llvm::ArrayRef<NumberedNode> nodes, llvm::StringRef path);

} // namespace fsdpc::rounding
