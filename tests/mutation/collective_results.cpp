#include "tests/mutation/collective_results.h"

#include "llvm/ADT/SmallVector.h"

namespace fsdpc::mutation {

namespace {

double treeSum(llvm::ArrayRef<double> parts, DType dtype) {
  if (parts.size() == 1)
    return parts[0];
  size_t left = 1;
  while (left * 2 < parts.size())
    left *= 2;
  double sum = treeSum(parts.take_front(left), dtype) + treeSum(parts.drop_front(left), dtype);
  return dtype == DType::f32 ? static_cast<float>(sum) : sum;
}

} // namespace

Bytes gathered(const Operands &parts, int64_t shareBytes) {
  Bytes whole;
  for (const auto &[member, bytes] : parts)
    whole.insert(whole.end(), bytes.begin(), bytes.begin() + shareBytes);
  return whole;
}

Bytes hashOfSum(const Operands &parts, const Node &start, int64_t bytes, int64_t part) {
  uint64_t hash = static_cast<uint64_t>(start.op());
  for (const auto &[member, operand] : parts)
    hash = hashOf(hash, operand);
  return bytesFrom(hash + static_cast<uint64_t>(part), bytes);
}

Bytes sumOf(const Operands &parts, const Node &start, const Type &type, int64_t part) {
  std::vector<HostTensor> operands;
  for (const auto &[member, bytes] : parts)
    operands.push_back(Rank::decode(start.operand(0)->type(), bytes));
  HostTensor result(type);
  for (int64_t i = 0; i < type.elements(); ++i) {
    llvm::SmallVector<double, 8> addends;
    for (const HostTensor &operand : operands)
      addends.push_back(operand.values[part * type.elements() + i]);
    result.values[i] = treeSum(addends, type.dtype());
  }
  return Rank::encode(result);
}

} // namespace fsdpc::mutation
