// A process's rank and the location of the other ranks, from environments as launchers set them.
#include "runtime/common/failure.h"
#include "runtime/cuda/launch_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

namespace fsdpc::rt {
namespace {

/// Sets these variables of a launcher and no others, for this object's lifetime.
class Environment {
public:
  explicit Environment(const std::map<std::string, std::string> &wanted) {
    for (const char *name : known) {
      const char *value = std::getenv(name);
      before[name] = value ? std::optional<std::string>(value) : std::nullopt;
      ::unsetenv(name);
    }
    for (const auto &[name, value] : wanted) {
      EXPECT_TRUE(before.contains(name)) << name << " would stay";
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~Environment() {
    for (const auto &[name, value] : before)
      if (value)
        ::setenv(name.c_str(), value->c_str(), 1);
      else
        ::unsetenv(name.c_str());
  }

private:
  static constexpr const char *known[] = {"RANK",
                                          "WORLD_SIZE",
                                          "LOCAL_RANK",
                                          "MASTER_ADDR",
                                          "MASTER_PORT",
                                          "FSDPC_RENDEZVOUS",
                                          "OMPI_COMM_WORLD_RANK",
                                          "OMPI_COMM_WORLD_SIZE",
                                          "OMPI_COMM_WORLD_LOCAL_RANK",
                                          "PMIX_NAMESPACE",
                                          "PMI_RANK",
                                          "PMI_SIZE",
                                          "MPI_LOCALRANKID",
                                          "PMI_PORT",
                                          "SLURM_PROCID",
                                          "SLURM_NTASKS",
                                          "SLURM_LOCALID",
                                          "SLURM_JOB_ID",
                                          "SLURM_STEP_ID",
                                          "SLURM_NODELIST",
                                          "SLURM_STEP_NODELIST"};
  std::map<std::string, std::optional<std::string>> before;
};

LaunchEnvironment in(const std::map<std::string, std::string> &variables) {
  const Environment environment(variables);
  return launchEnvironment();
}

/// The error for an environment in which no program can start.
std::string failureIn(const std::map<std::string, std::string> &variables) {
  try {
    in(variables);
  } catch (const Failure &failure) {
    EXPECT_EQ(failure.code, ExitCode::device);
    return failure.what();
  }
  return "none";
}

std::string pointIn(const std::map<std::string, std::string> &variables) {
  const RendezvousPoint point = in(variables).rendezvousPoint;
  return point.file.empty() ? point.host + " " + std::to_string(point.port) : "file " + point.file;
}

std::map<std::string, std::string> with(std::map<std::string, std::string> variables, const std::string &name,
                                        const std::string &value) {
  variables[name] = value;
  return variables;
}

std::map<std::string, std::string> without(std::map<std::string, std::string> variables, const std::string &name) {
  variables.erase(name);
  return variables;
}

using testing::HasSubstr, testing::MatchesRegex;

// ---- launchers

const std::map<std::string, std::string> torchrun = {
    {"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29400"}};
const std::map<std::string, std::string> openMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                                                    {"OMPI_COMM_WORLD_SIZE", "4"},
                                                    {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                                                    {"PMIX_NAMESPACE", "prterun-vm-4711@1"}};
const std::map<std::string, std::string> hydra = {
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"PMI_PORT", "vm:40123"}};
const std::map<std::string, std::string> slurm = {{"SLURM_PROCID", "6"},
                                                  {"SLURM_NTASKS", "8"},
                                                  {"SLURM_LOCALID", "2"},
                                                  {"SLURM_JOB_ID", "1234567"},
                                                  {"SLURM_STEP_ID", "0"},
                                                  {"SLURM_NODELIST", "gpu[07-08]"},
                                                  {"SLURM_STEP_NODELIST", "gpu[07-08]"}};

void expectRank(const std::map<std::string, std::string> &variables, int rank, int size, int localRank) {
  const LaunchEnvironment environment = in(variables);
  EXPECT_EQ(environment.rank, rank);
  EXPECT_EQ(environment.worldSize, size);
  EXPECT_EQ(environment.localRank, localRank);
}

TEST(LaunchEnvironment, EachLauncherSaysWhichRankThisIs) {
  expectRank(torchrun, 5, 8, 1);
  expectRank(openMpi, 3, 4, 2);
  expectRank(hydra, 1, 2, 0);
  expectRank(slurm, 6, 8, 2);
}

TEST(LaunchEnvironment, WithoutALauncherThereIsOneRankThatMeetsNobody) {
  expectRank({}, 0, 1, 0);
  EXPECT_EQ(pointIn({}), " 0");
  EXPECT_EQ(pointIn({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), " 0"); // nor does one that was started alone
}

TEST(LaunchEnvironment, TorchrunGoesBeforeTheLauncherThatStartedIt) {
  auto both = slurm;
  both.insert(torchrun.begin(), torchrun.end());
  expectRank(both, 5, 8, 1);
  EXPECT_EQ(pointIn(both), "node7 29401");
}

TEST(LaunchEnvironment, AMissingLocalRankIsTheRank) {
  expectRank(without(torchrun, "LOCAL_RANK"), 5, 8, 5);
  // ... unless srun provides it: scripts start programs without torchrun by RANK=$SLURM_PROCID.
  const auto scripted = with(with(without(torchrun, "LOCAL_RANK"), "SLURM_PROCID", "5"), "SLURM_LOCALID", "3");
  expectRank(scripted, 5, 8, 3);
}

// ---- where to meet

TEST(LaunchEnvironment, TorchrunsPortIsTakenSoTheRanksMeetOnTheNext) {
  EXPECT_EQ(pointIn(torchrun), "node7 29401");
  EXPECT_EQ(pointIn(without(torchrun, "MASTER_PORT")), "node7 29501");
  EXPECT_THAT(failureIn(with(torchrun, "MASTER_PORT", "65535")), HasSubstr("MASTER_PORT=65535"));
  EXPECT_THAT(failureIn(with(torchrun, "MASTER_PORT", "port")), HasSubstr("MASTER_PORT=port"));
}

TEST(LaunchEnvironment, JobsOfOneHostMeetThroughAFileNamedAfterTheJob) {
  EXPECT_THAT(pointIn(openMpi), MatchesRegex("file /tmp/fsdpc-[0-9]+-prterun-vm-4711@1.rendezvous"));
  EXPECT_THAT(pointIn(hydra), MatchesRegex("file /tmp/fsdpc-[0-9]+-vm:40123.rendezvous"));
  EXPECT_THAT(failureIn(with(hydra, "PMI_PORT", "../x")), HasSubstr("FSDPC_RENDEZVOUS")); // not a name
}

TEST(LaunchEnvironment, SlurmsStepMeetsOnItsFirstHost) {
  EXPECT_THAT(pointIn(slurm), MatchesRegex("gpu07 (1[5-9]|2[0-4])[0-9][0-9][0-9]"));
  // A step may use only some of the job's hosts.
  EXPECT_THAT(pointIn(with(slurm, "SLURM_STEP_NODELIST", "gpu08")), MatchesRegex("gpu08 [0-9]+"));
  EXPECT_EQ(pointIn(without(slurm, "SLURM_STEP_NODELIST")), pointIn(slurm));
}

TEST(LaunchEnvironment, RanksOfOneStepMeetAndThoseOfOthersDoNot) {
  EXPECT_EQ(pointIn(with(with(slurm, "SLURM_PROCID", "0"), "SLURM_LOCALID", "0")), pointIn(slurm));
  EXPECT_NE(pointIn(with(slurm, "SLURM_STEP_ID", "1")), pointIn(slurm));
  EXPECT_NE(pointIn(with(slurm, "SLURM_STEP_ID", "1")), pointIn(with(slurm, "SLURM_STEP_ID", "2")));
  EXPECT_NE(pointIn(with(slurm, "SLURM_JOB_ID", "1234568")), pointIn(slurm));
}

TEST(LaunchEnvironment, SlurmsOwnPmiNeedsNoPlaceOfItsOwn) {
  // srun --mpi=pmi2 sets both, and no PMI_PORT or MPI_LOCALRANKID.
  const auto variables = with(with(slurm, "PMI_RANK", "6"), "PMI_SIZE", "8");
  expectRank(variables, 6, 8, 2);
  EXPECT_THAT(pointIn(variables), MatchesRegex("gpu07 [0-9]+"));
}

TEST(LaunchEnvironment, MpirunInsideAnAllocationMeetsOnItsFirstHost) {
  const auto first = with(with(openMpi, "SLURM_JOB_ID", "1234567"), "SLURM_NODELIST", "gpu[07-08]");
  EXPECT_THAT(pointIn(first), MatchesRegex("gpu07 [0-9]+"));
  // On the other hosts srun starts mpirun's daemons, with a step's variables that the first host lacks.
  const auto other = with(with(first, "SLURM_STEP_NODELIST", "gpu08"), "SLURM_STEP_ID", "0");
  EXPECT_EQ(pointIn(other), pointIn(first));
  expectRank(with(with(other, "SLURM_PROCID", "0"), "SLURM_LOCALID", "0"), 3, 4, 2);
  EXPECT_NE(pointIn(with(first, "PMIX_NAMESPACE", "prterun-vm-4712@1")), pointIn(first));
}

TEST(LaunchEnvironment, TheFirstHostOfANodeListIsFound) {
  const auto firstOf = [](const char *list) {
    const std::string point = pointIn(with(slurm, "SLURM_STEP_NODELIST", list));
    return point.substr(0, point.find(' '));
  };
  EXPECT_EQ(firstOf("gpu7"), "gpu7");
  EXPECT_EQ(firstOf("a1,b[2-3]"), "a1");
  EXPECT_EQ(firstOf("node[012-015,20],other"), "node012");
  EXPECT_EQ(firstOf("node[3,7-9]"), "node3");
  EXPECT_EQ(firstOf("node[7],x"), "node7");
  EXPECT_EQ(firstOf("rack[0-3]-blade[05-11],rack9"), "rack0-blade05");
}

TEST(LaunchEnvironment, RendezvousGoesBeforeWhatTheLauncherSays) {
  EXPECT_EQ(pointIn(with(torchrun, "FSDPC_RENDEZVOUS", "elsewhere:1234")), "elsewhere 1234");
  EXPECT_EQ(pointIn(with(slurm, "FSDPC_RENDEZVOUS", "[fd00::2]:1234")), "fd00::2 1234");
  EXPECT_EQ(pointIn(with(openMpi, "FSDPC_RENDEZVOUS", "file:/shared/here")), "file /shared/here");
  for (const char *bad : {"elsewhere", "elsewhere:", "elsewhere:port", "elsewhere:12x", "elsewhere:0",
                          "elsewhere:65536", "elsewhere:-1", ":1234", "file:", ""})
    EXPECT_THAT(failureIn(with(torchrun, "FSDPC_RENDEZVOUS", bad)), HasSubstr("host:port or file:PATH")) << bad;
}

// ---- contradictions

TEST(LaunchEnvironment, AnEnvironmentThatContradictsItselfIsAFailure) {
  EXPECT_THAT(failureIn(with(torchrun, "RANK", "8")), HasSubstr("RANK=8 is not below WORLD_SIZE=8"));
  EXPECT_THAT(failureIn(with(openMpi, "OMPI_COMM_WORLD_SIZE", "0")), HasSubstr("OMPI_COMM_WORLD_SIZE=0"));
  for (const char *bad : {"one", "", "-1", "1 ", "1.5", "99999999999"}) {
    EXPECT_THAT(failureIn(with(torchrun, "RANK", bad)), HasSubstr("a number is expected")) << bad;
    EXPECT_THAT(failureIn(with(torchrun, "LOCAL_RANK", bad)), HasSubstr("a number is expected")) << bad;
  }
}

TEST(LaunchEnvironment, RanksThatAreNotToldWhereToMeetAreAFailure) {
  EXPECT_THAT(failureIn({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), HasSubstr("set MASTER_ADDR, or FSDPC_RENDEZVOUS"));
  EXPECT_THAT(failureIn({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}), HasSubstr("set MASTER_ADDR, or FSDPC_RENDEZVOUS"));
}

} // namespace
} // namespace fsdpc::rt
