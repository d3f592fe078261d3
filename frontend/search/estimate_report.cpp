// `fsdpc estimate`: the requested plans, and the table or JSON that shows them.
#include "frontend/compilation/compilation.h"
#include "frontend/output/output_folder.h"
#include "frontend/search/estimate.h"
#include "passes/support/bytes_text.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

namespace fsdpc {

namespace {

llvm::Error usage(const llvm::Twine &message) { return llvm::make_error<UsageError>(message.str()); }

llvm::Expected<std::vector<int64_t>> worldSizes(const OptionValues &values) {
  if (values.list("world_sizes").empty())
    return values.given("world_size") ? std::vector<int64_t>{values.integer("world_size")}
                                      : std::vector<int64_t>{1, 8, 64};
  std::vector<int64_t> sizes;
  for (llvm::StringRef text : values.list("world_sizes")) {
    int64_t size;
    if (text.getAsInteger(10, size) || size < 1)
      return usage("--world_sizes " + text + ": numbers of ranks are expected, e.g. 1,8,64");
    sizes.push_back(size);
  }
  return sizes;
}

llvm::Expected<std::vector<Strategy>> strategies(const OptionValues &values) {
  llvm::ArrayRef<std::string> asked = values.list("strategies");
  if (values.text("strategy") == "auto")
    return usage("--strategy auto: estimate shows all strategies, and chooses none");
  if (asked.empty() && values.given("strategy"))
    return std::vector<Strategy>{choiceOf<Strategy>(values, "strategy")};
  if (asked.empty() || (asked.size() == 1 && asked[0] == "all"))
    return knownStrategies();
  std::vector<Strategy> result;
  for (llvm::StringRef name : asked) {
    llvm::Expected<std::string> checked = OptionValues::checked("strategy", name);
    if (!checked)
      return checked.takeError();
    std::optional<Strategy> strategy = choiceFrom<Strategy>(*checked);
    if (!strategy)
      return usage("--strategies " + name + ": estimate chooses none; all shows each");
    result.push_back(*strategy);
  }
  return result;
}

std::string labelOf(const Estimate &estimate) {
  if (estimate.worldSize == 1)
    return "any";
  if (estimate.shardDegree == 0)
    return spelled(estimate.strategy);
  return llvm::formatv("{0} {1}x{2}", spelled(estimate.strategy), estimate.worldSize / estimate.shardDegree,
                       estimate.shardDegree)
      .str();
}

/// Numbers of one column share a unit: the largest that the largest total reaches.
struct Scale {
  llvm::StringRef name = "bytes";
  double bytes = 1;
  explicit Scale(llvm::ArrayRef<Estimate> estimates) {
    int64_t largest = 0;
    for (const Estimate &estimate : estimates)
      largest = std::max(largest, estimate.memory.totalBytes);
    for (llvm::StringRef next : {"KiB", "MiB", "GiB"})
      if (static_cast<double>(largest) >= bytes * 1024) {
        name = next;
        bytes *= 1024;
      }
  }
  std::string text(int64_t value) const { return llvm::formatv("{0:f2}", static_cast<double>(value) / bytes).str(); }
};

using Row = std::vector<std::string>;

Row rowOf(const Estimate &estimate, const Scale &scale) {
  auto of = [&](MemoryClass memoryClass) { return estimate.memory.byClass[static_cast<size_t>(memoryClass)]; };
  constexpr MemoryClass shown[] = {MemoryClass::parameters, MemoryClass::gradients, MemoryClass::optimizer,
                                   MemoryClass::gathered, MemoryClass::activations};
  Row row = {labelOf(estimate), std::to_string(estimate.worldSize)};
  int64_t rest = estimate.memory.liveAtPeakBytes;
  for (MemoryClass memoryClass : shown) {
    row.push_back(scale.text(of(memoryClass)));
    rest -= of(memoryClass);
  }
  row.push_back(scale.text(rest));
  row.push_back(scale.text(estimate.memory.totalBytes));
  for (int64_t sent :
       {estimate.sent.allGather, estimate.sent.reduceScatter, estimate.sent.allReduce, estimate.sent.total()})
    row.push_back(scale.text(sent));
  row.push_back(llvm::formatv("{0:f2}", estimate.stepMicroseconds * 1e-3).str());
  return row;
}

/// Aligns the first column left and numbers right.
void printRows(llvm::ArrayRef<Row> rows, llvm::raw_ostream &out) {
  std::vector<size_t> widths;
  for (const Row &row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      widths.resize(std::max(widths.size(), i + 1));
      widths[i] = std::max(widths[i], row[i].size());
    }
  for (const Row &row : rows) {
    std::string line;
    llvm::raw_string_ostream text(line);
    for (size_t i = 0; i < row.size(); ++i)
      if (i == 0)
        text << llvm::left_justify(row[i], static_cast<unsigned>(widths[i]));
      else
        text << "  " << llvm::right_justify(row[i], static_cast<unsigned>(widths[i]));
    out << llvm::StringRef(line).rtrim() << '\n';
  }
}

void printTable(llvm::ArrayRef<Estimate> estimates, std::optional<int64_t> budget, llvm::raw_ostream &out) {
  Scale scale(estimates);
  out << "memory of one rank at its peak, by class, and what its arenas take (total); bytes that one rank sends in a "
         "step, "
         "as rings send them; all in "
      << scale.name << "; and the predicted time of a step\n";
  std::vector<Row> rows = {{"strategy", "ranks", "parameters", "gradients", "optimizer", "gathered", "activations",
                            "other", "total", "all_gather", "reduce_scatter", "all_reduce", "sent", "step ms"}};
  if (budget)
    rows[0].push_back("fits " + bytesText(*budget));
  for (const Estimate &estimate : estimates) {
    rows.push_back(rowOf(estimate, scale));
    if (budget)
      rows.back().push_back(estimate.memory.totalBytes <= *budget ? "yes" : "no");
  }
  printRows(rows, out);
}

llvm::json::Value toJson(const Estimate &estimate) {
  llvm::json::Object byClass;
  for (size_t i = 0; i < memoryClassCount; ++i)
    byClass[nameOf(static_cast<MemoryClass>(i))] = estimate.memory.byClass[i];
  return llvm::json::Object{
      {"strategy", spelled(estimate.strategy)},
      {"world_size", estimate.worldSize},
      {"shard_degree", estimate.shardDegree},
      {"memory", llvm::json::Object{{"total_bytes", estimate.memory.totalBytes},
                                    {"by_class", std::move(byClass)},
                                    {"live_at_peak_bytes", estimate.memory.liveAtPeakBytes},
                                    {"theoretical_min_bytes", estimate.memory.theoreticalMinBytes}}},
      {"predicted_step_us", estimate.stepMicroseconds},
      {"sent_bytes", llvm::json::Object{{"all_gather", estimate.sent.allGather},
                                        {"reduce_scatter", estimate.sent.reduceScatter},
                                        {"all_reduce", estimate.sent.allReduce}}}};
}

/// Failures are printed below the table.
struct Plans {
  std::vector<Estimate> estimates;
  std::vector<std::string> failures;
};

void planOne(const Estimator &estimator, const Candidate &asked, Strategy strategy, int64_t worldSize, Plans &plans) {
  std::string what = spelled(strategy) + " on " + std::to_string(worldSize) + " ranks: ";
  std::optional<Candidate> candidate = asked.with(strategy, worldSize);
  if (!candidate) {
    plans.failures.push_back(what + "the ranks cannot be split into groups of 8, 4 or 2");
    return;
  }
  llvm::Expected<Estimate> estimate = estimator.plan(std::move(*candidate));
  if (estimate)
    plans.estimates.push_back(std::move(*estimate));
  else
    plans.failures.push_back(what + llvm::toString(estimate.takeError()));
}

llvm::Error report(const Plans &plans, const OptionValues &values, std::optional<int64_t> budget) {
  if (plans.estimates.empty())
    return llvm::createStringError(plans.failures.front());
  llvm::StringRef path = values.text("output");
  if (path.empty()) {
    printTable(plans.estimates, budget, llvm::outs());
    for (const std::string &failure : plans.failures)
      llvm::outs() << failure << '\n';
    return llvm::Error::success();
  }
  llvm::json::Array array;
  for (const Estimate &estimate : plans.estimates)
    array.push_back(toJson(estimate));
  return writeText(path, llvm::formatv("{0:2}\n", llvm::json::Value(std::move(array))).str());
}

} // namespace

llvm::Error runEstimate(const OptionValues &values) {
  if (values.positional().size() != 2)
    return usage("fsdpc estimate MODEL.onnx [options]: one model is expected");
  llvm::Expected<std::vector<int64_t>> sizes = worldSizes(values);
  if (!sizes)
    return sizes.takeError();
  llvm::Expected<std::vector<Strategy>> chosen = strategies(values);
  if (!chosen)
    return chosen.takeError();
  llvm::Expected<Candidate> asked = Candidate::of(values);
  if (!asked)
    return asked.takeError();
  llvm::Expected<Estimator> estimator = Estimator::read(values.positional()[1], values);
  if (!estimator)
    return estimator.takeError();
  Plans plans;
  for (int64_t size : *sizes)
    for (Strategy strategy : *chosen) {
      // One rank alone holds everything, whatever the strategy.
      if (size > 1 || strategy == chosen->front())
        planOne(*estimator, *asked, size > 1 ? strategy : Strategy::fullShard, size, plans);
    }
  return report(plans, values, asked->budgetBytes);
}

} // namespace fsdpc
