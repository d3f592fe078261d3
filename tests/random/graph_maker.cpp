#include "tests/random/graph_maker.h"

#include "ir/ops/helpers.h"

#include <cmath>

namespace fsdpc {

std::string tensorName(int64_t number, int64_t batchAxis) {
  return "v" + std::to_string(number) + (batchAxis < 0 ? "" : ".b" + std::to_string(batchAxis));
}

std::optional<int64_t> batchAxisOfName(llvm::StringRef name) {
  int64_t axis;
  size_t at = name.find(".b");
  if (at == llvm::StringRef::npos || name.substr(at + 2, 1).getAsInteger(10, axis))
    return std::nullopt;
  return axis;
}

GraphMaker::GraphMaker(Module &module, const GraphOptions &options, Random &random)
    : module(module), function(*module.function(FunctionKind::forward)), builder(function), options(options),
      random(&random), syncedNorms(random.chance(0.6)) {}

llvm::SmallVector<Value *, 4> GraphMaker::valuesOf(llvm::ArrayRef<Tensor> tensors) {
  llvm::SmallVector<Value *, 4> values;
  for (const Tensor &tensor : tensors)
    values.push_back(tensor.value);
  return values;
}

Tensor GraphMaker::wrap(Node *node, const Traits &traits) {
  for (unsigned i = 0; i < node->resultCount(); ++i) {
    bool hasBatch = traits.batch >= 0 && traits.batch < node->result(i)->type().rank();
    node->result(i)->setName(tensorName(values++, hasBatch ? traits.batch : -1));
  }
  return {node->result(), traits.batch, traits.scale, traits.exact, traits.limit};
}

// ---- sources

Tensor GraphMaker::read(const std::string &parameter) {
  return wrap(builder.create(Op::read, {},
                             StateAttributes{{parameter},
                                             Shape(module.state(parameter)->type.shape()),
                                             module.state(parameter)->type.dtype()}),
              {-1, 1, true});
}

Tensor GraphMaker::parameter(llvm::ArrayRef<int64_t> shape) {
  bool share = random->chance(0.3);
  for (const std::string &name : parametersOfBlock)
    if (share && module.state(name)->type.shape() == shape)
      return read(name);
  return newParameter(shape, !random->chance(0.15));
}

Tensor GraphMaker::newParameter(llvm::ArrayRef<int64_t> shape, bool trainable) {
  Parameter parameter;
  parameter.name = parameter.initializer = prefix + "p" + std::to_string(parameters++);
  parameter.type = Type(DType::f32, shape);
  parameter.trainable = trainable;
  parameter.ignored = random->chance(0.05);
  State state;
  state.name = parameter.name;
  state.type = parameter.type;
  parametersOfBlock.push_back(parameter.name);
  module.parameters.push_back(std::move(parameter));
  module.addState(std::move(state));
  return read(parametersOfBlock.back());
}

Tensor GraphMaker::buffer(int64_t channels) {
  Tensor read = newParameter({channels}, false);
  Parameter &parameter = module.parameters.back();
  parameter.isBuffer = true;
  parameter.ignored = false;
  module.state(parameter.name)->role = StateRole::buffer;
  parametersOfBlock.pop_back(); // no other node reads it
  return read;
}

Tensor GraphMaker::input(const std::string &name, DType dtype, llvm::ArrayRef<int64_t> sampleShape, int64_t limit) {
  Shape shape = {options.batch};
  llvm::append_range(shape, sampleShape);
  Value *value = function.addArgument(ArgumentKind::input, name, Type(dtype, shape));
  return {value, 0, 2, true, limit};
}

Tensor GraphMaker::constant(DType dtype, llvm::ArrayRef<int64_t> shape, double splat) {
  return make(Op::constant, {}, ConstantAttributes{Dense::splat(dtype, splat), Shape(shape)},
              {-1, std::fabs(splat), true});
}

Tensor GraphMaker::constants(DType dtype, llvm::ArrayRef<int64_t> shape, double low, double high) {
  std::vector<double> elements(*checkedElements(shape));
  for (double &element : elements)
    element = isFloat(dtype) ? std::round(random->real(low, high) * 64) / 64
                             : static_cast<double>(random->between(int64_t(low), int64_t(high)));
  return make(Op::constant, {}, ConstantAttributes{Dense::fromDoubles(dtype, elements), Shape(shape)},
              {-1, std::max(std::fabs(low), std::fabs(high)), true});
}

Tensor GraphMaker::scalarState(llvm::StringRef name) {
  if (!module.state(name)) {
    State state;
    state.name = name.str();
    state.role = StateRole::scalar;
    state.type = Type(DType::i64, {});
    state.initialValue = name == "step" ? 1 : 0;
    module.addState(std::move(state));
  }
  return read(name.str());
}

// ---- operands

Tensor GraphMaker::anyFloat() {
  // Mostly recent values, so that graphs become deep as well as wide.
  size_t recent = std::min<size_t>(floats.size(), 4);
  return random->chance(0.6) ? random->pick(llvm::ArrayRef(floats).take_back(recent)) : random->pick(floats);
}

Tensor GraphMaker::batchedFloat() {
  for (int attempt = 0; attempt < 8; ++attempt)
    if (Tensor x = anyFloat(); x.batch >= 0)
      return x;
  return floats.front();
}

Tensor GraphMaker::exactFloat() {
  std::vector<Tensor> exact;
  llvm::copy_if(floats, std::back_inserter(exact), [](const Tensor &x) { return x.exact; });
  return exact.empty() || random->chance(0.2) ? parameter(smallShape(random->between(0, 3))) : random->pick(exact);
}

Tensor GraphMaker::anyInteger() { return random->pick(integers); }

Tensor GraphMaker::integerBelow(int64_t limit) {
  Tensor x = anyInteger();
  if (x.limit <= limit && !random->chance(0.2))
    return x;
  Tensor divisor = broadcast(constant(x.type().dtype(), {}, static_cast<double>(limit)), x.shape(), x.batch);
  Traits traits = traitsOf(x);
  traits.limit = limit;
  return make(Op::mod, {x, divisor}, traits);
}

Tensor GraphMaker::documents(int64_t length) {
  if (random->chance(0.5))
    return constants(DType::i64, {1, length}, 0, 2);
  return perSample(cast(integerBelow(3), DType::i64), {length}, false);
}

void GraphMaker::keep(Tensor tensor) {
  DType dtype = tensor.type().dtype();
  if (tensor.type().elements() > 400 * options.batch)
    return;
  if (dtype == DType::f32)
    floats.push_back(tensor.scale > 4 ? scaledTo(tensor, 2) : tensor);
  else if (isInteger(dtype) && tensor.limit > 0)
    integers.push_back(tensor);
}

// ---- shapes

llvm::SmallVector<int64_t, 4> GraphMaker::freeAxes(const Tensor &x) const {
  llvm::SmallVector<int64_t, 4> axes;
  for (int64_t axis = 0; axis < x.rank(); ++axis)
    if (axis != x.batch)
      axes.push_back(axis);
  return axes;
}

Tensor GraphMaker::reshape(const Tensor &x, llvm::ArrayRef<int64_t> shape, int64_t batch) {
  Traits traits = traitsOf(x);
  traits.batch = batch;
  if (x.shape() == shape && x.batch == batch)
    return x;
  return make(Op::reshape, {x}, ShapeAttributes{Shape(shape)}, traits);
}

Tensor GraphMaker::transpose(const Tensor &x, llvm::ArrayRef<int64_t> permutation) {
  Traits traits = traitsOf(x);
  if (x.batch >= 0)
    traits.batch = llvm::find(permutation, x.batch) - permutation.begin();
  return make(Op::transpose, {x}, TransposeAttributes{Shape(permutation)}, traits);
}

Tensor GraphMaker::broadcast(const Tensor &x, llvm::ArrayRef<int64_t> shape, int64_t batch) {
  if (x.shape() == shape && x.batch == batch)
    return x;
  Traits traits = traitsOf(x);
  traits.batch = batch;
  return make(Op::broadcast, {x}, ShapeAttributes{Shape(shape)}, traits);
}

Tensor GraphMaker::cast(const Tensor &x, DType dtype) {
  return x.type().dtype() == dtype ? x : make(Op::cast, {x}, CastAttributes{dtype}, traitsOf(x));
}

/// [B, elements per sample], or [1, elements] without samples.
Tensor GraphMaker::rowsOf(const Tensor &x) {
  if (x.batch < 0)
    return reshape(x, {1, x.type().elements()}, -1);
  Tensor front = x;
  if (x.batch > 0) {
    Shape permutation = {x.batch};
    llvm::append_range(permutation, freeAxes(x));
    front = transpose(x, permutation);
  }
  return reshape(front, {options.batch, x.type().elements() / options.batch}, 0);
}

Tensor GraphMaker::grown(const Tensor &rows, int64_t columns) {
  int64_t dim0 = rows.type().dim(0), known = rows.type().dim(1);
  if (known == 1 && random->chance(0.5))
    return broadcast(rows, {dim0, columns}, rows.batch);
  Traits traits = traitsOf(rows);
  if (random->chance(0.3)) {
    int64_t before = random->between(0, columns - known);
    return make(Op::pad, {rows}, PadAttributes{{0, before}, {0, columns - known - before}, {0, 0}, 0}, traits);
  }
  std::vector<Tensor> copies((columns + known - 1) / known, rows);
  Tensor joined = make(Op::concat, copies, AxisAttributes{1}, traits);
  if (joined.type().dim(1) == columns)
    return joined;
  return make(Op::slice, {joined}, SliceAttributes{{0, 0}, {dim0, columns}, {1, 1}}, traits);
}

Tensor GraphMaker::resized(const Tensor &rows, int64_t columns, bool mix) {
  int64_t dim0 = rows.type().dim(0), known = rows.type().dim(1);
  bool isF32 = rows.type().dtype() == DType::f32;
  if (known == columns)
    return rows;
  if (mix && isF32 && known * columns <= 400 && random->chance(0.4)) {
    double scale = rows.scale * std::sqrt(static_cast<double>(known));
    Tensor product = make(Op::matmul, {rows, parameter({known, columns})}, MatmulAttributes{}, {rows.batch, scale});
    return scaledTo(product, 2);
  }
  if (known < columns)
    return grown(rows, columns);
  int64_t step = known >= 2 * columns ? random->between(1, known / columns) : 1;
  int64_t start = random->between(0, known - 1 - (columns - 1) * step);
  return make(Op::slice, {rows}, SliceAttributes{{0, start}, {dim0, columns}, {1, step}}, traitsOf(rows));
}

Tensor GraphMaker::perSample(const Tensor &x, llvm::ArrayRef<int64_t> sampleShape, bool mix) {
  Tensor rows = resized(rowsOf(x), *checkedElements(sampleShape), mix);
  Shape shape = {options.batch};
  llvm::append_range(shape, sampleShape);
  if (rows.batch >= 0)
    return reshape(rows, shape, 0);
  return broadcast(reshape(rows, sampleShape, -1), shape, 0);
}

Tensor GraphMaker::like(const Tensor &x, const Tensor &target, bool mix) {
  if (x.shape() == target.shape() && x.batch == target.batch)
    return x;
  if (target.batch < 0) {
    if (x.batch >= 0)
      return target.type().dtype() == DType::f32 ? parameter(target.shape()) : target;
    return reshape(resized(rowsOf(x), target.type().elements(), mix), target.shape(), -1);
  }
  // The sample axis may have several rows of each sample. They become the axis right after the samples.
  int64_t rows = target.type().dim(target.batch) / options.batch;
  Shape sampleShape = {rows}, permutation, others;
  for (int64_t axis : freeAxes(target))
    sampleShape.push_back(target.type().dim(axis));
  Tensor front = perSample(x, sampleShape, mix);
  for (int64_t axis = 0, next = 2; axis < target.rank(); ++axis)
    if (axis == target.batch)
      permutation.append({0, 1});
    else
      permutation.push_back(next++);
  Tensor placed = target.batch == 0 ? front : transpose(front, permutation);
  return reshape(placed, target.shape(), target.batch);
}

Tensor GraphMaker::partnerOf(const Tensor &target, bool exact) {
  DType dtype = target.type().dtype();
  if (dtype == DType::f32 && random->chance(0.5))
    if (Tensor other = exact ? exactFloat() : anyFloat(); target.batch >= 0 || other.batch < 0)
      return like(other, target, !exact);
  if (random->chance(0.2))
    return broadcast(constant(dtype, {}, isFloat(dtype) ? random->real(-1, 1) : 2), target.shape(), target.batch);
  // Trailing dims of the target, some of them 1: shapes that numpy broadcasts.
  Shape shape;
  for (int64_t axis = random->between(0, target.rank()); axis < target.rank(); ++axis)
    shape.push_back(isBatch(target, axis) || random->chance(0.2) ? 1 : target.type().dim(axis));
  bool isParameter = dtype == DType::f32 && random->chance(0.7);
  return broadcast(isParameter ? parameter(shape) : constants(dtype, shape, 1, 2), target.shape(), target.batch);
}

Shape GraphMaker::smallShape(int64_t rank, int64_t maxElements) {
  Shape shape;
  for (int64_t i = 0; i < rank; ++i)
    shape.push_back(std::min(smallDim(), std::max<int64_t>(1, maxElements / *checkedElements(shape))));
  return shape;
}

// ---- numbers

Tensor GraphMaker::binary(Op op, const Tensor &a, const Tensor &b, double scale) {
  return make(op, {a, b}, {a.batch, scale});
}

Tensor GraphMaker::unary(Op op, const Tensor &x, double scale) { return make(op, {x}, {x.batch, scale}); }

Tensor GraphMaker::times(const Tensor &x, double factor) {
  Tensor constants = broadcast(constant(x.type().dtype(), {}, factor), x.shape(), x.batch);
  Tensor product = binary(Op::mul, x, constants, x.scale * std::fabs(factor));
  product.exact = x.exact && std::exp2(std::round(std::log2(factor))) == factor;
  return product;
}

Tensor GraphMaker::plus(const Tensor &x, double number) {
  Tensor constants = broadcast(constant(x.type().dtype(), {}, number), x.shape(), x.batch);
  return binary(Op::add, x, constants, x.scale + std::fabs(number));
}

Tensor GraphMaker::scaledTo(const Tensor &x, double scale) {
  return x.scale <= scale ? x : times(x, std::exp2(-std::ceil(std::log2(x.scale / scale))));
}

Tensor GraphMaker::positive(const Tensor &x) {
  switch (random->below(5)) {
  case 0: {
    Tensor half = scaledTo(x, 1.5);
    return plus(binary(Op::mul, half, half, half.scale * half.scale), 0.5);
  }
  case 1: return plus(unary(Op::sigmoid, x, 1), 0.25);
  case 2: return plus(unary(Op::abs, x, x.scale), 0.5);
  case 3: return unary(Op::exp, unary(Op::tanh, x, 1), 2.7);
  default: {
    Tensor power = unary(Op::exp, scaledTo(x, 2), 7);
    return plus(unary(Op::log1p, power, 2), 0.3);
  }
  }
}

Tensor GraphMaker::withoutTies(const Tensor &x) {
  if (x.exact)
    return x;
  Shape shape;
  int64_t elements = 1;
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    shape.push_back(isBatch(x, axis) ? 1 : x.type().dim(axis));
    elements *= shape.back();
  }
  std::vector<double> distinct(elements);
  for (int64_t i = 0; i < elements; ++i)
    distinct[i] = static_cast<double>((i * 37 + 11) % (elements + 3)) * 0.0271;
  Tensor offsets =
      make(Op::constant, {}, ConstantAttributes{Dense::fromDoubles(DType::f32, distinct), shape}, {-1, 1, true});
  return binary(Op::add, x, broadcast(offsets, x.shape(), x.batch), x.scale + 1);
}

} // namespace fsdpc
