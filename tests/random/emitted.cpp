#include "tests/random/emitted.h"

#include "codegen/cpu/target.h"
#include "ir/op.h"
#include "ir/queries.h"
#include "ir/text/text.h"
#include "tests/compare/compare.h"

#include <cmath>

namespace fsdpc {

namespace {

constexpr double smallestLimit = 1e-5;
/// One rounding to bf16 (8 bits). A sum in another order may round to the other neighbour, however close it is in f32.
constexpr double roundingToBfloat16 = 0x1p-8;
constexpr double timesFloat32 = 16;
/// The f32 error when terms as large as the largest of their kind cancel inside an op. The evaluator uses f64 there.
constexpr double cancelledInFloat32 = 0x1p-22;
constexpr double timesBfloat16 = 2;
constexpr uint64_t bfloat16Period = 3; ///< of seeds, one is for a program in bf16
/// Modules with rounded attention. The effect of one module is random: in a tensor of 15 elements from 0.08 % to 0.8 %.
constexpr int attentionDraws = 32;
constexpr double roundingToFloat32 = 0x1p-24;
constexpr int normDraws = 4;

llvm::Error writeText(const llvm::Twine &path, llvm::StringRef text) {
  std::error_code code;
  llvm::raw_fd_ostream out(path.str(), code);
  if (code)
    return llvm::createStringError(path + ": " + code.message());
  out << text;
  return llvm::Error::success();
}

/// Rounds x to 53 - bits binary digits with ordinary f64 arithmetic (Veltkamp's splitting; Dekker 1971): with
/// t = x (2^bits + 1), t - (t - x).
Value *rounded(Builder &builder, Value *x, int bits) {
  Value *wide = builder.create(Op::cast, {x}, CastAttributes{DType::f64})->result();
  Value *product = builder.mul(wide, builder.constantLike(wide, std::exp2(bits) + 1));
  Value *high = builder.sub(product, builder.sub(product, wide));
  return builder.create(Op::cast, {high}, CastAttributes{x->type().dtype()})->result();
}

/// The module with every f32 result rounded, as on an f32 machine. Drops `bits` bits of f64.
std::unique_ptr<Module> withRounding(const Module &train, int bits) {
  std::unique_ptr<Module> module = copyOf(train);
  for (const std::unique_ptr<Function> &function : module->functions) {
    for (Node *node : *function) // nodes inserted after a node are not visited
      for (unsigned i = 0; i < node->resultCount(); ++i) {
        Value *result = node->result(i);
        if (result->type().dtype() != DType::f32 || !result->hasUses())
          continue;
        Builder builder(*function, node->next());
        Value *exact = result;
        llvm::SmallVector<std::pair<Node *, unsigned>, 4> uses;
        for (Use *use = exact->uses(); use; use = use->next())
          uses.push_back({use->user(), use->index()});
        Value *replacement = rounded(builder, exact, bits);
        for (auto [user, index] : uses)
          user->setOperand(index, replacement);
      }
  }
  return module;
}

bool isAttention(Op op) { return op == Op::attention || op == Op::attentionGrad; }
bool isLayerNorm(Op op) { return op == Op::layerNorm || op == Op::layerNormGrad; }

/// Roundings within an op, to be applied to the operands that it reads.
struct InnerRounding {
  bool (*readsRounded)(Op op);
  DType dtype;
  double rounding;
  int draws;
};

/// On tensor cores, attention rounds probabilities and their gradients to bf16 between its two matmuls. Where terms
/// cancel, that error remains.
constexpr InnerRounding attentionInBfloat16 = {isAttention, DType::bf16, roundingToBfloat16, attentionDraws};
/// Layer norm subtracts a mean that it rounded itself. In a row of equal elements only that error remains, times
/// 1 / sqrt(epsilon); rounding the elements themselves does not show it, since they stay equal.
constexpr InnerRounding layerNormInFloat32 = {isLayerNorm, DType::f32, roundingToFloat32, normDraws};

/// The module with a random half of the elements that such ops read moved by one rounding.
std::unique_ptr<Module> withInnerRounding(const Module &train, const InnerRounding &inner, uint64_t seed, int draw) {
  std::unique_ptr<Module> module = copyOf(train);
  Random random(seed, "inner rounding " + std::to_string(draw));
  for (const std::unique_ptr<Function> &function : module->functions)
    for (Node *node : *function)
      for (unsigned i = 0; i < node->operandCount(); ++i) {
        Value *x = node->operand(i);
        if (!inner.readsRounded(node->op()) || x->type().dtype() != inner.dtype)
          continue;
        std::vector<double> factors(x->type().elements());
        for (double &factor : factors)
          factor = 1 + random.pick({-1, 0, 0, 1}) * inner.rounding;
        Builder builder(*function, node);
        const Type wide = x->type().withDType(DType::f64);
        Value *factor = builder.constant(wide, Dense::fromDoubles(DType::f64, factors));
        node->setOperand(i, builder.cast(builder.mul(builder.cast(x, DType::f64), factor), inner.dtype));
      }
  return module;
}

/// The module with the absolute summands of every gradient that ranks sum in 16 bits. A sum of n terms is off by at
/// most n roundings of the sum of their absolute values, in any order (Higham, Accuracy and Stability of Numerical
/// Algorithms, 4.2), even if they cancel.
std::unique_ptr<Module> withAbsoluteSums(const Module &train) {
  std::unique_ptr<Module> module = copyOf(train);
  for (const std::unique_ptr<Function> &function : module->functions)
    for (Node *node : *function)
      if (node->op() == Op::batchSum && isHalf(node->result()->type().dtype()))
        node->setOperand(0, Builder(*function, node).unary(Op::abs, node->operand(0)));
  return module;
}

/// Loss, gradients and parameters by the names that reference.safetensors has.
Tensors named(const Outcome &outcome) {
  Tensors all = {{"loss", HostTensor(Type(DType::f64, {}), outcome.loss)}};
  for (auto [prefix, tensors] : {std::pair("grad.", &outcome.gradients), {"final.", &outcome.parameters}})
    for (const auto &[name, tensor] : *tensors) {
      HostTensor wide = tensor;
      wide.type = tensor.type.withDType(DType::f64);
      all[prefix + name] = std::move(wide);
    }
  return all;
}

std::string kindOf(llvm::StringRef name) { return name.split('.').first.str(); }

/// The largest element of each kind of tensors: loss, grad, final.
std::map<std::string, double> largestOfKinds(const Tensors &reference) {
  std::map<std::string, double> largest;
  for (const auto &[name, tensor] : reference) {
    double &ofKind = largest[kindOf(name)];
    ofKind = std::max(ofKind, scaleOf(tensor.values));
  }
  return largest;
}

/// Adds scale.<name> and limit.<name> to the reference. Errors are relative to a tensor's largest element, or that of
/// `sums`, or 1e-4 of the largest one of its kind. A limit that is not finite would accept any value, so it is an
/// error.
llvm::Error addLimits(Tensors &reference, llvm::ArrayRef<Tensors> otherRuns, const Tensors &sums, double times,
                      double smallest) {
  const std::map<std::string, double> largest = largestOfKinds(reference);
  Tensors limits;
  for (const auto &[name, tensor] : reference) {
    const auto sum = sums.find(name);
    const double ofKind = largest.at(kindOf(name)), ofSum = sum == sums.end() ? 0 : scaleOf(sum->second.values);
    const double scale = std::max({scaleOf(tensor.values), ofSum, 1e-4 * ofKind});
    double lost = cancelledInFloat32 * ofKind;
    for (const Tensors &run : otherRuns)
      lost = worseOf(lost, times * largestError(run.at(name).values, tensor.values));
    if (!std::isfinite(lost))
      return llvm::createStringError(name + " of the reference is not finite");
    const double limit = std::max(smallest, scale > 0 ? lost / scale : 0);
    limits["scale." + name] = HostTensor(Type(DType::f64, {}), scale);
    limits["limit." + name] = HostTensor(Type(DType::f64, {}), limit);
  }
  reference.merge(std::move(limits));
  return llvm::Error::success();
}

/// One rounding of the value, and one for each further micro-step, or for each rank's summand of a sum in bf16.
double smallestLimitOf(const Choices &choices) {
  if (choices.options.paramDType == DType::f32)
    return smallestLimit;
  const bool sumsBfloat16 = choices.options.reduceDType == DType::bf16;
  const int64_t summands = choices.options.microSteps - 1 + (sumsBfloat16 ? choices.ranks : 1);
  return roundingToBfloat16 * static_cast<double>(1 + summands);
}

std::vector<std::string> optionsOf(const Choices &choices) {
  const PipelineOptions &own = choices.options;
  std::vector<std::string> options;
  auto add = [&](const std::string &name, const std::string &value) {
    options.insert(options.end(), {"--" + name, value});
  };
  add("world_size", std::to_string(own.worldSize));
  add("micro_batch_size", std::to_string(own.microBatchSize));
  add("gradient_accumulation_steps", std::to_string(own.microSteps));
  if (own.paramDType == DType::bf16)
    add("mixed_precision", "bf16");
  if (own.reduceDType == DType::bf16)
    add("reduce_dtype", "bf16");
  if (own.keepLowPrecisionGrads)
    options.push_back("--keep_low_precision_grads");
  add("loss", spelled(own.loss.kind));
  if (own.loss.kind != LossKind::model)
    add("loss_reduction", spelled(own.loss.reduction));
  if (own.loss.classAxis) {
    add("class_axis", std::to_string(*own.loss.classAxis));
    add("ignore_index", std::to_string(own.loss.ignoreIndex));
  }
  if (own.loss.labelSmoothing != 0)
    add("label_smoothing", doubleText(own.loss.labelSmoothing));
  add("optimizer", spelled(own.optimizer.kind));
  for (const auto &[name, value] : own.optimizer.scalars)
    if (name != "beta1" && name != "beta2")
      add(name, doubleText(value));
  if (!own.optimizer.noDecay.empty())
    add("no_decay", own.optimizer.noDecay);
  if (own.optimizer.scalars.count("beta1"))
    add("betas", doubleText(own.optimizer.scalars.at("beta1")) + "," + doubleText(own.optimizer.scalars.at("beta2")));
  for (auto [name, isOn] : {std::pair("nesterov", own.optimizer.nesterov), {"centered", own.optimizer.centered}})
    if (isOn)
      options.push_back(std::string("--") + name);
  if (own.optimizer.maxNorm)
    add("max_norm", doubleText(*own.optimizer.maxNorm));
  add("auto_wrap_policy", spelled(own.autoWrapPolicy));
  if (own.autoWrapPolicy == WrapPolicy::sizeBased)
    add("min_num_params", std::to_string(own.minNumParams));
  options.push_back(own.decisions.forwardPrefetch ? "--forward_prefetch" : "--no_forward_prefetch");
  add("backward_prefetch", spelled(own.decisions.backwardPrefetch));
  add("max_inflight_all_gathers", std::to_string(own.decisions.maxInflightAllGathers));
  add("activation_checkpointing", spelled(own.choices.activationCheckpointing));
  if (own.choices.activationCheckpointing == ActivationCheckpointing::budget)
    add("activation_memory_budget", doubleText(own.activationMemoryBudget));
  if (own.choices.offload != Offload::none)
    options.push_back("--offload_" + spelled(own.choices.offload));
  if (own.offloadsActivations)
    options.push_back("--offload_activations");
  if (own.choices.rows == RowLookup::on)
    add("rows", "on");
  return options;
}

/// The expected results, and results of perturbed modules. Their difference gives the limit. For a program in f32, f32
/// results are rounded, and what layer norm rounds within. For a program in bf16 results as well, since values that
/// differ in the last bit of f32 may round to neighbours in bf16, also roundings within attention, and the same module
/// in f32.
llvm::Expected<std::vector<Tensors>> referenceRuns(const Module &graph, const Module &trained, const Choices &choices,
                                                   const Tensors &batch, uint64_t seed, const Target &target) {
  std::vector<std::unique_ptr<Module>> modules;
  modules.push_back(copyOf(trained));
  for (int bits : {29, 30})
    modules.push_back(withRounding(trained, bits));
  for (const InnerRounding &inner : {layerNormInFloat32, attentionInBfloat16})
    for (int draw = 0; draw < inner.draws; ++draw)
      if (inner.dtype == choices.options.paramDType)
        modules.push_back(withInnerRounding(trained, inner, seed, draw));
  if (choices.options.paramDType != DType::f32) {
    PipelineOptions single = choices.options;
    single.paramDType = single.reduceDType = DType::f32;
    single.keepLowPrecisionGrads = false;
    llvm::Expected<Compiled> compiled = compileStages(graph, single, target, Stage::train);
    if (!compiled)
      return compiled.takeError();
    modules.push_back(std::move(compiled->stages.at(Stage::train)));
  }
  std::vector<Tensors> runs;
  for (const std::unique_ptr<Module> &module : modules) {
    llvm::Expected<Outcome> outcome = train(*module, batch, seed, 1);
    if (!outcome)
      return outcome.takeError();
    runs.push_back(named(*outcome));
  }
  return runs;
}

} // namespace

llvm::Error writeEmittedCase(uint64_t seed, int64_t graphs, llvm::StringRef folder, llvm::StringRef graphFile) {
  GenerateOptions generation{/*emittable=*/true, graphs};
  Choices choices = choose(seed, generation);
  if (seed % bfloat16Period == 0) {
    Random random(seed, "precision");
    choices.options.paramDType = DType::bf16;
    choices.options.reduceDType = choices.ranks > 1 ? random.pick({DType::f32, DType::bf16}) : DType::f32;
    choices.options.keepLowPrecisionGrads =
        choices.options.microSteps == 1 && choices.options.reduceDType == DType::bf16 && random.chance(0.5);
  }
  std::unique_ptr<Module> graph;
  if (graphFile.empty())
    graph = generate(seed, choices, generation);
  else if (llvm::Error error = parseFile(graphFile).moveInto(graph))
    return error;
  std::unique_ptr<Target> target = makeCpuTarget({});
  llvm::Expected<Compiled> compiled = compileStages(*graph, choices.options, *target, Stage::sharded);
  if (!compiled)
    return compiled.takeError();
  const Function &step = *compiled->stages.at(Stage::sharded)->function(FunctionKind::microStep);
  if (!containsOp(step, Op::gatherRows))
    choices.options.choices.rows = RowLookup::automatic; // the driver refuses a choice that changes nothing
  const Module &trained = *compiled->stages.at(Stage::train);
  Tensors batch =
      globalBatch(trained, choices, seed, choices.ranks * choices.options.microSteps * choices.options.microBatchSize);
  llvm::Expected<std::vector<Tensors>> runs = referenceRuns(*graph, trained, choices, batch, seed, *target);
  if (!runs)
    return runs.takeError();
  Tensors sums;
  if (isHalf(choices.options.reduceDType)) {
    llvm::Expected<Outcome> outcome = train(*withAbsoluteSums(trained), batch, seed, 1);
    if (!outcome)
      return outcome.takeError();
    outcome->parameters.clear();
    sums = named(*outcome);
  }
  bool isSingle = choices.options.paramDType == DType::f32;
  if (llvm::Error error = addLimits(runs->front(), llvm::ArrayRef(*runs).drop_front(), sums,
                                    isSingle ? timesFloat32 : timesBfloat16, smallestLimitOf(choices)))
    return error;
  batch.erase("sample_weight");
  std::string options;
  for (const std::string &option : optionsOf(choices))
    options += option + "\n";
  llvm::Error errors = writeText(folder + "/graph.fsir", toText(*graph));
  errors = joinErrors(std::move(errors), writeText(folder + "/options.txt", options));
  errors = joinErrors(std::move(errors), writeSafetensors((folder + "/batch.safetensors").str(), batch));
  errors = joinErrors(std::move(errors),
                      writeSafetensors((folder + "/weights.safetensors").str(), parameterValues(*graph, seed)));
  return joinErrors(std::move(errors), writeSafetensors((folder + "/reference.safetensors").str(), runs->front()));
}

} // namespace fsdpc
