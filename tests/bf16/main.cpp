// Checks each node of a program against the evaluator (README.md).
//
//   fsdpc_rounding instrument OUT TARGET       writes OUT's program with recording of its nodes, and OUT/regions.txt
//   fsdpc_rounding checkOutcome OUT TARGET RECORD     exits 1 if a node's error is above the limit of bounds.h; prints
//   the
//                                              limit for each op
//   fsdpc_rounding spoil OUT TARGET RECORD     with every result 1/64 larger: exits 1 if some node still passes
#include "codegen/emit.h"
#include "ir/op.h"
#include "ir/text/text.h"
#include "tests/bf16/bounds.h"
#include "tests/bf16/recorded.h"
#include "tests/compare/compare.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MemoryBuffer.h"

#include <map>

namespace fsdpc::rounding {

namespace {

constexpr int maxFaults = 10;

llvm::Error writeFile(const llvm::Twine &path, llvm::StringRef text) {
  std::error_code code;
  llvm::raw_fd_ostream out(path.str(), code);
  if (code)
    return llvm::createStringError(path + ": " + code.message());
  out << text;
  return llvm::Error::success();
}

llvm::Expected<std::unique_ptr<Module>> plannedModule(llvm::StringRef out) {
  return parseFile((out + "/stages/planned.fsir").str());
}

/// The limits for the results of one op in one type.
struct Row {
  Rule rule = Rule::nothing;
  int64_t results = 0, elements = 0, notRounded = 0;
  double worst = 0; ///< distance over bound
};

/// Four units in the last place of bf16: a wrong result, but a small one.
constexpr double spoilFactor = 1 + 1.0 / 64;

class Judge {
public:
  Judge(KernelFacts facts, bool isQuiet) : facts(facts), isQuiet(isQuiet) {}

  void hold(const Recording &recording) {
    const Node &node = *recording.node;
    const std::optional<Rule> rule = ruleOf(node);
    if (!rule)
      return fault(node, "no rule says what it may be off");
    if (*rule == Rule::nothing || recording.results.empty()) {
      ++rows[infoOf(node).name.str()].results;
      return;
    }
    llvm::SmallVector<const HostTensor *, 8> operands;
    for (const HostTensor &operand : recording.operands)
      operands.push_back(&operand);
    const std::vector<HostTensor> values = evaluated(node, operands);
    assert(values.size() == recording.results.size() && "every result of a node with statements has a place");
    const Errors errors = errorsOf(node, operands, values, facts);
    for (size_t i = 0; i < values.size(); ++i)
      holdResult(node, *rule, values[i], errors.empty() ? std::vector<double>(values[i].values.size()) : errors[i],
                 recording.results[i]);
  }

  int64_t faultCount() const { return faults; }

  int report(llvm::raw_ostream &out) const {
    out << "op                               held to   results   elements  not rounded worst of bound\n";
    for (const auto &[name, row] : rows)
      out << llvm::format("%-32s %-10s %6lld %10lld %12lld %14.3f\n", name.c_str(), nameOf(row.rule).str().c_str(),
                          static_cast<long long>(row.results), static_cast<long long>(row.elements),
                          static_cast<long long>(row.notRounded), row.worst);
    out << faults << " faults\n";
    return faults || rows.empty() ? 1 : 0;
  }

private:
  void holdResult(const Node &node, Rule rule, const HostTensor &values, const std::vector<double> &errors,
                  const HostTensor &ours) {
    const DType dtype = values.type.dtype();
    Row &row = rows[(infoOf(node).name + " " + fsdpc::nameOf(dtype)).str()];
    row.rule = rule;
    ++row.results;
    row.elements += static_cast<int64_t>(values.values.size());
    for (size_t i = 0; i < values.values.size(); ++i) {
      const double wanted = converted(dtype, values.values[i]), own = ours.values[i];
      if (own == wanted)
        continue;
      ++row.notRounded;
      const double bound = (rule == Rule::exact ? 0 : unitInLastPlace(dtype, wanted)) + errors[i];
      const double distance = errorOf(own, wanted);
      row.worst = worseOf(row.worst, bound > 0 ? distance / bound : std::numeric_limits<double>::infinity());
      if (!std::isfinite(bound) || !(distance <= bound))
        fault(node, "element " + llvm::Twine(i) + " is " + doubleText(own) + ", the evaluator's " +
                        doubleText(values.values[i]) + "; it may be off by " + doubleText(bound));
    }
  }

