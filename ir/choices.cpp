#include "ir/choices.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace fsdpc {

namespace {

template <class T>
struct Spelling {
  T value;
  llvm::StringRef text;
};

/// Every value of a choice type with its spelling.
template <class T>
constexpr std::nullptr_t spellings = nullptr;
template <>
constexpr Spelling<Strategy> spellings<Strategy>[] = {
    {Strategy::fullShard, "full_shard"},
    {Strategy::shardGradOp, "shard_grad_op"},
    {Strategy::noShard, "no_shard"},
    {Strategy::hybridShard, "hybrid_shard"},
    {Strategy::hybridShardZero2, "hybrid_shard_zero2"},
    {Strategy::shardOptimizer, "shard_optimizer"},
};
template <>
constexpr Spelling<BackwardPrefetch> spellings<BackwardPrefetch>[] = {
    {BackwardPrefetch::pre, "backward_pre"},
    {BackwardPrefetch::post, "backward_post"},
    {BackwardPrefetch::none, "no_prefetch"},
};
template <>
constexpr Spelling<ActivationCheckpointing> spellings<ActivationCheckpointing>[] = {
    {ActivationCheckpointing::none, "none"},
    {ActivationCheckpointing::full, "full"},
    {ActivationCheckpointing::selective, "selective"},
    {ActivationCheckpointing::budget, "budget"},
};
template <>
constexpr Spelling<Accumulation> spellings<Accumulation>[] = {
    {Accumulation::reduce, "reduce"},
    {Accumulation::keepGradients, "keep_gradients"},
    {Accumulation::keepParameters, "keep_parameters"},
    {Accumulation::keepBoth, "keep_both"},
};
template <>
constexpr Spelling<Offload> spellings<Offload>[] = {
    {Offload::none, "none"},
    {Offload::optimizer, "optimizer"},
    {Offload::params, "params"},
};
template <>
constexpr Spelling<RowLookup> spellings<RowLookup>[] = {
    {RowLookup::automatic, "auto"}, {RowLookup::on, "on"}, {RowLookup::off, "off"}};
template <>
constexpr Spelling<DType> spellings<DType>[] = {
    {DType::f32, "fp32"},
    {DType::bf16, "bf16"},
    {DType::f16, "fp16"},
};
template <>
constexpr Spelling<WrapPolicy> spellings<WrapPolicy>[] = {{WrapPolicy::automatic, "auto"},
                                                          {WrapPolicy::transformerBased, "transformer_based_wrap"},
                                                          {WrapPolicy::sizeBased, "size_based_wrap"},
                                                          {WrapPolicy::manual, "manual"},
                                                          {WrapPolicy::none, "no_wrap"}};
template <>
constexpr Spelling<LossKind> spellings<LossKind>[] = {
    {LossKind::crossEntropy, "cross_entropy"},
    {LossKind::nll, "nll"},
    {LossKind::mse, "mse"},
    {LossKind::l1, "l1"},
    {LossKind::bceWithLogits, "bce_with_logits"},
    {LossKind::model, "model"},
};
template <>
constexpr Spelling<LossReduction> spellings<LossReduction>[] = {
    {LossReduction::mean, "mean"},
    {LossReduction::sum, "sum"},
};
template <>
constexpr Spelling<OptimizerKind> spellings<OptimizerKind>[] = {
    {OptimizerKind::adamw, "adamw"},       {OptimizerKind::adam, "adam"},       {OptimizerKind::sgd, "sgd"},
    {OptimizerKind::adadelta, "adadelta"}, {OptimizerKind::adagrad, "adagrad"}, {OptimizerKind::rmsprop, "rmsprop"},
    {OptimizerKind::lion, "lion"},
};
template <>
constexpr Spelling<NonFinite> spellings<NonFinite>[] = {
    {NonFinite::error, "error"}, {NonFinite::skip, "skip"}, {NonFinite::warn, "warn"}};
template <>
constexpr Spelling<Streams> spellings<Streams>[] = {
    {Streams::automatic, "auto"}, {Streams::inlined, "inline"}, {Streams::threads, "threads"}};
template <>
constexpr Spelling<CudaGraph> spellings<CudaGraph>[] = {
    {CudaGraph::automatic, "auto"}, {CudaGraph::on, "on"}, {CudaGraph::off, "off"}};
template <>
constexpr Spelling<bool> spellings<bool>[] = {{true, "on"}, {false, "off"}};
using Kind = ReshardAfterForward::Kind;
template <>
constexpr Spelling<Kind> spellings<Kind>[] = {
    {Kind::byPosition, "default"}, {Kind::always, "always"}, {Kind::never, "never"}};

template <class T>
struct PlainType {
  using type = T;
};
template <class T>
struct PlainType<std::optional<T>> {
  using type = T;
};

/// The descriptive fields of a row, for people and for options.
struct ChoiceDescription {
  llvm::StringRef option, help, before;
  llvm::StringRef synonyms = {}, optionDefault = {};
  Matters matters = Matters::always;
};

template <auto field>
constexpr UnitChoice row(llvm::StringRef name, ChoiceDescription described) {
  using Field = std::remove_cvref_t<decltype(std::declval<UnitChoices>().*field)>;
  using T = typename PlainType<Field>::type;
  return {name,
          described.option,
          described.help,
          described.before,
          described.synonyms,
          described.optionDefault,
          described.matters,
          [](const UnitChoices &choices) {
            if constexpr (std::is_same_v<Field, T>)
              return spelled(choices.*field);
            else
              return choices.*field ? spelled(*(choices.*field)) : std::string();
          },
          [](llvm::StringRef text, UnitChoices &choices) {
            std::optional<T> value = choiceFrom<T>(text);
            if (value)
              choices.*field = *value;
            return value.has_value();
          },
          [](const UnitChoices &from, UnitChoices &to) { to.*field = from.*field; },
          choiceValues<T>,
          choiceSpellings<T>,
          std::is_same_v<T, bool> || std::is_same_v<T, Offload>,
          std::is_same_v<T, ReshardAfterForward>};
}

constexpr llvm::StringLiteral dtypeSynonyms = "float32=fp32|bfloat16=bf16|float16=fp16";

constexpr UnitChoice rows[] = {
    row<&UnitChoices::strategy>(
        "strategy",
        {.option = "strategy",
         .help = "how parameters, gradients and optimizer state are sharded; auto: searches the fastest plan within "
                 "memory_budget",
         .before = "data_parallel_shard_degree",
         .synonyms = "1=full_shard|zero3=full_shard|2=shard_grad_op|zero2=shard_grad_op|3=no_shard|ddp=no_shard|"
                     "4=hybrid_shard|hsdp=hybrid_shard|5=hybrid_shard_zero2|zero1=shard_optimizer|auto"}),
    row<&UnitChoices::reshardAfterForward>(
        "reshard_after_forward",
        {.option = "reshard_after_forward",
         .help = "when forward frees a gathered unit; N: reshard it to groups of N ranks; default: keep the last unit",
         .before = "auto_wrap_policy",
         .matters = Matters::gatheredPerUse}),
    row<&UnitChoices::forwardPrefetch>("forward_prefetch", {.option = "forward_prefetch",
                                                            .help = "gather the next unit while this one computes",
                                                            .before = "max_inflight_all_gathers",
                                                            .optionDefault = "true",
                                                            .matters = Matters::gatheredInStep}),
    row<&UnitChoices::backwardPrefetch>("backward_prefetch", {.option = "backward_prefetch",
                                                              .help = "when backward gathers the next unit",
                                                              .before = "forward_prefetch",
                                                              .optionDefault = "backward_pre",
                                                              .matters = Matters::gatheredPerUse}),
    row<&UnitChoices::activationCheckpointing>("activation_checkpointing",
                                               {.option = "activation_checkpointing",
                                                .help = "what backward recomputes. full: all but the inputs of units; "
                                                        "selective: all but those and results of matmuls, attention "
                                                        "and convolutions; budget: what takes the least "
                                                        "time within activation_memory_budget",
                                                .before = "activation_memory_budget"}),
    row<&UnitChoices::accumulation>("accumulation",
                                    {.option = "accumulation",
                                     .help = "with several micro-steps. reduce: reduce gradients in each; "
                                             "keep_gradients: unsharded until the last, reduced "
                                             "once; keep_parameters: parameters stay unsharded too, gathered once",
                                     .before = "overlap_comm"}),
    row<&UnitChoices::offload>("offload",
                               {.option = "offload_params",
                                .help = "keep parameter shards, gradients and optimizer state in host memory; the "
                                        "optimizer steps there",
                                .before = "offload_optimizer",
                                .optionDefault = "false"}),
    row<&UnitChoices::rows>("rows", {.option = "rows",
                                     .help = "parameters that are only looked up by rows, such as embeddings: ranks "
                                             "exchange the rows instead of gathering the table; auto: where few rows "
                                             "of a large table are looked up",
                                     .before = "overlap_comm",
                                     .matters = Matters::gatheredInStep}),
    row<&UnitChoices::offloadActivations>("offload_activations",
                                          {.option = "offload_activations",
                                           .help = "keep activations that backward reads in host memory",
                                           .before = "offload_share",
                                           .optionDefault = "false"}),
    row<&UnitChoices::paramDType>("param_dtype", {.option = "param_dtype",
                                                  .help = "dtype of gathered parameters and activations; default: from "
                                                          "mixed_precision",
                                                  .before = "reduce_dtype",
                                                  .synonyms = dtypeSynonyms,
                                                  .optionDefault = "fp32"}),
    row<&UnitChoices::reduceDType>(
        "reduce_dtype", {.option = "reduce_dtype",
                         .help = "dtype in which gradients are sent and summed over ranks (torch's default is the "
                                 "param_dtype); cpu adds in "
                                 "fp32 and rounds the sum, NCCL adds in this type; sums over micro-steps are fp32",
                         .before = "output_dtype",
                         .synonyms = dtypeSynonyms,
                         .optionDefault = "fp32"}),
};

} // namespace

