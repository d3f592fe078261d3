#include "codegen/cpu/scratch.h"

#include "codegen/common/cpp_text.h"
#include "codegen/common/emitter.h"
#include "runtime/cpu/kernels/scratch_sizes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <dnnl.h>

// oneDNN brings OpenMP's runtime with it; nothing else here needs it, so it is not linked by name.
extern "C" {
[[gnu::weak]] int omp_get_max_threads();
[[gnu::weak]] void omp_set_num_threads(int);
}

namespace fsdpc {

namespace {

/// Owns a oneDNN handle.
template <class Handle, dnnl_status_t (*destroy)(Handle)>
class Owned {
public:
  Owned() = default;
  Owned(const Owned &) = delete;
  ~Owned() {
    if (handle)
      destroy(handle);
  }
  Handle *out() { return &handle; }
  Handle get() const { return handle; }

private:
  Handle handle = nullptr;
};
using Engine = Owned<dnnl_engine_t, dnnl_engine_destroy>;
using Attributes = Owned<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;
using PostOperations = Owned<dnnl_post_ops_t, dnnl_post_ops_destroy>;
using Description = Owned<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;

dnnl_memory_desc_t plainMemory(llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<int64_t> strides,
                               dnnl_data_type_t type = dnnl_f32) {
  dnnl_memory_desc_t memory;
  [[maybe_unused]] dnnl_status_t status =
      dnnl_memory_desc_init_by_strides(&memory, static_cast<int>(dims.size()), dims.data(), type, strides.data());
  assert(status == dnnl_success && "a dense layout is a layout");
  return memory;
}

dnnl_memory_desc_t anyMemory(llvm::ArrayRef<int64_t> dims, dnnl_data_type_t type) {
  dnnl_memory_desc_t memory;
  [[maybe_unused]] dnnl_status_t status =
      dnnl_memory_desc_init_by_tag(&memory, static_cast<int>(dims.size()), dims.data(), type, dnnl_format_tag_any);
  assert(status == dnnl_success && "any layout will do");
  return memory;
}

int64_t scratchOf(const_dnnl_primitive_desc_t description) {
  const dnnl_memory_desc_t *scratch = dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
  return scratch ? static_cast<int64_t>(dnnl_memory_desc_get_size(scratch)) : 0;
}

/// Sets the number of OpenMP threads, which oneDNN plans for, and restores it when done.
class LibraryThreads {
public:
  explicit LibraryThreads(int threads) {
    if (!omp_get_max_threads || !omp_set_num_threads)
      return;
    before = omp_get_max_threads();
    omp_set_num_threads(threads);
  }
  ~LibraryThreads() {
    if (before > 0)
      omp_set_num_threads(before);
  }

private:
  int before = 0;
};

/// Describes primitives with user scratch.
class Describer {
public:
  Describer() {
    [[maybe_unused]] bool made =
        dnnl_engine_create(engine.out(), dnnl_cpu, 0) == dnnl_success &&
        dnnl_primitive_attr_create(attributes.out()) == dnnl_success &&
        dnnl_primitive_attr_set_scratchpad_mode(attributes.get(), dnnl_scratchpad_mode_user) == dnnl_success;
    assert(made && "oneDNN has a cpu engine");
  }
  /// The result is added to what is in memory.
  void accumulate() {
    PostOperations operations;
    [[maybe_unused]] bool made = dnnl_post_ops_create(operations.out()) == dnnl_success &&
                                 dnnl_post_ops_append_sum(operations.get(), 1) == dnnl_success &&
                                 dnnl_primitive_attr_set_post_ops(attributes.get(), operations.get()) == dnnl_success;
    assert(made && "a sum is a post-operation");
  }
  bool describe(const_dnnl_op_desc_t operation, const_dnnl_primitive_desc_t hint, Description &out) const {
    return dnnl_primitive_desc_create(out.out(), operation, attributes.get(), engine.get(), hint) == dnnl_success;
  }

private:
  Engine engine;
  Attributes attributes;
};

/// The layouts that the runtime's matmul.cpp gives operands: rows are `stride` elements apart.
dnnl_memory_desc_t matrices(dnnl_data_type_t type, bool as3d, int64_t batch, int64_t rows, int64_t columns,
                            int64_t stride, bool transposed = false) {
  int64_t dims[] = {batch, rows, columns};
  int64_t strides[] = {rows * columns, transposed ? 1 : stride, transposed ? rows : 1};
  return as3d ? plainMemory(dims, strides, type)
              : plainMemory(llvm::ArrayRef(dims).drop_front(), llvm::ArrayRef(strides).drop_front(), type);
}

/// Elements of both operands and of the result.
struct ProductTypes {
  dnnl_data_type_t elements, result;
};

/// The scratch of oneDNN's primitive, whose b is a copied panel of `panel` columns, or b itself for 0; nullopt if it
/// has none.
std::optional<int64_t> primitiveScratch(const MatmulConfig &config, ProductTypes types, int64_t panel) {
  const auto [elements, result] = types;
  Describer describer;
  if (config.accumulate)
    describer.accumulate();
  const bool as3d = config.batch > 1;
  const int64_t columns = panel > 0 ? panel : config.n;
  dnnl_memory_desc_t a =
      matrices(elements, as3d, config.oneA ? 1 : config.batch, config.m, config.k, config.k, config.transposeA);
  dnnl_memory_desc_t b = matrices(elements, as3d, config.oneB ? 1 : config.batch, config.k, columns,
                                  panel > 0 ? rt::scratch_sizes::panelStride(panel) : columns, config.transposeB);
  dnnl_memory_desc_t out = matrices(result, as3d, config.batch, config.m, columns, config.n);
  dnnl_memory_desc_t bias = matrices(result, as3d, 1, 1, columns, columns);
  dnnl_matmul_desc_t operation;
  Description description;
  if (dnnl_matmul_desc_init(&operation, &a, &b, config.bias ? &bias : nullptr, &out) != dnnl_success ||
      !describer.describe(&operation, nullptr, description))
    return std::nullopt;
  return scratchOf(description.get());
}

/// The three tensors of a pass, in the layout that oneDNN chooses and in the plain one.
struct ConvolutionMemories {
  dnnl_memory_desc_t any[3]; ///< x, w, y
  dnnl_memory_desc_t plain[3];
};

ConvolutionMemories memoriesOf(const ConvolutionConfig &config, dnnl_data_type_t xType, dnnl_data_type_t wType,
                               dnnl_data_type_t yType) {
  Shape x = {config.batch, config.inputChannels}, y = {config.batch, config.outputChannels}, w;
  if (config.groups > 1)
    w.push_back(config.groups);
  w.append({config.outputChannels / config.groups, config.inputChannels / config.groups});
  x.append(config.input);
  y.append(config.output);
  w.append(config.kernel);
  return {{anyMemory(x, xType), anyMemory(w, wType), anyMemory(y, yType)},
          {plainMemory(x, rowMajor(x), xType), plainMemory(w, rowMajor(w), wType), plainMemory(y, rowMajor(y), yType)}};
}

/// The memories of a pass, whose result is of another type than its operands.
ConvolutionMemories memoriesOf(const ConvolutionConfig &config, ProductTypes types) {
  using Pass = ConvolutionConfig::Pass;
  return memoriesOf(config, config.pass == Pass::gradInput ? types.result : types.elements,
                    config.pass == Pass::gradWeight ? types.result : types.elements,
                    config.pass == Pass::forward ? types.result : types.elements);
}

bool describeConvolution(const ConvolutionConfig &config, ProductTypes types, const Describer &describer,
                         Description &hint, Description &out) {
  bool isForward = config.pass == ConvolutionConfig::Pass::forward;
  int64_t biasDims[] = {config.outputChannels}, biasStrides[] = {1};
  dnnl_memory_desc_t bias = plainMemory(biasDims, biasStrides, types.result);
  Shape dilations = config.dilations;
  for (int64_t &dilation : dilations)
    --dilation;
  const int64_t *strides = config.strides.data(), *before = config.padsBefore.data(), *after = config.padsAfter.data();
  const ConvolutionMemories of = memoriesOf(config, types);
  // The derivatives' hint is of a forward pass without a rounded result.
  const ConvolutionMemories hinted =
      isForward ? of : memoriesOf(config, types.elements, types.elements, types.elements);
  const dnnl_memory_desc_t *x = &of.any[0], *w = &of.any[1], *y = &of.any[2];
  dnnl_convolution_desc_t forward, backward;
  if (dnnl_dilated_convolution_forward_desc_init(
          &forward, dnnl_forward_training, dnnl_convolution_direct, &hinted.any[0], &hinted.any[1],
          config.bias ? &bias : nullptr, &hinted.any[2], strides, dilations.data(), before, after) != dnnl_success)
    return false;
  if (!describer.describe(&forward, nullptr, isForward ? out : hint) || isForward)
    return isForward && out.get();
  dnnl_status_t status =
      config.pass == ConvolutionConfig::Pass::gradInput
          ? dnnl_dilated_convolution_backward_data_desc_init(&backward, dnnl_convolution_direct, x, w, y, strides,
                                                             dilations.data(), before, after)
          : dnnl_dilated_convolution_backward_weights_desc_init(&backward, dnnl_convolution_direct, x, w, nullptr, y,
                                                                strides, dilations.data(), before, after);
  return status == dnnl_success && describer.describe(&backward, hint.get(), out);
}

/// The scratch of oneDNN's primitive and of the tensors in its layouts; nullopt if it has none.
std::optional<int64_t> primitiveScratch(const ConvolutionConfig &config, ProductTypes types) {
  Describer describer;
  const ConvolutionMemories memories = memoriesOf(config, types);
  Description hint, description;
  if (!describeConvolution(config, types, describer, hint, description))
    return std::nullopt;
  bool gradInput = config.pass == ConvolutionConfig::Pass::gradInput,
       gradWeight = config.pass == ConvolutionConfig::Pass::gradWeight;
  dnnl_query_t queries[] = {gradInput ? dnnl_query_diff_src_md : dnnl_query_src_md,
                            gradWeight ? dnnl_query_diff_weights_md : dnnl_query_weights_md,
                            config.pass == ConvolutionConfig::Pass::forward ? dnnl_query_dst_md
                                                                            : dnnl_query_diff_dst_md};
  int64_t bytes = scratchOf(description.get());
  for (int i = 0; i < 3; ++i) {
    const dnnl_memory_desc_t *chosen = dnnl_primitive_desc_query_md(description.get(), queries[i], 0);
    if (!dnnl_memory_desc_equal(chosen, &memories.plain[i]))
      bytes += llvm::alignTo(dnnl_memory_desc_get_size(chosen), 64);
  }
  return bytes;
}

/// The scratch where processors have products in bf16; 0 if oneDNN has none here.
template <class Config, class... More>
int64_t nativeScratch(const Config &config, More... more) {
  if (config.elements != DType::bf16)
    return 0;
  const ProductTypes types = {dnnl_bf16, config.result == DType::f32 ? dnnl_f32 : dnnl_bf16};
  return primitiveScratch(config, types, more...).value_or(0);
}

} // namespace

std::optional<int64_t> scratchBytes(const MatmulConfig &config, int threads) {
  if (llvm::is_contained({config.batch, config.m, config.n, config.k}, 0))
    return 0;
  LibraryThreads limit(threads);
  rt::scratch_sizes::ProductCopies copies;
  if (config.elements != DType::f32)
    copies = {(config.oneA ? 1 : config.batch) * config.m * config.k,
              (config.oneB ? 1 : config.batch) * config.k * config.n, config.bias ? config.n : 0,
              config.batch * config.m * config.n, config.result != DType::f32};
  const int64_t panel = rt::scratch_sizes::panelOfMatmul(config.batch, config.m, config.n, config.k, config.transposeB);
  const std::optional<int64_t> single = primitiveScratch(config, {dnnl_f32, dnnl_f32}, panel);
  if (!single)
    return std::nullopt;
  // Where the program starts, processors may have products in bf16 or not.
  return std::max(copies.end + rt::scratch_sizes::panelBytes(panel, config.k) + *single,
                  nativeScratch(config, int64_t{0}));
}

std::optional<int64_t> scratchBytes(const ConvolutionConfig &config, int threads) {
  if (llvm::is_contained({config.batch, config.inputChannels, config.outputChannels, productOf(config.output),
                          productOf(config.input)},
                         0))
    return 0;
  LibraryThreads limit(threads);
  const int64_t x = config.batch * config.inputChannels * productOf(config.input),
                w = config.outputChannels * (config.inputChannels / config.groups) * productOf(config.kernel),
                y = config.batch * config.outputChannels * productOf(config.output);
  using Pass = ConvolutionConfig::Pass;
  rt::scratch_sizes::ProductCopies copies;
  if (config.elements != DType::f32)
    copies = {config.pass == Pass::gradInput ? y : x, config.pass == Pass::gradWeight ? y : w,
              config.bias ? config.outputChannels : 0,
              config.pass == Pass::forward     ? y
              : config.pass == Pass::gradInput ? x
                                               : w,
              config.result != DType::f32};
  const std::optional<int64_t> single = primitiveScratch(config, {dnnl_f32, dnnl_f32});
  if (!single)
    return std::nullopt;
  return std::max(copies.end + *single, nativeScratch(config));
}

int64_t nativeScratchBytes(const MatmulConfig &config, int threads) {
  LibraryThreads limit(threads);
  return nativeScratch(config, int64_t{0});
}

bool takesBf16(const Node &linearLoss) {
  return linearLoss.operand(LinearLossSizes(linearLoss).hidden)->type().dtype() == DType::bf16;
}

int64_t cpuLossBytesBeforeMatmuls(const Node &node) {
  const int64_t chunk = LinearLossSizes::bytesOfChunk(node, sizeof(float));
  if (!takesBf16(node))
    return chunk;
  const LinearLossSizes sizes(node);
  const bool isGrad = node.op() == Op::linearCrossEntropyGrad;
  return rt::scratch_sizes::LinearLossCopies({sizes.rows, sizes.width, sizes.classes, sizes.hasBias, isGrad}).end +
         chunk;
}

std::string scratchLevel() {
#if defined(__x86_64__)
  constexpr std::pair<dnnl_cpu_isa_t, const char *> levels[] = {{dnnl_cpu_isa_avx512_core_amx, "amx_bf16"},
                                                                {dnnl_cpu_isa_avx512_core_bf16, "avx512_bf16"},
                                                                {dnnl_cpu_isa_avx512_core, "x86-64-v4"}};
  const auto usable = dnnl_get_effective_cpu_isa();
  for (const auto &[isa, name] : levels)
    if ((usable & isa) == isa)
      return name;
  return "x86-64-v3";
#else
  return "";
#endif
}

int64_t attentionScratchBytes(const Node &node) {
  const auto &attributes = node.get<AttentionAttributes>();
  bool isGrad = node.op() == Op::attentionGrad;
  const Type &k = node.operand(isGrad ? 2 : 1)->type(), &v = node.operand(isGrad ? 3 : 2)->type();
  const int64_t keys = k.dim(attributes.sequenceFirst ? 1 : 2), width = k.dim(3), valueWidth = v.dim(3);
  if (isHalf(k.dtype())) {
    const int64_t queries = node.operand(isGrad ? 1 : 0)->type().dim(attributes.sequenceFirst ? 1 : 2);
    return rt::scratch_sizes::attentionHalvesBytes({queries, keys, width, valueWidth}, isGrad);
  }
  const int64_t floats = isGrad ? rt::scratch_sizes::AttentionGradLayout(keys, width, valueWidth).size
                                : rt::scratch_sizes::AttentionLayout(keys, width, valueWidth).size;
  return floats * int64_t{sizeof(float)};
}

int64_t normGradScratchBytes(const Node &node) {
  const Type &x = node.operand(1)->type();
  const int64_t columns = productOf(x.shape().drop_front(node.get<NormAttributes>().axis));
  return rt::scratch_sizes::normGradBytes(columns, node.op() == Op::layerNormGrad ? 2 : 1);
}

int64_t scatterRowsScratchBytes(const Node &node) {
  const auto &rows = node.get<RowsAttributes>();
  return rt::scratch_sizes::scatterRowsBytes(rows.padded / rows.ranks / rows.width, node.operand(0)->type().elements());
}

int64_t scatterAddScratchBytes(const Node &node) {
  const Type &sum = node.result()->type();
  if (!isFloat(sum.dtype()) || sum.dtype() == DType::f64)
    return 0;
  const int64_t axis = node.get<ScatterAddAttributes>().axis;
  return rt::scratch_sizes::scatterAddBytes(sum.dim(axis), node.operand(0)->type().elements(),
                                            productOf(sum.shape().drop_front(axis + 1)));
}

} // namespace fsdpc
