// Convolution and pooling.
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"
#include <algorithm>

namespace fsdpc {

namespace {

/// Where a window goes, per spatial axis.
struct WindowAttributes {
  Shape kernel, strides, dilations, padsBefore, padsAfter;
};

Shape perAxis(NodeTranslation &t, llvm::StringRef name, size_t axes) {
  Shape values = t.has(name) ? t.integers(name) : Shape(axes, 1);
  if (values.size() != axes)
    t.reject(name + " has " + llvm::Twine(values.size()) + " entries for " + llvm::Twine(axes) + " spatial axes");
  return values;
}

/// Pads as listed, or as auto_pad makes them from the input's size.
WindowAttributes windowOf(NodeTranslation &t, llvm::ArrayRef<int64_t> kernel) {
  llvm::ArrayRef<int64_t> spatial = t.input(0)->type().shape().drop_front(2);
  size_t axes = kernel.size();
  if (spatial.size() != axes)
    t.reject("a kernel of " + llvm::Twine(axes) + " spatial axes for " + toString(t.input(0)->type()));
  WindowAttributes w{Shape(kernel), perAxis(t, "strides", axes), perAxis(t, "dilations", axes), Shape(axes, 0),
                     Shape(axes, 0)};
  for (size_t i = 0; i < axes; ++i)
    if (w.strides[i] < 1 || w.dilations[i] < 1 || kernel[i] < 1)
      t.reject("kernel, strides and dilations must be positive");
  std::string mode = t.text("auto_pad", "NOTSET");
  if (mode == "NOTSET" && t.has("pads")) {
    Shape pads = t.integers("pads");
    if (pads.size() != 2 * axes)
      t.reject(llvm::Twine(pads.size()) + " pads for " + llvm::Twine(axes) + " spatial axes");
    w.padsBefore.assign(pads.begin(), pads.begin() + axes);
    w.padsAfter.assign(pads.begin() + axes, pads.end());
  } else if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
    for (size_t i = 0; i < axes; ++i) {
      int64_t outputs = (spatial[i] + w.strides[i] - 1) / w.strides[i];
      int64_t extent = w.dilations[i] * (kernel[i] - 1) + 1;
      int64_t total = std::max<int64_t>(0, (outputs - 1) * w.strides[i] + extent - spatial[i]);
      w.padsBefore[i] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
      w.padsAfter[i] = total - w.padsBefore[i];
    }
  } else if (mode != "NOTSET" && mode != "VALID") {
    t.reject("auto_pad='" + mode + "' is not supported");
  }
  return w;
}

void convolution(NodeTranslation &t) {
  Value *x = t.input(0), *w = t.input(1);
  if (x->type().rank() < 3 || w->type().rank() != x->type().rank())
    t.reject(toString(x->type()) + " and " + toString(w->type()) + " are no input and weight of a convolution");
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

/// The convolution that takes y back to x, run the other way: w is [C, M/group, kernel...], as that convolution has it.
void transposedConvolution(NodeTranslation &t) {
  Value *x = t.input(0), *w = t.input(1);
  int64_t rank = x->type().rank();
  if (rank < 3 || w->type().rank() != rank)
    t.reject(toString(x->type()) + " and " + toString(w->type()) + " are no input and weight of a convolution");
  if (t.has("output_shape") || llvm::StringRef(t.text("auto_pad", "NOTSET")).starts_with("SAME"))
    t.reject("output_shape and auto_pad are not supported");
  WindowAttributes window = windowOf(t, w->type().shape().drop_front(2));
  Shape extra = t.has("output_padding") ? t.integers("output_padding") : Shape(rank - 2, 0);
  ConvolutionAttributes attributes;
  attributes.groups = t.integer("group", 1);
  attributes.shape = {x->type().dim(0), w->type().dim(1) * attributes.groups};
  if (static_cast<int64_t>(extra.size()) != rank - 2)
    t.reject(llvm::Twine(extra.size()) + " entries of output_padding for " + llvm::Twine(rank - 2) + " spatial axes");
  for (int64_t i = 0; i < rank - 2; ++i) {
    int64_t extent = window.dilations[i] * (window.kernel[i] - 1) + 1;
    attributes.shape.push_back((x->type().dim(i + 2) - 1) * window.strides[i] + extent + extra[i] -
                               window.padsBefore[i] - window.padsAfter[i]);
    if (extra[i] < 0 || attributes.shape.back() < 1)
      t.reject("the result has no elements");
    // The window that output_padding adds room for must not become one more step.
    if (extra[i] >= window.strides[i])
      t.reject("output_padding must be below the stride");
  }
  attributes.strides = window.strides;
  attributes.dilations = window.dilations;
  attributes.padsBefore = window.padsBefore;
  attributes.padsAfter = window.padsAfter;
  Shape perChannel(rank, 1);
  perChannel[1] = attributes.shape[1];
  Value *y = t.make(Op::convolutionGradInput, {x, w}, std::move(attributes));
  t.setOutput(0, t.hasInput(2) ? t.binary(Op::add, y, t.reshape(t.input(2), perChannel)) : y);
}

/// ceil_mode rounds the number of windows up, but a window that would start in the padding behind the input is left
/// out. Returns how many elements the last windows reach beyond the padded input.
Shape reachOfCeilMode(const WindowAttributes &w, llvm::ArrayRef<int64_t> spatial) {
  Shape reach(spatial.size(), 0);
  for (size_t i = 0; i < spatial.size(); ++i) {
    int64_t extent = w.dilations[i] * (w.kernel[i] - 1) + 1;
    int64_t padded = spatial[i] + w.padsBefore[i] + w.padsAfter[i];
    if (padded < extent)
      continue;
    int64_t windows = (padded - extent + w.strides[i] - 1) / w.strides[i] + 1;
    if ((windows - 1) * w.strides[i] >= spatial[i] + w.padsBefore[i])
      --windows;
    reach[i] = std::max<int64_t>(0, (windows - 1) * w.strides[i] + extent - padded);
  }
  return reach;
}

PoolAttributes poolOf(NodeTranslation &t) {
  if (t.input(0)->type().rank() < 3)
    t.reject(toString(t.input(0)->type()) + " has no spatial axes");
  WindowAttributes window = windowOf(t, t.integers("kernel_shape"));
  PoolAttributes attributes;
  attributes.countIncludePad = t.integer("count_include_pad", 0) != 0;
  if (t.integer("ceil_mode", 0) != 0) {
    Shape reach = reachOfCeilMode(window, t.input(0)->type().shape().drop_front(2));
    for (size_t i = 0; i < reach.size(); ++i) {
      if (reach[i] > 0 && attributes.countIncludePad)
        t.reject("ceil_mode with count_include_pad is not supported where windows reach beyond the padding");
      window.padsAfter[i] += reach[i];
    }
  }
  attributes.kernel = window.kernel;
  attributes.strides = window.strides;
  attributes.dilations = window.dilations;
  attributes.padsBefore = window.padsBefore;
  attributes.padsAfter = window.padsAfter;
  return attributes;
}

void maxPool(NodeTranslation &t) {
  t.refuseOutput(1);
  t.setOutput(0, t.makeNode(Op::maxPool, {t.input(0)}, poolOf(t))->result(0));
}

void averagePool(NodeTranslation &t) { t.setOutput(0, t.make(Op::averagePool, {t.input(0)}, poolOf(t))); }

Shape spatialAxes(NodeTranslation &t) {
  Shape axes = allAxes(t.input(0)->type().rank());
  if (axes.size() < 3)
    t.reject(toString(t.input(0)->type()) + " has no spatial axes");
  axes.erase(axes.begin(), axes.begin() + 2);
  return axes;
}

void globalAveragePool(NodeTranslation &t) { t.setOutput(0, t.mean(t.input(0), spatialAxes(t), true)); }
void globalMaxPool(NodeTranslation &t) { t.setOutput(0, t.reduce(Op::reduceMax, t.input(0), spatialAxes(t), true)); }

constexpr TranslationRow rows[] = {
    {"AveragePool", averagePool},
    {"Conv", convolution},
    {"ConvTranspose", transposedConvolution},
    {"GlobalAveragePool", globalAveragePool},
    {"GlobalMaxPool", globalMaxPool},
    {"MaxPool", maxPool},
};

} // namespace

TranslationRows convolutionTranslations() { return rows; }

} // namespace fsdpc