llvm::ArrayRef<UnitChoice> unitChoices() { return rows; }

const UnitChoice *unitChoice(llvm::StringRef name) {
  const UnitChoice *row = llvm::find_if(rows, [&](const UnitChoice &row) { return row.name == name; });
  return row == std::end(rows) ? nullptr : row;
}

template <class T>
std::string spelled(const T &value) {
  if constexpr (std::is_same_v<T, ReshardAfterForward>)
    return value.kind == Kind::toGroups ? llvm::itostr(value.groupSize) : spelled(value.kind);
  else
    return llvm::find_if(spellings<T>, [&](const auto &row) { return row.value == value; })->text.str();
}

template <class T>
std::optional<T> choiceFrom(llvm::StringRef text) {
  if constexpr (std::is_same_v<T, ReshardAfterForward>) {
    int64_t size;
    if (!text.getAsInteger(10, size))
      return size >= 1 ? std::optional(T{Kind::toGroups, size}) : std::nullopt;
    std::optional<Kind> kind = choiceFrom<Kind>(text);
    return kind ? std::optional(T{*kind}) : std::nullopt;
  } else {
    const auto *row = llvm::find_if(spellings<T>, [&](const auto &row) { return row.text == text; });
    return row == std::end(spellings<T>) ? std::nullopt : std::optional<T>(row->value);
  }
}

