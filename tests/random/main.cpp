// Random graphs, from the command line (README.md).
//
//   fsdpc_random check FIRST COUNT FOLDER [PLACEMENTS]   checks seeds FIRST to FIRST + COUNT - 1 in the evaluator; the
//                                              graph that violates a property, or crashes, stays in FOLDER/SEED.fsir;
//                                              full_shard and PLACEMENTS others of each graph, without it all
//   fsdpc_random fails PROPERTY SEED FILE      exits 0 if the module, trained with the choices of the seed, violates
//                                              the property: the check for `fsdpc reduce`
//   fsdpc_random ops                           prints the names of the ops that a graph can hold
//   fsdpc_random write SEED GRAPHS FOLDER [FILE]   writes inputs and expected results of a program of GRAPHS graphs, or
//                                              of the module in FILE (emitted.h)
#include "ir/text/text.h"
#include "ir/verify.h"
#include "tests/random/emitted.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"

namespace fsdpc {

namespace {

uint64_t numberOf(const char *text) {
  uint64_t number = 0;
  if (llvm::StringRef(text).getAsInteger(10, number)) {
    llvm::errs() << "fsdpc_random: " << text << " is no number\n";
    std::exit(2);
  }
  return number;
}

llvm::Error writeText(llvm::StringRef path, llvm::StringRef text) {
  std::error_code code;
  llvm::raw_fd_ostream out(path, code);
  if (code)
    return llvm::createStringError(path + ": " + llvm::Twine(code.message()));
  out << text;
  return llvm::Error::success();
}

/// The choices of a compile that the details of a violation do not show.
std::string textOf(const Choices &choices) {
  const PipelineOptions &options = choices.options;
  return std::to_string(choices.ranks) + " ranks, " + std::to_string(options.microBatchSize) + " samples, " +
         std::to_string(options.microSteps) + " micro-steps" + (choices.ordersSums ? ", sums in order" : "") +
         (options.splitSamples ? ", samples one by one" : "");
}

int check(uint64_t first, uint64_t count, llvm::StringRef folder, size_t placements) {
  Tally tally;
  int violations = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    // A crash is attributed to this seed: the reader of the output sees that no later seed begins.
    llvm::outs() << "seed " << seed << '\n';
    llvm::outs().flush();
    Choices choices = choose(seed, {});
    std::unique_ptr<Module> graph = generate(seed, choices, {});
    std::string path = (folder + "/" + llvm::Twine(seed) + ".fsir").str();
    if (llvm::Error error = writeText(path, toText(*graph))) {
      llvm::errs() << toString(std::move(error)) << '\n';
      return 2;
    }
    std::optional<Violation> found = violationOf(*graph, choices, seed, *targetOf(choices), tally, placements);
    if (!found) {
      llvm::sys::fs::remove(path);
      continue;
    }
    ++violations;
    llvm::outs() << "violation " << seed << ' ' << found->property << ": " << textOf(choices) << ": " << found->details
                 << '\n';
  }
  for (auto [name, ops] : {std::pair("ops", &tally.reached), {"drawn", &tally.drawn}}) {
    llvm::outs() << name;
    for (const auto &op : *ops)
      llvm::outs() << ' ' << op.first();
    llvm::outs() << '\n';
  }
  const ReferenceCounts &reference = tally.reference;
  llvm::outs() << "slopes " << reference.slopes << " redrawn " << reference.redrawn << " kinks " << reference.atKinks
               << " not_rebatched " << reference.notRebatched << "\nchecked " << count << " graphs, " << violations
               << " violations\n";
  return violations ? 1 : 0;
}

int fails(llvm::StringRef property, uint64_t seed, llvm::StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer)
    return 2;
  llvm::Expected<std::unique_ptr<Module>> graph = parse((*buffer)->getMemBufferRef());
  if (!graph) {
    llvm::errs() << toString(graph.takeError()) << '\n';
    return 2;
  }
  Tally tally;
  Choices choices = choose(seed, {});
  std::optional<Violation> found = violationOf(**graph, choices, seed, *targetOf(choices), tally);
  if (found)
    llvm::outs() << found->property << ": " << found->details << '\n';
  return found && found->property == property ? 0 : 1;
}

int listOps() {
  for (Op op : allOps())
    if (infoOf(op).stages.contain(Stage::graph))
      llvm::outs() << infoOf(op).name << '\n';
  return 0;
}

int write(uint64_t seed, uint64_t graphs, llvm::StringRef folder, llvm::StringRef graphFile) {
  llvm::Error error = writeEmittedCase(seed, static_cast<int64_t>(graphs), folder, graphFile);
  if (!error)
    return 0;
  llvm::errs() << toString(std::move(error)) << '\n';
  return 1;
}

int usage() {
  llvm::errs()
      << "usage: fsdpc_random check FIRST COUNT FOLDER [PLACEMENTS] | fails PROPERTY SEED FILE | ops | write SEED "
         "GRAPHS FOLDER [FILE]\n";
  return 2;
}

} // namespace

} // namespace fsdpc

int main(int count, char **arguments) {
  using namespace fsdpc;
  llvm::StringRef command = count > 1 ? arguments[1] : "";
  if (command == "check" && (count == 5 || count == 6))
    return check(numberOf(arguments[2]), numberOf(arguments[3]), arguments[4],
                 count == 6 ? numberOf(arguments[5]) : everyPlacement);
  if (command == "fails" && count == 5)
    return fails(arguments[2], numberOf(arguments[3]), arguments[4]);
  if (command == "ops" && count == 2)
    return listOps();
  if (command == "write" && (count == 5 || count == 6))
    return write(numberOf(arguments[2]), numberOf(arguments[3]), arguments[4], count == 6 ? arguments[5] : "");
  return usage();
}
