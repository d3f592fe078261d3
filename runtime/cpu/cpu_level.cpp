#include "runtime/cpu/cpu_level.h"

#include "runtime/common/failure.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <dnnl.h>
#include <iterator>
#include <sys/syscall.h>
#include <unistd.h>

namespace fsdpc::rt {

namespace {

#if defined(__x86_64__)

constexpr const char *names[] = {"x86-64-v3", "x86-64-v4", "avx512_bf16", "amx_bf16"};
/// The masks of dnnl_cpu_isa_t contain those of lesser instruction sets.
constexpr dnnl_cpu_isa_t libraryNames[] = {dnnl_cpu_isa_avx2, dnnl_cpu_isa_avx512_core, dnnl_cpu_isa_avx512_core_bf16,
                                           dnnl_cpu_isa_avx512_core_amx};

/// The kernel gives a process the registers of AMX tiles on request.
bool mayUseTiles() {
  constexpr long requestPermission = 0x1023, tileData = 18; // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return __builtin_cpu_supports("amx-bf16") && __builtin_cpu_supports("amx-tile") &&
         syscall(SYS_arch_prctl, requestPermission, tileData) == 0;
}

CpuLevel ofProcessor() {
  if (!__builtin_cpu_supports("x86-64-v4"))
    return CpuLevel::base;
  if (!__builtin_cpu_supports("avx512bf16"))
    return CpuLevel::v4;
  return mayUseTiles() ? CpuLevel::amxBf16 : CpuLevel::avx512Bf16;
}

dnnl_cpu_isa_t libraryName(CpuLevel level) { return libraryNames[static_cast<int>(level)]; }

bool libraryHas(CpuLevel level) {
  const dnnl_cpu_isa_t isa = libraryName(level);
  return (dnnl_get_effective_cpu_isa() & isa) == isa;
}

#if defined(__AVX2__)

/// Functions that run before any constructor, which may have instructions of x86-64-v3 already: they have none, and
/// call nothing of ours.
#define FSDPC_ON_ANY_PROCESSOR [[gnu::target("arch=x86-64"), gnu::noinline]]

/// The digits of the variable that a launcher sets, or "0".
FSDPC_ON_ANY_PROCESSOR const char *rankIn(char **environment) {
  constexpr const char *launchers[] = {"OMPI_COMM_WORLD_RANK=", "PMIX_RANK=", "PMI_RANK=", "SLURM_PROCID=", "RANK="};
  for (char **entry = environment; *entry; ++entry)
    for (const char *name : launchers) {
      int length = 0;
      while (name[length] && (*entry)[length] == name[length])
        ++length;
      if (!name[length])
        return *entry + length;
    }
  return "0";
}

FSDPC_ON_ANY_PROCESSOR void print(const char *text) {
  std::size_t length = 0;
  while (text[length])
    ++length;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, length);
}

FSDPC_ON_ANY_PROCESSOR void requireProcessor(int, char **, char **environment) {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v3"))
    return;
  print(
      "fsdpc: error: this program is compiled for x86-64-v3, and this processor is older (it lacks AVX2, FMA or BMI2);"
      " its folder builds for it with: cmake -S . -B build -DPROCESSOR=native\nfsdpc: exit=10 rank=");
  print(rankIn(environment));
  print("\n");
  _exit(static_cast<int>(ExitCode::device));
}

[[gnu::section(".preinit_array"), gnu::used]] void (*checkOfProcessor)(int, char **, char **) = requireProcessor;

#endif

#else

constexpr const char *names[] = {"base"};
CpuLevel ofProcessor() { return CpuLevel::base; }

#endif

} // namespace

CpuLevel ownCpuLevel(std::string_view planned) {
  const char *most = std::getenv("FSDPC_CPU_LEVEL");
  CpuLevel own = ofProcessor();
  for (const std::string_view limit : {std::string_view(most ? most : ""), planned}) {
    const auto named = std::find(std::begin(names), std::end(names), limit);
    if (named != std::end(names))
      own = std::min(own, static_cast<CpuLevel>(named - std::begin(names)));
  }
  return own;
}

CpuLevel limitLibraryTo(CpuLevel common) {
#if defined(__x86_64__)
  if (common < ofProcessor())
    dnnl_set_max_cpu_isa(libraryName(common));
  while (common > CpuLevel::base && !libraryHas(common))
    common = static_cast<CpuLevel>(static_cast<int>(common) - 1);
#endif
  return common;
}

const char *nameOf(CpuLevel level) { return names[static_cast<int>(level)]; }

} // namespace fsdpc::rt
