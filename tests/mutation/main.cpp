// Measures how many faults, injected into real planned programs at random positions, the checker rejects.
//
//   fsdpc_mutation_tests [--per_class 50] [--seed 1] [--only "wrong scale"] [--verbose] [--audit]
//   fsdpc_mutation_tests --needed PLANNED...     only checks that every event of these modules is needed
//
// Every mutant is one edit (mutators.h) of the planned text of a fixture compiled with some strategy. It counts as
// rejected if verify() or the checker rejects it. The column of the checker is its share of the faults that verify()
// accepts. A survivor is excused only by a proof that it is not a fault: run on hashes (planned_machine.h), it has no
// race and the outcome of the unmutated program. --audit also runs the mutants that the checker rejects, under random
// legal interleavings, and counts how many of them change the outcome (slow). A class fails if fewer than 98 % of its
// faults are rejected, or fewer than all for a class with mustBeCaught.
//
// Faults of events are injected into programs for a device. Brute force (event_oracle.h) finds those that are not
// faults. Every event and every executed wait is also dropped once: the checker must reject each of these plans.
#include "ir/text/text.h"
#include "ir/verify.h"
#include "passes/check/check_schedule.h"
#include "tests/mutation/event_oracle.h"
#include "tests/mutation/mutators.h"
#include "tests/mutation/needed_events.h"
#include "tests/mutation/planned_machine.h"
#include "tests/mutation/programs.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
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

constexpr uint64_t interleavings = 16, interleavingsOfLarge = 3; // of --audit
constexpr uint64_t interleavingsOfRight = 4;
constexpr rlim_t judgeSeconds = 60;

enum class Verdict { byVerify, byChecker, survived };

struct Counts {
  int made = 0, byVerify = 0, byChecker = 0, survived = 0, excused = 0;
  int seen = 0; ///< of byChecker: the machine's outcome differs
  int faults() const { return made - excused; }
};

bool failed(llvm::Error error, std::string &message) {
  if (!error)
    return false;
  message = llvm::toString(std::move(error));
  return true;
}

Verdict checkOutcome(const Module &train, const Module &mutant, std::string &message) {
  if (failed(verify(mutant), message))
    return Verdict::byVerify;
  if (failed(checkPlanned(mutant), message) || failed(checkAgainstTrain(train, mutant), message))
    return Verdict::byChecker;
  return Verdict::survived;
}

