// Convolution, its transpose, and Col2Im, which is the transpose of a convolution that only copies.
#include "frontend/onnx/translate/table.h"
#include "frontend/onnx/translate/window.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>

namespace fsdpc {

namespace {

Shape perAxis(NodeTranslation &t, llvm::StringRef name, size_t axes) {
  Shape values = t.has(name) ? t.integers(name) : Shape(axes, 1);
  if (values.size() != axes)
    t.reject(name + " has " + llvm::Twine(values.size()) + " entries for " + llvm::Twine(axes) + " spatial axes");
  return values;
}

void checkWithin(NodeTranslation &t, llvm::ArrayRef<int64_t> values, int64_t least, llvm::StringRef what) {
  for (int64_t value : values)
    if (value < least || value >= windowLimit)
      t.reject(what + " of " + llvm::Twine(value) + ": it must be at least " + llvm::Twine(least) + " and below 2^31");
}

/// Sets the pads that yield ceil(dim / stride) windows.
void padToSame(WindowAttributes &w, llvm::ArrayRef<int64_t> spatial, bool isUpper) {
  for (size_t i = 0; i < spatial.size(); ++i) {
    int64_t outputs = (spatial[i] + w.strides[i] - 1) / w.strides[i];
    int64_t total = std::max<int64_t>(0, (outputs - 1) * w.strides[i] + w.extent(i) - spatial[i]);
    w.padsBefore[i] = isUpper ? total / 2 : total - total / 2;
    w.padsAfter[i] = total - w.padsBefore[i];
  }
}

void convolution(NodeTranslation &t) {
  Value *x = t.input(0), *w = t.input(1);
  if (x->type().rank() < 3 || w->type().rank() != x->type().rank())
    t.reject(toString(x->type()) + " and " + toString(w->type()) +
             " are not a valid input and weight of a convolution");
  llvm::ArrayRef<int64_t> kernel = w->type().shape().drop_front(2);
  if (t.has("kernel_shape") && t.integers("kernel_shape") != Shape(kernel))
    t.reject("kernel_shape differs from the weight's " + toString(w->type()));
  WindowAttributes window = windowOf(t, kernel);
  ConvolutionAttributes attributes;
  attributes.strides = window.strides;
  attributes.dilations = window.dilations;
  attributes.padsBefore = window.padsBefore;
  attributes.padsAfter = window.padsAfter;
  attributes.groups = t.integer("group", 1);
  llvm::SmallVector<Value *, 3> operands = {x, w};
  if (t.hasInput(2))
    operands.push_back(t.input(2));
  t.setOutput(0, t.make(Op::convolution, operands, std::move(attributes)));
}

/// The result of a transposed convolution on one axis: `computed` elements of convolution_grad_input, which has at most
/// stride - 1 elements after the last window, and `zeros` that no window reaches.
struct TransposedAxis {
  int64_t computed, zeros;
};

/// Splits the elements that the windows cover beyond `wanted` into pads.
void padTo(WindowAttributes &w, size_t axis, int64_t covered, int64_t wanted, bool isUpper) {
  int64_t total = std::max<int64_t>(0, covered - wanted);
  w.padsBefore[axis] = isUpper ? total / 2 : total - total / 2;
  w.padsAfter[axis] = total - w.padsBefore[axis];
}

std::vector<TransposedAxis> transposedAxes(NodeTranslation &t, WindowAttributes &w) {
  llvm::ArrayRef<int64_t> spatial = t.input(0)->type().shape().drop_front(2);
  size_t axes = spatial.size();
  std::string mode = t.text("auto_pad", "NOTSET");
  bool isSame = llvm::StringRef(mode).starts_with("SAME");
  Shape extra = t.has("output_padding") ? t.integers("output_padding") : Shape(axes, 0);
  Shape wanted = t.integers("output_shape");
  if (extra.size() != axes || (!wanted.empty() && wanted.size() != axes))
    t.reject("output_padding or output_shape does not have " + llvm::Twine(axes) + " entries");
  checkWithin(t, extra, 0, "output_padding");
  checkWithin(t, wanted, 1, "output_shape");
  std::vector<TransposedAxis> result;
  for (size_t i = 0; i < axes; ++i) {
    int64_t covered = (spatial[i] - 1) * w.strides[i] + w.extent(i);
    if (!wanted.empty() || isSame)
      padTo(w, i, covered + extra[i], wanted.empty() ? spatial[i] * w.strides[i] : wanted[i], mode == "SAME_UPPER");
    int64_t computed = covered - w.padsBefore[i] - w.padsAfter[i];
    int64_t size = !wanted.empty() ? wanted[i] : isSame ? spatial[i] * w.strides[i] : computed + extra[i];
    if (computed < 1 || size < computed)
      t.reject("axis " + llvm::Twine(i + 2) + " of the result would have " + llvm::Twine(size) + " elements, " +
               llvm::Twine(computed) + " of them from the windows");
    bool isShort = size - computed < w.strides[i];
    result.push_back(isShort ? TransposedAxis{size, 0} : TransposedAxis{computed, size - computed});
  }
  return result;
}

/// y padded with zeros at the end.
Value *withZeros(NodeTranslation &t, Value *y, llvm::ArrayRef<TransposedAxis> axes) {
  PadAttributes pad;
  for (Shape *field : {&pad.before, &pad.after, &pad.interior})
    field->assign(y->type().rank(), 0);
  for (size_t i = 0; i < axes.size(); ++i)
    pad.after[i + 2] = axes[i].zeros;
  bool adds = llvm::any_of(axes, [](const TransposedAxis &axis) { return axis.zeros > 0; });
  return adds ? t.make(Op::pad, {y}, std::move(pad)) : y;
}

/// The transpose of the convolution that maps y to x. w is [C, M/group, kernel...], as in that convolution.
void transposedConvolution(NodeTranslation &t) {
  Value *x = t.input(0), *w = t.input(1);
  int64_t rank = x->type().rank();
  if (rank < 3 || w->type().rank() != rank)
    t.reject(toString(x->type()) + " and " + toString(w->type()) +
             " are not a valid input and weight of a convolution");
  WindowAttributes window = windowOf(t, w->type().shape().drop_front(2));
  std::vector<TransposedAxis> axes = transposedAxes(t, window);
  ConvolutionAttributes attributes;
  attributes.groups = t.integer("group", 1);
  int64_t channels;
  if (llvm::MulOverflow(w->type().dim(1), attributes.groups, channels))
    t.reject(llvm::Twine(attributes.groups) + " groups are too many");
  attributes.shape = {x->type().dim(0), channels};
  for (const TransposedAxis &axis : axes)
    attributes.shape.push_back(axis.computed);
  attributes.strides = window.strides;
  attributes.dilations = window.dilations;
  attributes.padsBefore = window.padsBefore;
  attributes.padsAfter = window.padsAfter;
  Shape perChannel(rank, 1);
  perChannel[1] = channels;
  Value *y = withZeros(t, t.make(Op::convolutionGradInput, {x, w}, std::move(attributes)), axes);
  t.setOutput(0, t.hasInput(2) ? t.binary(Op::add, y, t.reshape(t.input(2), perChannel)) : y);
}

/// One axis of the image that Col2Im adds blocks to: `windows` of them, `stride` apart.
struct ImageAxis {
  int64_t image, block, stride, dilation, padBefore, padAfter, windows;
};

// Overlapping blocks are summed per element of the block.
constexpr int64_t largestBlock = 1024;

std::vector<ImageAxis> imageAxes(NodeTranslation &t) {
  Shape image = t.constantIntegers(1, "the image's shape"), block = t.constantIntegers(2, "the block's shape");
  size_t axes = image.size();
  Shape strides = perAxis(t, "strides", axes), dilations = perAxis(t, "dilations", axes);
  Shape pads = t.has("pads") ? t.integers("pads") : Shape(2 * axes, 0);
  if (axes < 1 || block.size() != axes || pads.size() != 2 * axes)
    t.reject("image and block need the same number of axes, and pads twice as many entries");
  checkWithin(t, image, 1, "an image");
  checkWithin(t, block, 1, "a block");
  checkWithin(t, strides, 1, "a stride");
  checkWithin(t, dilations, 1, "a dilation");
  checkWithin(t, pads, 0, "a pad");
  std::vector<ImageAxis> result;
  for (size_t i = 0; i < axes; ++i) {
    int64_t room = image[i] + pads[i] + pads[axes + i] - dilations[i] * (block[i] - 1) - 1;
    if (room < 0)
      t.reject("a block does not fit into axis " + llvm::Twine(i) + " of the image");
    result.push_back({image[i], block[i], strides[i], dilations[i], pads[i], pads[axes + i], room / strides[i] + 1});
  }
  return result;
}

/// Elements [first, first + size) of an axis, with zeros after its end.
Value *window(NodeTranslation &t, Value *x, int64_t axis, int64_t first, int64_t size) {
  int64_t inside = std::clamp<int64_t>(x->type().dim(axis) - first, 0, size);
  PadAttributes pad;
  for (Shape *field : {&pad.before, &pad.after, &pad.interior})
    field->assign(x->type().rank(), 0);
  pad.after[axis] = size - inside;
  Value *part = t.slice(x, axis, inside ? first : 0, inside);
  return inside == size ? part : t.make(Op::pad, {part}, std::move(pad));
}

/// Scatters every element of the block to its positions, `stride` apart. Overlapping blocks are summed.
Value *addedBlocks(NodeTranslation &t, Value *x, const ImageAxis &a, int64_t at) {
  if (a.block > largestBlock)
    t.reject("blocks of more than " + llvm::Twine(largestBlock) + " elements on an axis that overlap or have gaps");
  Value *sum = nullptr;
  for (int64_t k = 0; k < a.block; ++k) {
    Value *taken = t.slice(x, 2, k, 1);
    Shape shape(taken->type().shape());
    shape.erase(shape.begin() + 2);
    PadAttributes pad;
    for (Shape *field : {&pad.before, &pad.after, &pad.interior})
      field->assign(shape.size(), 0);
    pad.before[at] = k * a.dilation;
    pad.interior[at] = a.stride - 1;
    pad.after[at] = (a.block - 1 - k) * a.dilation;
    Value *placed = t.make(Op::pad, {t.reshape(taken, shape)}, std::move(pad));
    sum = sum ? t.binary(Op::add, sum, placed) : placed;
  }
  return sum;
}

/// x [N, C, block, ..., windows, ...], windows being axis at + 1: [N, C, ..., image, ...].
Value *foldedAxis(NodeTranslation &t, Value *x, const ImageAxis &a, int64_t at) {
  bool isTiled = a.stride == a.block && a.dilation == 1;
  if (!isTiled)
    return window(t, addedBlocks(t, x, a, at), at, a.padBefore, a.image);
  Value *tiles = t.moveAxis(x, 2, at + 1);
  Shape shape(tiles->type().shape());
  shape.erase(shape.begin() + at + 1);
  shape[at] = a.windows * a.block;
  return window(t, t.reshape(tiles, shape), at, a.padBefore, a.image);
}

/// The transpose of taking blocks out of an image, one axis at a time.
void columnsToImage(NodeTranslation &t) {
  Value *x = t.input(0);
  const Type &type = x->type();
  std::vector<ImageAxis> axes = imageAxes(t);
  Shape blocks, windows;
  for (const ImageAxis &axis : axes) {
    blocks.push_back(axis.block);
    windows.push_back(axis.windows);
  }
  std::optional<int64_t> blockElements = checkedElements(blocks), count = checkedElements(windows);
  if (type.rank() != 3 || !blockElements || type.dim(1) % *blockElements != 0 || count != type.dim(2))
    t.reject(toString(type) + " does not hold the blocks of such an image");
  Shape shape = {type.dim(0), type.dim(1) / *blockElements};
  shape.append(blocks.begin(), blocks.end());
  shape.append(windows.begin(), windows.end());
  Value *y = t.reshape(x, shape);
  for (const ImageAxis &axis : axes)
    y = foldedAxis(t, y, axis, static_cast<int64_t>(axes.size()) + 1);
  t.setOutput(0, y);
}

constexpr TranslationRow rows[] = {
    {"Col2Im", columnsToImage}, {"Conv", convolution}, {"ConvTranspose", transposedConvolution}};

} // namespace

WindowAttributes windowOf(NodeTranslation &t, llvm::ArrayRef<int64_t> kernel) {
  llvm::ArrayRef<int64_t> spatial = t.input(0)->type().shape().drop_front(2);
  size_t axes = kernel.size();
  if (spatial.size() != axes)
    t.reject("a kernel of " + llvm::Twine(axes) + " spatial axes for " + toString(t.input(0)->type()));
  WindowAttributes w{Shape(kernel), perAxis(t, "strides", axes), perAxis(t, "dilations", axes), Shape(axes, 0),
                     Shape(axes, 0)};
  checkWithin(t, w.kernel, 1, "a kernel");
  checkWithin(t, w.strides, 1, "a stride");
  checkWithin(t, w.dilations, 1, "a dilation");
  checkWithin(t, spatial, 0, "a spatial axis");
  std::string mode = t.text("auto_pad", "NOTSET");
  if (mode == "NOTSET" && t.has("pads")) {
    Shape pads = t.integers("pads");
    if (pads.size() != 2 * axes)
      t.reject(llvm::Twine(pads.size()) + " pads for " + llvm::Twine(axes) + " spatial axes");
    checkWithin(t, pads, 0, "a pad");
    w.padsBefore.assign(pads.begin(), pads.begin() + axes);
    w.padsAfter.assign(pads.begin() + axes, pads.end());
  } else if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
    padToSame(w, spatial, mode == "SAME_UPPER");
  } else if (mode != "NOTSET" && mode != "VALID") {
    t.reject("auto_pad='" + mode + "' is not supported");
  }
  return w;
}

TranslationRows convolutionTranslations() { return rows; }

} // namespace fsdpc
