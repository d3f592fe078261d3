// What the programs of two targets say differently. All else, the text of every statement that calls a kernel, is the
// same.
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
  /// Does the kernel of the node take its operands and results of 16-bit floats? If not, it gets f32 copies of them, in
  /// its scratch.
  virtual bool takesHalves(const Node &node) const = 0;
  /// Why the target's libraries cannot run the node; nullopt if they can.
  virtual std::optional<std::string> unsupported(const Node &node) const = 0;
  /// Prints `attributes` over the node's operands, results as yielded.
  virtual void emitLoops(SectionWriter &writer, const Node &node, const FusedAttributes &attributes) const = 0;
  /// Do streams wait for each other by events, which the program records and awaits?
  virtual bool hasEvents() const = 0;
  /// Is what runs `on(host)` called like everything else?
  virtual bool hostIsDevice() const = 0;

  /// The file of the functions, what it includes, and what stands before the program's own names.
  virtual llvm::StringRef programFile() const = 0;
  virtual std::string includes(const ProgramText &program) const = 0;
  virtual std::string declarations(const ProgramText &program) const = 0;
  /// Files beside the program and its tables: constants, generated kernels.
  virtual std::vector<EmittedFile> moreFiles(const ProgramText &program) const = 0;
  /// Sentences of the first comment, on where values lie.
  virtual llvm::StringRef addressComment() const = 0;
  /// Before each variable of the program.
  virtual llvm::StringRef variablePrefix() const = 0;
  /// First lines of start().
  virtual std::string startText(const ProgramText &program) const = 0;
};

} // namespace fsdpc
