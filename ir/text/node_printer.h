// A node as text, in three columns: its computation, its types, and its stream and places.
#pragma once

#include "ir/text/fields.h"
#include "ir/text/text.h"

namespace fsdpc::text {

struct NodeColumns {
  std::string code;  ///< %y = matmul %x, %w transpose_b after(%t) unit(@fc)
  std::string types; ///< f32[4,64]; empty if there are no results to show
  std::string plan;  ///< on(compute) at(private+0x40) work(256 private+0x80) from("node")
};

class NodePrinter {
public:
  explicit NodePrinter(const Module &module, ConstantStore *constants = nullptr)
      : module(module), constants(constants) {}
  NodeColumns columns(const Node &node, const ValueNames &names);
  /// @name of a unit. For an index outside the table, a name that no unit has.
  std::string unitName(int32_t unit) const;

private:
  struct Defaults {
    std::unique_ptr<AttributesBase> attributes;
    Fields fields;
  };
  const Defaults &defaultsOf(const Node &node);
  void writeAttributes(const Node &node, const ValueNames &names, llvm::raw_ostream &out);

  const Module &module;
  ConstantStore *const constants;
  llvm::DenseMap<const void *, Defaults> defaults; ///< by the attribute struct's typeId
};

/// The value itself if it is a word, else the value in quotes.
std::string wordOrString(llvm::StringRef value);
std::string quoted(llvm::StringRef value);
/// window+0x40, or `none` if a value has no place.
std::string placeText(const Place &place);
/// The text inside body(...) of a fused node over operands of these types.
std::string expressionText(const Expression &expression, llvm::ArrayRef<DType> operands);

} // namespace fsdpc::text
