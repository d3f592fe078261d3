// Shared by the sections of one program: numbered primitives, constants, collectives and parameters.
#pragma once

#include "codegen/common/dialect.h"
#include "codegen/emit.h"
#include "ir/attributes.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"

namespace fsdpc {

/// A library primitive that start() creates: `Matmul matmul0;` and `matmul0.create(c, {...}, 640);`.
struct PrimitiveText {
  std::string type, name, create;
};

class ProgramText {
public:
  ProgramText(const Module &module, const EmitInfo &info, const Dialect &dialect);

  const Module &module;
  const EmitInfo &info;
  const Dialect &dialect;

  /// The name of the primitive that `create` (the arguments of its create call after `c, `) makes. Equal primitives are
  /// created once.
  std::string primitive(llvm::StringRef type, llvm::StringRef stem, const std::string &create);
  /// The name of the kernel that `text` defines: `stem` and, if needed, a number. \x01 stands for the name in `text`.
  /// Equal kernels are defined once.
  std::string kernel(llvm::StringRef stem, const std::string &text);
  /// The name of the table that holds these elements. Equal tables are defined once.
  std::string constantTable(const Dense &dense);
  /// The index in `indexNodes` of a node whose indices address axes of these sizes. Equal entries are stored once.
  int indexNode(const Node &node, llvm::ArrayRef<int64_t> axes);
  /// Index of a started collective in the side table. `start` is the node that makes the future.
  int collectiveOf(const Node &start) const { return collectiveIndex.lookup(&start); }
  /// Index of a started copy, and of a node that the host computes.
  int copyOf(const Node &start) const { return copyIndex.lookup(&start); }
  int hostTaskOf(const Node &node) const { return hostTaskIndex.lookup(&node); }
  int copyCount() const { return static_cast<int>(copyIndex.size()); }
  int hostTaskCount() const { return static_cast<int>(hostTaskIndex.size()); }
  /// The start of a future, which may be in another function, of this step or of the previous one. Null if there is
  /// none.
  const Node *startOf(const Value *future) const;
  /// Index of a mesh axis in the side table, -1 for the empty name: no axis.
  int axisOf(llvm::StringRef name) const;
  /// Index of a segment in the side table. Requires that the table has it.
  int segmentOf(llvm::StringRef name) const { return segmentIndex.find(name)->second; }
  /// Index of a parameter in the side table, -1 if it has no place in any segment.
  int parameterOf(llvm::StringRef name) const;

  llvm::ArrayRef<PrimitiveText> primitives() const { return primitiveTexts; }
  /// The generated kernels, in order of their first use.
  llvm::ArrayRef<std::string> kernels() const { return kernelTexts; }
  llvm::ArrayRef<Dense> constants() const { return constantValues; }
  /// Names and axes of nodes with indices, for messages.
  struct IndexNode {
    std::string name;
    Shape axes;
  };
  llvm::ArrayRef<IndexNode> indexNodes() const { return indexNodeTexts; }
  int eventCount() const { return events; }
  /// Returns whether the memory that the node frees is poisoned.
  bool poisons(const Node &free) const { return poisonedFrees.contains(&free); }
  llvm::ArrayRef<const Node *> collectives() const { return collectiveNodes; }
  /// The parameters of the side table, and where each is stored.
  struct PlacedParameter {
    const Parameter *parameter;
    int segment;
    int64_t offsetElements;
  };
  llvm::ArrayRef<PlacedParameter> parameters() const { return placedParameters; }
  /// Segments, then replicas.
  llvm::ArrayRef<const State *> segments() const { return segmentStates; }
  /// The sections of the side table; the writer of the functions adds them in the order of their calls.
  struct PrintedSection {
    const Node *first, *last;
    std::vector<const Node *> named; ///< as in SectionText
  };
  std::vector<PrintedSection> sections;

private:
  void collectCollectives();
  void collectParameters();
  llvm::StringMap<std::string> primitiveByCreate;
  llvm::StringMap<int> primitiveStems;
  std::vector<PrimitiveText> primitiveTexts;
  llvm::StringMap<std::string> kernelByText;
  llvm::StringMap<int> kernelStems;
  std::vector<std::string> kernelTexts;
  llvm::StringMap<int> indexNodeByText;
  std::vector<IndexNode> indexNodeTexts;
  llvm::StringMap<std::string> constantByBytes;
  std::vector<Dense> constantValues;
  llvm::DenseMap<const Node *, int> collectiveIndex, copyIndex, hostTaskIndex;
  std::vector<const Node *> collectiveNodes;
  llvm::DenseSet<const Node *> poisonedFrees;
  int events = 0;
  llvm::StringMap<const Node *> startByResultName;
  llvm::StringMap<int> parameterIndex, segmentIndex;
  std::vector<PlacedParameter> placedParameters;
  std::vector<const State *> segmentStates;
};

/// The name of the model's node that the node comes from, else its op and its result.
std::string nameForMessages(const Node &node);

/// program_info.cpp
std::string programInfoText(const ProgramText &program);

} // namespace fsdpc
