#include "frontend/onnx/graph_index.h"

#include "frontend/onnx/metadata.h"
#include <algorithm>

namespace fsdpc {

namespace {

/// A value that is an initializer, renamed or transposed.
struct Alias {
  int initializer = 0;
  std::string identity;
  Shape permutation;
};

bool isTranspose(const onnx::NodeProto &node) { return domainOf(node).empty() && node.op_type() == "Transpose"; }
bool isIdentity(const onnx::NodeProto &node) { return domainOf(node).empty() && node.op_type() == "Identity"; }

/// The permutation of the initializer after one more Transpose.
Shape composed(const Shape &before, const onnx::NodeProto &node, int64_t rank) {
  Shape result;
  const onnx::AttributeProto *permutation = attributeOf(node, "perm");
  for (int64_t i = 0; i < rank; ++i) {
    int64_t from = permutation ? permutation->ints(static_cast<int>(i)) : rank - 1 - i;
    result.push_back(before.empty() ? from : before[from]);
  }
  return std::is_sorted(result.begin(), result.end()) ? Shape() : result;
}

bool isValidTranspose(const onnx::NodeProto &node, int64_t rank) {
  const onnx::AttributeProto *permutation = attributeOf(node, "perm");
  if (!permutation)
    return true;
  std::vector<int64_t> sorted(permutation->ints().begin(), permutation->ints().end());
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != static_cast<int64_t>(i))
      return false;
  return static_cast<int64_t>(sorted.size()) == rank;
}

} // namespace

GraphIndex::GraphIndex(const onnx::GraphProto &graph) : graph(graph), scopes(moduleScopes(graph)) {
  for (int i = 0; i < graph.initializer_size(); ++i)
    initializers[graph.initializer(i).name()] = i;
  for (int i = 0; i < graph.node_size(); ++i) {
    for (int k = 0; k < graph.node(i).input_size(); ++k)
      if (!graph.node(i).input(k).empty())
        consumersOf[graph.node(i).input(k)].push_back({i, k});
    for (const std::string &output : graph.node(i).output())
      if (!output.empty())
        producers[output] = i;
  }
  followAliases();
}

void GraphIndex::followAliases() {
  reads.resize(graph.initializer_size());
  llvm::StringMap<Alias> aliases;
  for (int i = 0; i < graph.initializer_size(); ++i)
    aliases[graph.initializer(i).name()].initializer = i;
  for (int i = 0; i < graph.node_size(); ++i) {
    const onnx::NodeProto &node = graph.node(i);
    for (int k = 0; k < node.input_size(); ++k) {
      auto found = aliases.find(node.input(k));
      if (found == aliases.end())
        continue;
      Alias alias = found->second;
      int64_t rank = graph.initializer(alias.initializer).dims_size();
      bool passes = k == 0 && node.output_size() == 1 &&
                    (isIdentity(node) || (isTranspose(node) && isValidTranspose(node, rank)));
      if (!passes) {
        reads[alias.initializer].push_back({i, k, node.input(k), alias.identity, alias.permutation});
        continue;
      }
      if (isIdentity(node))
        alias.identity = node.output(0);
      if (isTranspose(node))
        alias.permutation = composed(alias.permutation, node, rank);
      aliases[node.output(0)] = std::move(alias);
    }
  }
}

int GraphIndex::initializerPosition(llvm::StringRef name) const {
  auto found = initializers.find(name);
  return found == initializers.end() ? -1 : found->second;
}

const onnx::TensorProto *GraphIndex::initializer(llvm::StringRef name) const {
  int position = initializerPosition(name);
  return position < 0 ? nullptr : &graph.initializer(position);
}

llvm::ArrayRef<InitializerRead> GraphIndex::readsOf(llvm::StringRef initializer) const {
  int position = initializerPosition(initializer);
  return position < 0 ? llvm::ArrayRef<InitializerRead>() : llvm::ArrayRef<InitializerRead>(reads[position]);
}

int GraphIndex::producerPosition(llvm::StringRef value) const {
  auto found = producers.find(value);
  return found == producers.end() ? -1 : found->second;
}

const onnx::NodeProto *GraphIndex::producer(llvm::StringRef value) const {
  int position = producerPosition(value);
  return position < 0 ? nullptr : &graph.node(position);
}

llvm::ArrayRef<Read> GraphIndex::consumers(llvm::StringRef value) const {
  auto found = consumersOf.find(value);
  return found == consumersOf.end() ? llvm::ArrayRef<Read>() : llvm::ArrayRef<Read>(found->second);
}

std::vector<int> GraphIndex::initializersByFirstRead() const {
  std::vector<int> order(graph.initializer_size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = static_cast<int>(i);
  auto first = [&](int i) {
    return reads[i].empty() ? std::pair(graph.node_size(), 0)
                            : std::pair(reads[i].front().node, reads[i].front().input);
  };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return first(a) < first(b); });
  return order;
}

} // namespace fsdpc
