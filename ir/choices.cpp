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

/// Every value of a type of choices, spelled.
template <class T>
constexpr std::nullptr_t spellings = nullptr;
template <>
constexpr Spelling<Strategy> spellings<Strategy>[] = {
    {Strategy::noShard, "no_shard"},
    {Strategy::shardOptimizer, "shard_optimizer"},
    {Strategy::hybridShardZero2, "hybrid_shard_zero2"},
    {Strategy::shardGradOp, "shard_grad_op"},
    {Strategy::hybridShard, "hybrid_shard"},
    {Strategy::fullShard, "full_shard"},
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
constexpr Spelling<DType> spellings<DType>[] = {
    {DType::f32, "fp32"},
    {DType::bf16, "bf16"},
    {DType::f16, "fp16"},
};
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

template <auto field>
constexpr UnitChoice row(llvm::StringRef name) {
  using Field = std::remove_cvref_t<decltype(std::declval<UnitChoices>().*field)>;
  using T = typename PlainType<Field>::type;
  return {name,
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
          [](const UnitChoices &from, UnitChoices &to) { to.*field = from.*field; }, choiceValues<T>};
}

constexpr UnitChoice rows[] = {
    row<&UnitChoices::strategy>("strategy"),
    row<&UnitChoices::reshardAfterForward>("reshard_after_forward"),
    row<&UnitChoices::forwardPrefetch>("forward_prefetch"),
    row<&UnitChoices::backwardPrefetch>("backward_prefetch"),
    row<&UnitChoices::activationCheckpointing>("activation_checkpointing"),
    row<&UnitChoices::accumulation>("accumulation"),
    row<&UnitChoices::offload>("offload"),
    row<&UnitChoices::offloadActivations>("offload_activations"),
    row<&UnitChoices::paramDType>("param_dtype"),
    row<&UnitChoices::reduceDType>("reduce_dtype"),
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
std::string choiceValues() {
  if constexpr (std::is_same_v<T, ReshardAfterForward>) {
    return choiceValues<Kind>() + " or a number of ranks";
  } else {
    std::string text;
    for (const auto &row : spellings<T>)
      text += (text.empty() ? "" : ", ") + row.text.str();
    return text;
  }
}

template std::string spelled(const Strategy &);
template std::string spelled(const ReshardAfterForward &);
template std::string spelled(const BackwardPrefetch &);
template std::string spelled(const ActivationCheckpointing &);
template std::string spelled(const Accumulation &);
template std::string spelled(const Offload &);
template std::string spelled(const DType &);
template std::string spelled(const bool &);
template std::string choiceValues<Strategy>();
template std::string choiceValues<ReshardAfterForward>();
template std::string choiceValues<BackwardPrefetch>();
template std::string choiceValues<ActivationCheckpointing>();
template std::string choiceValues<Accumulation>();
template std::string choiceValues<Offload>();
template std::string choiceValues<DType>();
template std::string choiceValues<bool>();
template std::optional<Strategy> choiceFrom(llvm::StringRef);
template std::optional<ReshardAfterForward> choiceFrom(llvm::StringRef);
template std::optional<BackwardPrefetch> choiceFrom(llvm::StringRef);
template std::optional<ActivationCheckpointing> choiceFrom(llvm::StringRef);
template std::optional<Accumulation> choiceFrom(llvm::StringRef);
template std::optional<Offload> choiceFrom(llvm::StringRef);
template std::optional<DType> choiceFrom(llvm::StringRef);
template std::optional<bool> choiceFrom(llvm::StringRef);

} // namespace fsdpc
