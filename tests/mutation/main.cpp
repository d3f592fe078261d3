// How many faults, put into real planned programs at random places, does the checker reject?
//
//   fsdpc_mutation_tests [--per_class 50] [--seed 1] [--only "wrong scale"] [--verbose] [--audit]
//
// Every mutant is one edit (mutators.h) of the planned text of a fixture compiled with some strategy. It counts as
// rejected when verify() or the checker says no. A survivor is run by the machine (planned_machine.h) under random
// legal interleavings: if every one leaves what the unmutated program leaves, bit for bit, the edit was no fault and is
// excused. (--audit also runs what the checker rejected, to tell how many of these the machine sees: slow.) A class
// fails if fewer than 98 % of its faults are rejected, or fewer than all where it must be all.
#include "ir/text/text.h"
#include "ir/verify.h"
#include "passes/check/check_schedule.h"
#include "tests/mutation/mutators.h"
#include "tests/mutation/planned_machine.h"
#include "tests/mutation/programs.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fsdpc::mutation {
namespace {

struct Settings {
  uint64_t seed = 1;
  int perClass = 50;
  std::string only;
  bool verbose = false;
  bool audit = false;
};

constexpr uint64_t interleavings = 16, interleavingsOfLarge = 3;
constexpr uint64_t interleavingsOfRight = 4;
constexpr rlim_t judgeSeconds = 60;

enum class Verdict { byVerify, byChecker, survived };

struct Counts {
  int made = 0, byVerify = 0, byChecker = 0, survived = 0, excused = 0;
  int seen = 0; ///< of byChecker: the machine leaves something else
  int faults() const { return made - excused; }
};

bool failed(llvm::Error error, std::string &message) {
  if (!error)
    return false;
  message = llvm::toString(std::move(error));
  return true;
}

Verdict judge(const Module &train, const Module &mutant, std::string &message) {
  if (failed(verify(mutant), message))
    return Verdict::byVerify;
  if (failed(checkPlanned(mutant), message) || failed(checkAgainstTrain(train, mutant), message))
    return Verdict::byChecker;
  return Verdict::survived;
}

/// In a process of its own: what a wrong program reads may be anything.
bool meansTheSame(const Module &mutant, const Outcome &wanted, uint64_t interleavings) {
  pid_t child = fork();
  if (child == 0) {
    rlimit limit{judgeSeconds, judgeSeconds};
    setrlimit(RLIMIT_CPU, &limit);
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    for (uint64_t seed = 1; seed <= interleavings; ++seed)
      if (std::optional<Outcome> outcome = runPlanned(mutant, seed); !outcome || *outcome != wanted)
        _exit(1);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

class Session {
public:
  Session(Settings settings, std::vector<Program> programs)
      : settings(std::move(settings)), programs(std::move(programs)), outcomes(this->programs.size()) {}

  /// (passed, failed)
  std::pair<int, int> run() {
    int passedCount = checkUnmutated() ? 1 : 0, failedCount = 1 - passedCount;
    llvm::outs() << llvm::formatv("{0,-24} {1,6} {2,7} {3,8} {4,9} {5,8} {6,7}\n", "class", "made", "verify", "checker",
                                  "survived", "excused", "caught");
    uint64_t index = 0;
    for (const FaultClass &faultClass : faultClasses()) {
      ++index;
      if (!settings.only.empty() && settings.only != faultClass.name)
        continue;
      (runClass(faultClass, settings.seed * 1000000 + index * 10000) ? passedCount : failedCount)++;
    }
    printRow("all", total);
    return {passedCount, failedCount};
  }

private:
  /// No false alarms, and the same outcome in every interleaving.
  bool checkUnmutated() {
    bool right = true;
    for (size_t i = 0; i < programs.size(); ++i) {
      std::string message;
      if (judge(*programs[i].train, *programs[i].planned, message) != Verdict::survived) {
        llvm::outs() << "FALSE ALARM: " << programs[i].name << ": " << message << "\n";
        right = false;
      } else if (programs[i].isSmall && !meansTheSame(*programs[i].planned, outcomeOf(i), interleavingsOfRight)) {
        llvm::outs() << "NOT DETERMINED: " << programs[i].name << "\n";
        right = false;
      }
    }
    llvm::outs() << programs.size() << " programs\n";
    return right;
  }

  const Outcome &outcomeOf(size_t program) {
    if (outcomes[program].empty())
      outcomes[program] = runPlanned(*programs[program].planned, 0).value_or(Outcome());
    return outcomes[program];
  }

  bool isExcused(const Module &mutant, size_t program) {
    return meansTheSame(mutant, outcomeOf(program), programs[program].isSmall ? interleavings : interleavingsOfLarge);
  }

  /// Large programs take longer, and seldom teach more.
  size_t pickProgram(Random &random) {
    size_t which = random.below(programs.size());
    return programs[which].isSmall || random.below(4) == 0 ? which : random.below(programs.size());
  }

  bool runClass(const FaultClass &faultClass, uint64_t firstSeed) {
    Counts counts;
    int attempts = 40 * settings.perClass;
    for (uint64_t seed = firstSeed; counts.faults() < settings.perClass && attempts-- > 0; ++seed)
      runMutant(faultClass, seed, counts);
    printRow(faultClass.name, counts);
    total.made += counts.made;
    total.byVerify += counts.byVerify;
    total.byChecker += counts.byChecker;
    total.survived += counts.survived;
    total.excused += counts.excused;
    total.seen += counts.seen;
    int missed = counts.survived - counts.excused;
    bool enough = faultClass.mustBeCaught ? missed == 0 : missed * 50 <= counts.faults();
    return enough && counts.faults() >= settings.perClass;
  }

  void runMutant(const FaultClass &faultClass, uint64_t seed, Counts &counts) {
    Random random(seed);
    size_t which = pickProgram(random);
    const Program &program = programs[which];
    std::unique_ptr<Module> mutant = llvm::cantFail(parse(llvm::MemoryBufferRef(program.text, program.name)));
    std::optional<std::string> what = faultClass.mutate(*mutant, random);
    if (!what || toText(*mutant) == program.text)
      return;
    ++counts.made;
    std::string message;
    Verdict verdict = judge(*program.train, *mutant, message);
    counts.byVerify += verdict == Verdict::byVerify;
    counts.byChecker += verdict == Verdict::byChecker;
    counts.survived += verdict == Verdict::survived;
    bool excused = verdict == Verdict::survived && isExcused(*mutant, which);
    counts.excused += excused;
    if (settings.audit && verdict == Verdict::byChecker)
      counts.seen += !isExcused(*mutant, which);
    if (settings.verbose || (verdict == Verdict::survived && !excused))
      llvm::outs() << (verdict == Verdict::survived ? excused ? "  excused " : "  MISSED " : "  rejected ")
                   << faultClass.name << " seed " << seed << " in " << program.name << ": " << *what << "\n"
                   << (message.empty() ? "" : "    " + message + "\n");
  }

  void printRow(llvm::StringRef name, const Counts &counts) const {
    double caught = counts.faults() == 0 ? 0 : 100.0 * (counts.byVerify + counts.byChecker) / counts.faults();
    llvm::outs() << llvm::formatv("{0,-24} {1,6} {2,7} {3,8} {4,9} {5,8} {6,6:F1}%\n", name, counts.made,
                                  counts.byVerify, counts.byChecker, counts.survived, counts.excused, caught);
    if (settings.audit)
      llvm::outs() << "    the machine sees " << counts.seen << " of " << counts.byChecker << "\n";
    llvm::outs().flush();
  }

  const Settings settings;
  const std::vector<Program> programs;
  std::vector<Outcome> outcomes;
  Counts total;
};

Settings settingsOf(int argc, char **argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    llvm::StringRef option = argv[i];
    bool hasValue = i + 1 < argc;
    if (option == "--verbose")
      settings.verbose = true;
    else if (option == "--audit")
      settings.audit = true;
    else if (option == "--seed" && hasValue)
      settings.seed = std::stoull(argv[++i]);
    else if (option == "--per_class" && hasValue)
      settings.perClass = std::stoi(argv[++i]);
    else if (option == "--only" && hasValue)
      settings.only = argv[++i];
  }
  return settings;
}

} // namespace
} // namespace fsdpc::mutation

int main(int argc, char **argv) {
  using namespace fsdpc::mutation;
  Settings settings = settingsOf(argc, argv);
  llvm::outs() << "seed " << settings.seed << ", " << settings.perClass << " faults per class\n";
  auto [passed, failed] = Session(settings, compilePrograms()).run();
  llvm::outs() << passed << " passed, " << failed << " failed\n";
  return failed == 0 ? 0 : 1;
}
