#include "frontend/search/candidate.h"

#include "frontend/options/resolve.h"
#include "passes/shard/placement.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Regex.h"

namespace fsdpc {

namespace {

std::string textOf(int64_t number) { return llvm::itostr(number); }
std::string textOf(bool flag) { return flag ? "true" : "false"; }
std::string textOf(std::optional<double> share) {
  std::string text;
  if (share)
    llvm::raw_string_ostream(text) << llvm::format("%g", *share);
  return text;
}
std::string textOf(std::optional<int64_t> chunk) { return !chunk ? "auto" : *chunk == 0 ? "off" : textOf(*chunk); }
template <class Choice>
std::string textOf(Choice choice) {
  return spelled(choice);
}

// The schema has checked the text. A text that is not of the field's type (--strategy auto, sizes with a unit) is
// ignored here.
void readText(llvm::StringRef text, int64_t &number) {
  int64_t value;
  number = text.getAsInteger(10, value) ? number : value;
}
void readText(llvm::StringRef text, bool &flag) { flag = text == "true"; }
void readText(llvm::StringRef text, std::optional<double> &share) {
  double number;
  share = text.getAsDouble(number) ? std::nullopt : std::optional(number);
}
void readText(llvm::StringRef text, std::optional<int64_t> &chunk) { chunk = lossChunkOf(text).value_or(std::nullopt); }
template <class Choice>
void readText(llvm::StringRef text, Choice &choice) {
  choice = choiceFrom<Choice>(text).value_or(choice);
}

/// A field and its option, in the order in which a plan is described.
struct Field {
  llvm::StringRef option;
  bool isDescribed;
  std::string (*text)(const Candidate &);
  void (*read)(llvm::StringRef text, Candidate &);
};

template <auto field>
constexpr Field row(llvm::StringRef option, bool isDescribed = true) {
  return {option, isDescribed, [](const Candidate &candidate) { return textOf(candidate.*field); },
          [](llvm::StringRef text, Candidate &candidate) { readText(text, candidate.*field); }};
}

/// The only flag whose option has names for yes and no.
template <>
constexpr Field row<&Candidate::ownReduceCommunicator>(llvm::StringRef option, bool isDescribed) {
  return {option, isDescribed,
          [](const Candidate &candidate) { return std::string(candidate.ownReduceCommunicator ? "own" : "shared"); },
          [](llvm::StringRef text, Candidate &candidate) { candidate.ownReduceCommunicator = text == "own"; }};
}

constexpr Field fields[] = {
    row<&Candidate::strategy>("strategy"),
    row<&Candidate::worldSize>("world_size", false),
    row<&Candidate::microBatchSize>("micro_batch_size", false),
    row<&Candidate::shardDegree>("data_parallel_shard_degree"),
    row<&Candidate::replicateDegree>("data_parallel_replicate_degree", false),
    row<&Candidate::checkpointing>("activation_checkpointing"),
    row<&Candidate::keptShare>("activation_memory_budget"),
    row<&Candidate::offloadsActivations>("offload_activations"),
    row<&Candidate::offloadsOptimizer>("offload_optimizer"),
    row<&Candidate::offloadsParams>("offload_params"),
    row<&Candidate::offloadShare>("offload_share"),
    row<&Candidate::maxInflightAllGathers>("max_inflight_all_gathers"),
    row<&Candidate::ownReduceCommunicator>("reduce_communicator"),
    row<&Candidate::allGatherBucketBytes>("allgather_bucket_size"),
    row<&Candidate::reduceBucketBytes>("reduce_bucket_size"),
    row<&Candidate::accumulation>("accumulation"),
    row<&Candidate::lossChunk>("loss_chunk"),
};

template <auto field>
llvm::StringRef optionOf() {
  // Each row has its own functions, so they identify the field.
  constexpr Field wanted = row<field>("");
  return llvm::find_if(fields, [&](const Field &own) { return own.text == wanted.text; })->option;
}

std::string keptUnitsText(llvm::ArrayRef<std::string> units) {
  std::vector<std::string> escaped;
  for (const std::string &unit : units)
    escaped.push_back(llvm::Regex::escape(unit));
  return llvm::join(escaped, "|") + ":reshard_after_forward=never";
}

} // namespace

bool isHybrid(Strategy strategy) { return placementOf(Unit{.choices = {.strategy = strategy}}).split == Split::shard; }

llvm::Error Candidate::read() {
  for (const Field &field : fields)
    field.read(base.text(field.option), *this);
  for (auto [option, bytes] : {std::pair<llvm::StringRef, int64_t *>{"allgather_bucket_size", &allGatherBucketBytes},
                               {"reduce_bucket_size", &reduceBucketBytes}})
    if (llvm::Error error = bytesOf(base, option).moveInto(*bytes))
      return error;
  microSteps = base.integer("gradient_accumulation_steps");
  if (base.text("memory_budget").empty())
    return llvm::Error::success();
  return bytesOf(base, "memory_budget").moveInto(budgetBytes.emplace());
}

llvm::Expected<Candidate> Candidate::of(const OptionValues &asked) {
  Candidate candidate(asked);
  if (!asked.given("threads"))
    candidate.base.resolve("threads", "0"); // follows from the number of ranks
  if (llvm::Error error = candidate.read())
    return error;
  return candidate;
}

std::optional<Candidate> Candidate::with(Strategy other, int64_t ranks) const {
  Candidate changed(values());
  changed.base.resolve("strategy", spelled(other));
  changed.base.resolve("world_size", textOf(ranks));
  dropWithoutEffect(changed.base);
  llvm::cantFail(changed.read()); // `of` has read it before
  if (!isHybrid(other) || isGiven<&Candidate::shardDegree>() || isGiven<&Candidate::replicateDegree>())
    return changed;
  for (int64_t degree : {8, 4, 2})
    if (ranks > degree && ranks % degree == 0) {
      changed.shardDegree = degree;
      changed.replicateDegree = ranks / degree;
      return changed;
    }
  return std::nullopt;
}

template <auto field>
bool Candidate::isGiven() const {
  return base.given(optionOf<field>());
}
template bool Candidate::isGiven<&Candidate::checkpointing>() const;
template bool Candidate::isGiven<&Candidate::offloadsActivations>() const;
template bool Candidate::isGiven<&Candidate::offloadsOptimizer>() const;
template bool Candidate::isGiven<&Candidate::offloadsParams>() const;
template bool Candidate::isGiven<&Candidate::offloadShare>() const;
template bool Candidate::isGiven<&Candidate::maxInflightAllGathers>() const;
template bool Candidate::isGiven<&Candidate::ownReduceCommunicator>() const;
template bool Candidate::isGiven<&Candidate::allGatherBucketBytes>() const;
template bool Candidate::isGiven<&Candidate::reduceBucketBytes>() const;
template bool Candidate::isGiven<&Candidate::accumulation>() const;
template bool Candidate::isGiven<&Candidate::lossChunk>() const;

std::string Candidate::describe(const Candidate &asked) const {
  std::string text = "--strategy " + spelled(strategy);
  for (const Field &field : llvm::ArrayRef(fields).drop_front()) {
    const std::string value = field.text(*this);
    if (field.isDescribed && value != field.text(asked) && value != defaultOf(field.option))
      text += " --" + field.option.str() + (value == "true" ? "" : " " + value);
  }
  return keptUnits.empty() ? text : text + " --unit '" + keptUnitsText(keptUnits) + '\'';
}

OptionValues Candidate::values() const {
  Candidate said(base);
  llvm::cantFail(said.read()); // `of` has read it before
  OptionValues values = base;
  for (const Field &field : fields)
    if (field.text(said) != field.text(*this))
      values.resolve(field.option, field.text(*this));
  values.resolve("strategy", spelled(strategy)); // it may be `auto` there
  if (!keptUnits.empty())
    values.append("unit", keptUnitsText(keptUnits));
  return values;
}

} // namespace fsdpc
