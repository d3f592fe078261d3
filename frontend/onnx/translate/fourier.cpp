// Fourier transforms, as matmuls with matrices of cosines and sines; windows, and the weights of mel filters.
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>
#include <numbers>

namespace fsdpc {

namespace {

// 64 MiB of weights in f32: a complex transform of 2048 elements.
constexpr int64_t largestTable = int64_t(1) << 24;

/// One transform of `samples` input elements, padded with zeros to `length`, to `outputs` elements. Elements are
/// complex or real; the last axis holds their parts.
struct Transform {
  int64_t length, samples, inputParts, outputs, outputParts;
  bool inverse, fromHalf; ///< fromHalf: the input is one half of a symmetric spectrum
};

void checkTable(NodeTranslation &t, const Transform &f) {
  int64_t rows, columns, size;
  bool isLarge = llvm::MulOverflow(f.samples, f.inputParts, rows) ||
                 llvm::MulOverflow(f.outputs, f.outputParts, columns) || llvm::MulOverflow(rows, columns, size) ||
                 size > largestTable;
  if (f.length < 1 || f.samples < 1)
    t.reject("a transform of " + llvm::Twine(f.length) + " elements");
  if (isLarge)
    t.reject("a transform of " + llvm::Twine(f.length) + " elements would need more than " + llvm::Twine(largestTable) +
             " weights");
}

/// The weight of an element: in half of a symmetric spectrum, all elements but the ends also stand for their mirror
/// image.
double mirrored(const Transform &f, int64_t sample) {
  bool isEnd = sample == 0 || 2 * sample == f.length;
  return f.fromHalf && !isEnd ? 2 : 1;
}

/// Row-major [samples, inputParts, outputs, outputParts]: the contribution of each part of a sample to each part of an
/// output. Computes the sum of x[n] e^(-2 pi i k n / length); an inverse changes the sign and divides by length.
std::vector<double> tableOf(const Transform &f) {
  std::vector<double> table;
  table.reserve(f.samples * f.inputParts * f.outputs * f.outputParts);
  for (int64_t n = 0; n < f.samples; ++n)
    for (int64_t part = 0; part < f.inputParts; ++part)
      for (int64_t k = 0; k < f.outputs; ++k) {
        double turn = static_cast<double>(n * k % f.length) / static_cast<double>(f.length);
        double scale = f.inverse ? mirrored(f, n) / static_cast<double>(f.length) : 1;
        double c = scale * std::cos(2 * std::numbers::pi * turn), s = scale * std::sin(2 * std::numbers::pi * turn);
        s = f.inverse ? s : -s;
        // (c + i s) times 1 or i.
        table.push_back(part == 0 ? c : -s);
        if (f.outputParts == 2)
          table.push_back(part == 0 ? s : c);
      }
  return table;
}

int64_t partsOf(NodeTranslation &t, const Type &type) {
  int64_t parts = type.rank() < 2 ? 0 : type.dim(-1);
  if (parts != 1 && parts != 2)
    t.reject("the last axis of " + toString(type) + " must hold a real part, or a real and an imaginary one");
  if (!isFloat(type.dtype()))
    t.reject(toString(type) + " is not float");
  return parts;
}

/// The length of the transform. By default, all elements, or twice the half spectrum.
int64_t lengthOf(NodeTranslation &t, int64_t dim, bool fromHalf) {
  int64_t length = t.hasInput(1) ? t.constantInteger(1, "the length") : fromHalf ? 2 * (dim - 1) : dim;
  if (length < 1 || length > largestTable)
    t.reject("a transform of " + llvm::Twine(length) + " elements");
  return length;
}

int64_t signalAxis(NodeTranslation &t, int64_t rank) {
  bool isInput = t.opset >= 20;
  int64_t axis = !isInput ? t.integer("axis", 1) : t.hasInput(2) ? t.constantInteger(2, "the axis") : -2;
  axis = t.normalAxis(axis, rank);
  if (axis == rank - 1)
    t.reject("the last axis holds the parts of a number and cannot be transformed");
  return axis;
}

/// Moves the signal's axis next to the parts; both are one axis of a matmul.
void discreteFourier(NodeTranslation &t) {
  Value *x = t.input(0);
  int64_t rank = x->type().rank(), parts = partsOf(t, x->type()), axis = signalAxis(t, rank);
  bool inverse = t.integer("inverse", 0) != 0, onesided = t.integer("onesided", 0) != 0;
  bool fromHalf = inverse && onesided;
  int64_t dim = x->type().dim(axis), length = lengthOf(t, dim, fromHalf);
  int64_t half = length / 2 + 1, samples = std::min(dim, fromHalf ? half : length);
  Transform f{length, samples, parts, onesided && !inverse ? half : length, fromHalf ? 1 : 2, inverse, fromHalf};
  checkTable(t, f);
  Value *lines = t.moveAxis(t.slice(x, axis, 0, samples), axis, rank - 2);
  Shape shape(lines->type().shape().drop_back(2));
  Shape result = shape;
  shape.push_back(samples * parts);
  result.append({f.outputs, f.outputParts});
  DType dtype = x->type().dtype();
  Value *table =
      t.constant(Type(dtype, {samples * parts, f.outputs * f.outputParts}), Dense::fromDoubles(dtype, tableOf(f)));
  Value *y = t.make(Op::matmul, {t.reshape(lines, shape), table}, MatmulAttributes{});
  t.setOutput(0, t.moveAxis(t.reshape(y, result), rank - 2, axis));
}

int64_t frameLength(NodeTranslation &t, int64_t signal) {
  if (t.hasInput(3))
    return t.constantInteger(3, "the frame's length");
  return t.hasInput(2) ? t.input(2)->type().elements() : signal;
}

/// [outputs * outputParts, inputParts, samples]: the table as the weight of a convolution.
std::vector<double> filtersOf(const Transform &f) {
  std::vector<double> table = tableOf(f), filters(table.size());
  int64_t rows = f.samples * f.inputParts, columns = f.outputs * f.outputParts;
  for (int64_t n = 0; n < f.samples; ++n)
    for (int64_t part = 0; part < f.inputParts; ++part)
      for (int64_t k = 0; k < columns; ++k)
        filters[k * rows + part * f.samples + n] = table[(n * f.inputParts + part) * columns + k];
  return filters;
}

/// A convolution whose stride is the step between frames and whose filters are the windowed waves, so that no frame is
/// copied.
void shortTimeFourier(NodeTranslation &t) {
  Value *x = t.input(0);
  const Type &type = x->type();
  if (type.rank() != 3)
    t.reject(toString(type) + " is no signal [batch, length, parts]");
  int64_t parts = partsOf(t, type), length = frameLength(t, type.dim(1));
  int64_t step = t.constantInteger(1, "the step between frames");
  if (length < 1 || length > type.dim(1) || step < 1)
    t.reject("frames of " + llvm::Twine(length) + " elements every " + llvm::Twine(step) + " in " + toString(type));
  bool onesided = t.integer("onesided", 1) != 0;
  Transform f{length, length, parts, onesided ? length / 2 + 1 : length, 2, false, false};
  checkTable(t, f);
  Value *filters =
      t.constant(Type(type.dtype(), {f.outputs * 2, parts, length}), Dense::fromDoubles(type.dtype(), filtersOf(f)));
  if (t.hasInput(2) && t.input(2)->type().shape() != llvm::ArrayRef<int64_t>(length))
    t.reject("the window " + toString(t.input(2)->type()) + " does not have the " + llvm::Twine(length) +
             " elements of a frame");
  if (t.hasInput(2))
    filters = t.binary(Op::mul, filters, t.cast(t.input(2), type.dtype()));
  ConvolutionAttributes attributes;
  attributes.strides = {step};
  attributes.dilations = {1};
  attributes.padsBefore = attributes.padsAfter = {0};
  Value *y = t.make(Op::convolution, {t.moveAxis(x, 2, 1), filters}, std::move(attributes));
  t.setOutput(0, t.reshape(t.moveAxis(y, 1, 2), {type.dim(0), y->type().dim(2), f.outputs, 2}));
}

/// a - b cos(2 pi i / n) + c cos(4 pi i / n) for i = 0, 1, ..., n being the size, or one less for a symmetric window.
void cosineWindow(NodeTranslation &t, double a, double b, double c) {
  int64_t size = t.constantInteger(0, "the size");
  std::optional<DType> dtype = dtypeOf(static_cast<int32_t>(t.integer("output_datatype", 1)));
  if (size < 1 || size > largestTable || !dtype)
    t.reject("a window of " + llvm::Twine(size) + " elements, or of this element type, is not supported");
  bool isPeriodic = t.integer("periodic", 1) != 0;
  double period = static_cast<double>(isPeriodic ? size : std::max<int64_t>(1, size - 1));
  std::vector<double> values;
  for (int64_t i = 0; i < size; ++i) {
    double angle = 2 * std::numbers::pi * static_cast<double>(i) / period;
    values.push_back(a - b * std::cos(angle) + c * std::cos(2 * angle));
  }
  t.setOutput(0, t.constant(Type(*dtype, {size}), Dense::fromDoubles(*dtype, values)));
}

void hannWindow(NodeTranslation &t) { cosineWindow(t, 0.5, 0.5, 0); }
void hammingWindow(NodeTranslation &t) { cosineWindow(t, 25.0 / 46, 21.0 / 46, 0); }
void blackmanWindow(NodeTranslation &t) { cosineWindow(t, 0.42, 0.5, 0.08); }

double hertzOf(double mel) { return 700 * std::expm1(mel / 2595 * std::numbers::ln10); }
double melOf(double hertz) { return 2595 * std::log1p(hertz / 700) / std::numbers::ln10; }

/// Spectrum bins: band b begins at element b, peaks at b + 1 and ends at b + 2.
std::vector<int64_t> melEdges(NodeTranslation &t, int64_t bands, int64_t length, int64_t spectrum) {
  double rate = t.constantReal(2, "the sample rate");
  double low = melOf(t.constantReal(3, "the lower edge")), high = melOf(t.constantReal(4, "the upper edge"));
  double step = (high - low) / static_cast<double>(bands + 2);
  std::vector<int64_t> edges;
  for (int64_t i = 0; i < bands + 2; ++i) {
    double bin = std::floor(static_cast<double>(length + 1) * hertzOf(low + static_cast<double>(i) * step) / rate);
    if (!(bin >= 0 && bin < static_cast<double>(spectrum)))
      t.reject("its bands leave the spectrum");
    edges.push_back(static_cast<int64_t>(bin));
  }
  return edges;
}

/// Triangles with a peak of 1, [spectrum, bands].
void melWeights(NodeTranslation &t) {
  int64_t bands = t.constantInteger(0, "the number of bands"), length = t.constantInteger(1, "the length");
  if (bands < 1 || length < 1 || bands > largestTable || length > largestTable ||
      (length / 2 + 1) * bands > largestTable)
    t.reject(llvm::Twine(bands) + " bands of a spectrum of " + llvm::Twine(length));
  std::optional<DType> dtype = dtypeOf(static_cast<int32_t>(t.integer("output_datatype", 1)));
  if (!dtype)
    t.reject("its element type is not supported");
  int64_t spectrum = length / 2 + 1;
  std::vector<int64_t> edges = melEdges(t, bands, length, spectrum);
  std::vector<double> weights(spectrum * bands, 0);
  for (int64_t b = 0; b < bands; ++b) {
    double rise = static_cast<double>(edges[b + 1] - edges[b]), fall = static_cast<double>(edges[b + 2] - edges[b + 1]);
    for (int64_t i = edges[b]; i <= edges[b + 1]; ++i)
      weights[i * bands + b] = rise == 0 ? 1 : static_cast<double>(i - edges[b]) / rise;
    for (int64_t i = edges[b + 1]; i < edges[b + 2]; ++i)
      weights[i * bands + b] = static_cast<double>(edges[b + 2] - i) / fall;
  }
  t.setOutput(0, t.constant(Type(*dtype, {spectrum, bands}), Dense::fromDoubles(*dtype, weights)));
}

constexpr TranslationRow rows[] = {
    {"BlackmanWindow", blackmanWindow}, {"DFT", discreteFourier},        {"HammingWindow", hammingWindow},
    {"HannWindow", hannWindow},         {"MelWeightMatrix", melWeights}, {"STFT", shortTimeFourier},
};

} // namespace

TranslationRows fourierTranslations() { return rows; }

} // namespace fsdpc
