// A program that records what its nodes read and wrote: its text, and the file it leaves behind.
#pragma once

#include "ir/eval/evaluate.h"
#include "ir/node.h"
#include "llvm/Support/Error.h"

#include <vector>

namespace fsdpc::rounding {

/// A node that has statements, with the numbers its program knows it by.
struct NumberedNode {
  int section, index;
  const Node *node;
};

struct InstrumentedProgram {
  std::string text;    ///< of program.cpp or program.cu
  std::string regions; ///< what the recorder reads
  std::vector<NumberedNode> nodes;
};

/// Of a planned module. Constants need not be recorded: they may lie outside the arenas.
InstrumentedProgram instrument(const Module &module, llvm::StringRef target);

/// One execution of one node.
struct Recording {
  const Node *node;
  std::vector<HostTensor> operands, results;
};
/// Of the file that the recorder wrote: nodes that ran, in the order of `nodes`.
llvm::Expected<std::vector<Recording>> readRecordings(llvm::ArrayRef<NumberedNode> nodes, llvm::StringRef path);

} // namespace fsdpc::rounding