template <class T>
llvm::SmallVector<llvm::StringRef, 6> choiceSpellings() {
  llvm::SmallVector<llvm::StringRef, 6> texts;
  if constexpr (std::is_same_v<T, ReshardAfterForward>)
    return choiceSpellings<Kind>();
  else
    for (const auto &row : spellings<T>)
      texts.push_back(row.text);
  return texts;
}

template <class T>
std::string choiceValues() {
  const std::string texts = llvm::join(choiceSpellings<T>(), ", ");
  return std::is_same_v<T, ReshardAfterForward> ? texts + " or a number of ranks" : texts;
}

template std::string spelled(const Strategy &);
template std::string spelled(const ReshardAfterForward &);
template std::string spelled(const BackwardPrefetch &);
template std::string spelled(const ActivationCheckpointing &);
template std::string spelled(const Accumulation &);
template std::string spelled(const Offload &);
template std::string spelled(const RowLookup &);
template std::string spelled(const WrapPolicy &);
template std::string spelled(const LossKind &);
template std::string spelled(const LossReduction &);
template std::string spelled(const OptimizerKind &);
template std::string spelled(const NonFinite &);
template std::string spelled(const Streams &);
template std::string spelled(const CudaGraph &);
template std::string spelled(const DType &);
template std::string spelled(const bool &);
template std::string choiceValues<Strategy>();
template std::string choiceValues<ReshardAfterForward>();
template std::string choiceValues<BackwardPrefetch>();
template std::string choiceValues<ActivationCheckpointing>();
template std::string choiceValues<Accumulation>();
template std::string choiceValues<Offload>();
template std::string choiceValues<RowLookup>();
template std::string choiceValues<WrapPolicy>();
template std::string choiceValues<LossKind>();
template std::string choiceValues<LossReduction>();
template std::string choiceValues<OptimizerKind>();
template std::string choiceValues<NonFinite>();
template std::string choiceValues<Streams>();
template std::string choiceValues<CudaGraph>();
template std::string choiceValues<DType>();
template std::string choiceValues<bool>();
template llvm::SmallVector<llvm::StringRef, 6> choiceSpellings<LossKind>();
template llvm::SmallVector<llvm::StringRef, 6> choiceSpellings<LossReduction>();
template llvm::SmallVector<llvm::StringRef, 6> choiceSpellings<OptimizerKind>();
template std::optional<Strategy> choiceFrom(llvm::StringRef);
template std::optional<ReshardAfterForward> choiceFrom(llvm::StringRef);
template std::optional<BackwardPrefetch> choiceFrom(llvm::StringRef);
template std::optional<ActivationCheckpointing> choiceFrom(llvm::StringRef);
template std::optional<Accumulation> choiceFrom(llvm::StringRef);
template std::optional<Offload> choiceFrom(llvm::StringRef);
template std::optional<RowLookup> choiceFrom(llvm::StringRef);
template std::optional<WrapPolicy> choiceFrom(llvm::StringRef);
template std::optional<LossKind> choiceFrom(llvm::StringRef);
template std::optional<LossReduction> choiceFrom(llvm::StringRef);
template std::optional<OptimizerKind> choiceFrom(llvm::StringRef);
template std::optional<NonFinite> choiceFrom(llvm::StringRef);
template std::optional<Streams> choiceFrom(llvm::StringRef);
template std::optional<CudaGraph> choiceFrom(llvm::StringRef);
template std::optional<DType> choiceFrom(llvm::StringRef);
template std::optional<bool> choiceFrom(llvm::StringRef);

} // namespace fsdpc