/// Evaluates `question` in a separate process: a wrong program may read anything.
bool holdsInSubprocess(llvm::function_ref<bool()> question) {
  pid_t child = fork();
  if (child == 0) {
    rlimit limit{judgeSeconds, judgeSeconds};
    setrlimit(RLIMIT_CPU, &limit);
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    _exit(question() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool hasSameOutcome(const Module &mutant, const Outcome &wanted, uint64_t interleavings) {
  return holdsInSubprocess([&] {
    for (uint64_t seed = 1; seed <= interleavings; ++seed)
      if (std::optional<Outcome> outcome = runPlanned(mutant, seed); !outcome || *outcome != wanted)
        return false;
    return true;
  });
}

bool isProvenEquivalent(const Module &mutant, const Outcome &wanted) {
  return holdsInSubprocess([&] {
    std::optional<Meaning> meaning = meaningOf(mutant);
    return meaning && !meaning->hasRace && meaning->outcome == wanted;
  });
}

bool reportNeeded(const NeededEvents &events) {
  llvm::outs() << events.all << " events and waits, " << events.superfluous << " superfluous\n";
  return events.all > 0 && events.superfluous == 0;
}

bool checkNeededFiles(llvm::ArrayRef<const char *> files) {
  NeededEvents all;
  for (const char *file : files)
    all += countNeeded(file, llvm::cantFail(llvm::errorOrToExpected(llvm::MemoryBuffer::getFile(file)))->getBuffer());
  return reportNeeded(all);
}

class Session {
public:
  Session(Settings settings, std::vector<Program> programs)
      : settings(std::move(settings)), programs(std::move(programs)), outcomes(this->programs.size()),
        meanings(this->programs.size()) {}

  /// (passed, failed)
  std::pair<int, int> run() {
    int passedCount = (checkUnmutated() ? 1 : 0) + (checkNeeded() ? 1 : 0), failedCount = 2 - passedCount;
    llvm::outs() << llvm::formatv("{0,-24} {1,6} {2,7} {3,8} {4,9} {5,8} {6,7} {7,14}\n", "class", "made", "verify",
                                  "checker", "survived", "excused", "caught", "checker alone");
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
  /// Checks that there are no false alarms, and that every interleaving has the same outcome.
  bool checkUnmutated() {
    bool right = true;
    for (size_t i = 0; i < programs.size(); ++i) {
      std::string message;
      if (checkOutcome(*programs[i].train, *programs[i].planned, message) != Verdict::survived) {
        llvm::outs() << "FALSE ALARM: " << programs[i].name << ": " << message << "\n";
        right = false;
      } else if (programs[i].isSmall && !programs[i].hasEvents &&
                 !hasSameOutcome(*programs[i].planned, outcomeOf(i), interleavingsOfRight)) {
        llvm::outs() << "NOT DETERMINED: " << programs[i].name << "\n";
        right = false;
      } else if (!programs[i].hasEvents && !isProvenEquivalent(*programs[i].planned, meaningOf(i))) {
        llvm::outs() << "NO PROOF: " << programs[i].name << "\n";
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

  const Outcome &meaningOf(size_t program) {
    if (meanings[program].empty())
      if (std::optional<Meaning> meaning = mutation::meaningOf(*programs[program].planned))
        meanings[program] = std::move(meaning->outcome);
    return meanings[program];
  }

  bool isSeenByMachine(const Module &mutant, size_t program) {
    return !hasSameOutcome(mutant, outcomeOf(program),
                           programs[program].isSmall ? interleavings : interleavingsOfLarge);
  }

  /// Prefers small programs: large ones take longer and rarely find more. The machine does not run programs for a
  /// device.
  size_t pickProgram(Random &random, bool hasEvents) {
    for (;;) {
      size_t which = random.below(programs.size());
      if (!programs[which].isSmall && random.below(4) != 0)
        which = random.below(programs.size());
      if (programs[which].hasEvents == hasEvents)
        return which;
    }
  }

  bool checkNeeded() {
    NeededEvents all;
    for (const Program &program : programs)
      if (program.hasEvents)
        all += countNeeded(program.name, program.text);
    return reportNeeded(all);
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
    bool enough = falseAlarms == 0 && (faultClass.mustBeCaught ? missed == 0 : missed * 50 <= counts.faults());
    return enough && counts.faults() >= settings.perClass;
  }

  void runMutant(const FaultClass &faultClass, uint64_t seed, Counts &counts) {
    Random random(seed);
    size_t which = pickProgram(random, faultClass.isOfEvents);
    const Program &program = programs[which];
    std::unique_ptr<Module> mutant = llvm::cantFail(parse(llvm::MemoryBufferRef(program.text, program.name)));
    std::optional<std::string> what = faultClass.mutate(*mutant, random);
    if (!what || toText(*mutant) == program.text)
      return;
    ++counts.made;
    std::string message;
    Verdict verdict = checkOutcome(*program.train, *mutant, message);
    counts.byVerify += verdict == Verdict::byVerify;
    counts.byChecker += verdict == Verdict::byChecker;
    counts.survived += verdict == Verdict::survived;
    if (faultClass.isOfEvents && compareWithOracle(*mutant, verdict, counts))
      return;
    bool excused = verdict == Verdict::survived && isProvenEquivalent(*mutant, meaningOf(which));
    counts.excused += excused;
    if (settings.audit && verdict == Verdict::byChecker)
      counts.seen += isSeenByMachine(*mutant, which);
    if (settings.verbose || (verdict == Verdict::survived && !excused))
      llvm::outs() << (verdict == Verdict::survived ? excused ? "  excused " : "  MISSED " : "  rejected ")
                   << faultClass.name << " seed " << seed << " in " << program.name << ": " << *what << "\n"
                   << (message.empty() ? "" : "    " + message + "\n");
  }

  /// Compares the verdict about events with the brute-force result over all pairs of operations: without a race the
  /// edit is not a fault, and rejecting it is a false alarm. Returns true if the mutant needs no further judgement.
  bool compareWithOracle(const Module &mutant, Verdict verdict, Counts &counts) {
    if (verdict == Verdict::byVerify)
      return true;
    std::optional<std::string> race = findRace(mutant); // nullopt: too large, counted as a fault
    const bool isFault = !race || !race->empty();
    if (!isFault && verdict == Verdict::byChecker) {
      llvm::outs() << "  FALSE ALARM: the order holds without it\n";
      ++falseAlarms;
    }
    counts.excused += !isFault && verdict == Verdict::survived;
    return !isFault || verdict != Verdict::survived;
  }

  void printRow(llvm::StringRef name, const Counts &counts) const {
    auto percent = [](int part, int whole) { return whole == 0 ? 100.0 : 100.0 * part / whole; };
    llvm::outs() << llvm::formatv("{0,-24} {1,6} {2,7} {3,8} {4,9} {5,8} {6,6:F1}% {7,13:F1}%\n", name, counts.made,
                                  counts.byVerify, counts.byChecker, counts.survived, counts.excused,
                                  percent(counts.byVerify + counts.byChecker, counts.faults()),
                                  percent(counts.byChecker, counts.faults() - counts.byVerify));
    if (settings.audit)
      llvm::outs() << "    the machine sees " << counts.seen << " of " << counts.byChecker << "\n";
    llvm::outs().flush();
  }

  const Settings settings;
  const std::vector<Program> programs;
  std::vector<Outcome> outcomes, meanings;
  Counts total;
  int falseAlarms = 0;
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
  if (argc > 1 && llvm::StringRef(argv[1]) == "--needed")
    return checkNeededFiles({argv + 2, argv + argc}) ? 0 : 1;
  Settings settings = settingsOf(argc, argv);
  llvm::outs() << "seed " << settings.seed << ", " << settings.perClass << " faults per class\n";
  auto [passed, failed] = Session(settings, compilePrograms()).run();
  llvm::outs() << passed << " passed, " << failed << " failed\n";
  return failed == 0 ? 0 : 1;
}
