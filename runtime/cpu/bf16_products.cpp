#include "runtime/cpu/bf16_products.h"

#include <algorithm>
#include <cstdlib>
#include <dnnl.h>
#include <iterator>
#include <string_view>

namespace fsdpc::rt {

namespace {

constexpr const char *names[] = {"f32", "avx512_bf16", "amx_bf16"};

Bf16Products ofProcessor() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("amx-bf16") && __builtin_cpu_supports("amx-tile"))
    return Bf16Products::amx;
  if (__builtin_cpu_supports("avx512bf16"))
    return Bf16Products::avx512;
#endif
  return Bf16Products::none;
}

/// The masks of dnnl_cpu_isa_t contain those of lesser instruction sets.
bool libraryHas(dnnl_cpu_isa_t isa) { return (dnnl_get_effective_cpu_isa() & isa) == isa; }

} // namespace

Bf16Products ownBf16Products() {
  const char *most = std::getenv("FSDPC_BF16_PRODUCTS");
  const auto named = std::find(std::begin(names), std::end(names), std::string_view(most ? most : ""));
  const Bf16Products own = ofProcessor();
  return named == std::end(names) ? own : std::min(own, static_cast<Bf16Products>(named - std::begin(names)));
}

Bf16Products limitLibraryTo(Bf16Products common) {
  if (common == Bf16Products::none)
    return common;
  if (common == Bf16Products::avx512 && ofProcessor() == Bf16Products::amx)
    dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
  if (!libraryHas(dnnl_cpu_isa_avx512_core_bf16))
    return Bf16Products::none;
  return libraryHas(dnnl_cpu_isa_avx512_core_amx) ? Bf16Products::amx : Bf16Products::avx512;
}

const char *nameOf(Bf16Products products) { return names[static_cast<int>(products)]; }

} // namespace fsdpc::rt
