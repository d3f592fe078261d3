// The parts of a program that differ between targets. Everything else is the same, including the text of every
// statement that calls a kernel.
#pragma once

#include "codegen/emit.h"
#include "ir/node.h"
#include "ir/ops/attributes.h"

namespace fsdpc {

class ProgramText;
class SectionWriter;

class Dialect {
public:
  virtual ~Dialect() = default;
  virtual llvm::StringRef name() const = 0; ///< of the target
  /// Returns whether the node's kernel takes operands and results of 16-bit floats. If not, it gets f32 copies of them,
  /// in its scratch.
  virtual bool takesHalves(const Node &node) const = 0;
  /// The part of a linear loss's own scratch that comes before that of its matmuls.
  virtual int64_t bytesBeforeMatmuls(const Node &linearLoss) const = 0;
  /// Why the target's libraries cannot run the node; nullopt if they can.
  virtual std::optional<std::string> unsupported(const Node &node) const = 0;
  /// Prints the chain `attributes` over the node's operands. The yielded values are the node's results.
  virtual void emitLoops(SectionWriter &writer, const Node &node, const FusedAttributes &attributes) const = 0;
  /// Returns whether streams wait for each other by events that the program records and awaits.
  virtual bool hasEvents() const = 0;
  /// Returns whether nodes `on(host)` are called like all other nodes.
  virtual bool hostIsDevice() const = 0;

  /// The file with the functions, its includes, and the declarations before the program's own names.
  virtual llvm::StringRef programFile() const = 0;
  virtual std::string includes(const ProgramText &program) const = 0;
  virtual std::string declarations(const ProgramText &program) const = 0;
  /// Files in addition to the program and its tables: constants, generated kernels.
  virtual std::vector<EmittedFile> moreFiles(const ProgramText &program) const = 0;
  /// Sentences of the program's first comment that say where values are stored.
  virtual llvm::StringRef addressComment() const = 0;
  /// Precedes each variable of the program.
  virtual llvm::StringRef variablePrefix() const = 0;
  /// First lines of start().
  virtual std::string startText(const ProgramText &program) const = 0;
};

} // namespace fsdpc