  void fault(const Node &node, const llvm::Twine &text) {
    if (++faults <= maxFaults && !isQuiet)
      llvm::outs() << "fault: " << infoOf(node).name << " " << (node.resultCount() ? node.result()->name() : "") << " ("
                   << node.source << "): " << text << "\n";
  }

  const KernelFacts facts;
  const bool isQuiet;
  std::map<std::string, Row> rows;
  int64_t faults = 0;
};

llvm::Error writeInstrumented(llvm::StringRef out, llvm::StringRef target) {
  llvm::Expected<std::unique_ptr<Module>> module = plannedModule(out);
  if (!module)
    return module.takeError();
  const InstrumentedProgram program = instrument(**module, target);
  if (llvm::Error error = writeFile(out + (target == "cuda" ? "/program.cu" : "/program.cpp"), program.text))
    return error;
  return writeFile(out + "/regions.txt", program.regions);
}

/// Whether any element of a float result changed.
bool spoil(Recording &recording) {
  bool isChanged = false;
  for (HostTensor &result : recording.results)
    for (double &value : result.values) {
      isChanged |= isFloat(result.type.dtype()) && value != 0 && std::isfinite(value);
      value *= isFloat(result.type.dtype()) ? spoilFactor : 1;
    }
  return isChanged;
}

int judgeAll(std::vector<Recording> &recordings, KernelFacts facts) {
  Judge checkOutcome(facts, /*isQuiet=*/false);
  for (const Recording &recording : recordings)
    checkOutcome.hold(recording);
  return checkOutcome.report(llvm::outs());
}

/// Detects a bound that would accept anything.
int spoilAll(std::vector<Recording> &recordings, KernelFacts facts) {
  int64_t spoiled = 0, passed = 0;
  for (Recording &recording : recordings) {
    if (ruleOf(*recording.node) == Rule::nothing || !spoil(recording))
      continue;
    Judge checkOutcome(facts, /*isQuiet=*/true);
    checkOutcome.hold(recording);
    ++spoiled;
    if (checkOutcome.faultCount() == 0 && ++passed <= maxFaults)
      llvm::outs() << "not seen: " << infoOf(*recording.node).name << " " << recording.node->result()->name() << "\n";
  }
  llvm::outs() << spoiled - passed << " of " << spoiled << " spoiled nodes seen\n";
  return passed || !spoiled ? 1 : 0;
}

/// `level`: what a program of the cpu target used of the processor.
llvm::Expected<int> checkOutcome(llvm::StringRef out, llvm::StringRef target, llvm::StringRef record,
                                 llvm::StringRef level, bool spoils) {
  llvm::Expected<std::unique_ptr<Module>> module = plannedModule(out);
  if (!module)
    return module.takeError();
  llvm::Expected<std::vector<Recording>> recordings = readRecordings(instrument(**module, target).nodes, record);
  if (!recordings)
    return recordings.takeError();
  const KernelFacts facts{.roundsProbabilities = target == "cuda" || level == "amx_bf16"};
  return spoils ? spoilAll(*recordings, facts) : judgeAll(*recordings, facts);
}

} // namespace

} // namespace fsdpc::rounding

int main(int count, char **arguments) {
  using namespace fsdpc;
  const llvm::StringRef command = count > 1 ? arguments[1] : "";
  llvm::ExitOnError orExit("fsdpc_rounding: ");
  if (command == "instrument" && count == 4) {
    orExit(rounding::writeInstrumented(arguments[2], arguments[3]));
    return 0;
  }
  if ((command == "checkOutcome" || command == "spoil") && count == 6)
    return orExit(rounding::checkOutcome(arguments[2], arguments[3], arguments[4], arguments[5], command == "spoil"));
  llvm::errs() << "usage: fsdpc_rounding instrument OUT TARGET | checkOutcome OUT TARGET RECORD CPU_LEVEL | spoil OUT "
                  "TARGET RECORD CPU_LEVEL\n";
  return 2;
}
