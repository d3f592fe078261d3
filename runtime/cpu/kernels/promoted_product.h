// A product of 16-bit operands as the product of f32 copies of them, in the scratch of the node.
#pragma once

#include "runtime/common/kernel_shapes.h"
#include "runtime/cpu/kernels/copy.h"
#include "runtime/cpu/kernels/scratch_sizes.h"

namespace fsdpc::rt {

/// What a matmul or a convolution reads and writes. `bias` may be null.
struct ProductTensors {
  const void *a, *b, *bias;
  void *out;
};

class PromotedProduct {
public:
  /// Numbers of elements, and their types: those of a bias are the result's.
  struct Sizes {
    std::int64_t a = 0, b = 0, bias = 0, out = 0;
    DType elements = DType::f32, result = DType::f32;
  };

  PromotedProduct() = default; ///< of f32 operands: nothing is copied
  explicit PromotedProduct(const Sizes &sizes)
      : sizes(sizes), places(sizes.a, sizes.b, sizes.bias, sizes.out, sizes.result != DType::f32) {}

  bool copies() const { return sizes.elements != DType::f32; }
  std::int64_t bytes() const { return places.end; }

  /// Calls product(tensors in f32, the rest of the workspace).
  template <class Product>
  void run(const Context &c, const ProductTensors &given, Workspace workspace, const Product &product) const {
    if (!copies())
      product(given, workspace);
    else if (sizes.elements == DType::bf16)
      runAs<Bfloat16>(c, given, workspace, product);
    else
      runAs<Float16>(c, given, workspace, product);
  }

private:
  template <class Half, class Product>
  void runAs(const Context &c, const ProductTensors &given, Workspace workspace, const Product &product) const {
    const auto at = [&](std::int64_t offsetBytes) { return reinterpret_cast<float *>(workspace.data + offsetBytes); };
    const auto copied = [&](const void *from, std::int64_t offsetBytes, std::int64_t elements) {
      return promoted(c, static_cast<const Half *>(from), at(offsetBytes), elements);
    };
    const bool isResultHalf = sizes.result != DType::f32;
    ProductTensors copy = given;
    copy.a = copied(given.a, places.a, sizes.a);
    copy.b = copied(given.b, places.b, sizes.b);
    if (isResultHalf && given.bias)
      copy.bias = copied(given.bias, places.bias, sizes.bias);
    if (isResultHalf)
      copy.out = at(places.out);
    product(copy, Workspace{workspace.data + places.end, workspace.bytes - places.end});
    if (isResultHalf)
      narrow(c, at(places.out), static_cast<Half *>(given.out), sizes.out);
  }

  Sizes sizes;
  scratch_sizes::ProductCopies places;
};

} // namespace fsdpc::rt
