#include "runtime/checkpoint_tool/commands.h"
#include "runtime/common/json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace fsdpc::rt {
namespace {

struct Difference {
  std::int64_t elements = 0; ///< whose bits differ
  double largest = 0;        ///< absolute
  std::int64_t at = 0;       ///< the element of `largest`
};

Difference compare(CheckpointReader &a, const ManifestTensor &first, CheckpointReader &b,
                   const ManifestTensor &second) {
  Difference result;
  const std::int64_t width = byteSize(first.type);
  std::vector<std::byte> other;
  const std::optional<DType> dtype = dtypeOf(first.type);
  forEachBlock(a, first, [&](std::int64_t begin, std::int64_t bytes, const std::byte *data) {
    other.resize(static_cast<std::size_t>(bytes));
    b.readStored(second, begin, bytes / width, other.data());
    if (std::memcmp(data, other.data(), static_cast<std::size_t>(bytes)) == 0)
      return;
    for (std::int64_t i = 0; i < bytes / width; ++i) {
      if (std::memcmp(data + i * width, other.data() + i * width, static_cast<std::size_t>(width)) == 0)
        continue;
      ++result.elements;
      const bool isFloating = dtype && isFloat(*dtype);
      const double apart = !dtype       ? 0
                           : isFloating ? std::abs(loadFloat(*dtype, data, i) - loadFloat(*dtype, other.data(), i))
                                        : std::abs(static_cast<double>(loadInteger(*dtype, data, i)) -
                                                   static_cast<double>(loadInteger(*dtype, other.data(), i)));
      if (!(apart <= result.largest)) {
        result.largest = apart;
        result.at = begin + i;
      }
    }
  });
  return result;
}

} // namespace

bool printDifferences(const std::string &a, const std::string &b) {
  CheckpointReader first(checkpointAt(a)), second(checkpointAt(b));
  std::int64_t differing = 0;
  const auto say = [&](const std::string &line) {
    ++differing;
    std::printf("%s\n", line.c_str());
  };
  if (first.manifest().training.step != second.manifest().training.step)
    std::printf("steps %lld and %lld\n", static_cast<long long>(first.manifest().training.step),
                static_cast<long long>(second.manifest().training.step));
  for (const ManifestTensor &tensor : first.manifest().tensors) {
    const ManifestTensor *other = second.find(tensor.name);
    if (!other)
      say("only in the first: " + tensor.name + " " + dimsText(tensor.dims));
    else if (other->dims != tensor.dims || other->type != tensor.type)
      say(tensor.name + ": " + safetensorsName(tensor.type) + " " + dimsText(tensor.dims) + " and " +
          safetensorsName(other->type) + " " + dimsText(other->dims));
    else if (const Difference found = compare(first, tensor, second, *other); found.elements > 0)
      say(tensor.name + ": " + std::to_string(found.elements) + " of " + std::to_string(tensor.elements) +
          " elements differ, at most by " + jsonNumber(found.largest) + " (element " + std::to_string(found.at) + ")");
  }
  for (const ManifestTensor &tensor : second.manifest().tensors)
    if (!first.find(tensor.name))
      say("only in the second: " + tensor.name + " " + dimsText(tensor.dims));
  std::printf("%lld of %zu tensors differ\n", static_cast<long long>(differing), first.manifest().tensors.size());
  return differing == 0;
}

} // namespace fsdpc::rt
