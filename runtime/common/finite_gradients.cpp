#include "runtime/common/finite_gradients.h"

#include "runtime/common/element_type.h"

#include <cmath>
#include <optional>

namespace fsdpc::rt {
namespace {

class FiniteTap final : public Tap {
public:
  using Tap::Tap;

  void take(int parameter, const void *data, std::int64_t, std::int64_t elements) override {
    const ParameterInfo &info = program.parameters[static_cast<std::size_t>(parameter)];
    for (std::int64_t i = 0; i < elements && !first; ++i)
      if (!std::isfinite(loadFloat(info.dtype, static_cast<const std::byte *>(data), i)))
        first = &info;
  }

  const ParameterInfo *first = nullptr;
};

} // namespace

std::string firstNonFiniteGradient(const Job &job) {
  FiniteTap tap(job.program);
  job.context.tap = &tap;
  const Functions &functions = job.functions;
  (job.program.stashesGradients ? functions.exportWeights : functions.tapGradients)(job.context);
  job.context.tap = nullptr;
  if (!tap.first)
    return "";
  const SegmentInfo &segment = job.program.segments[static_cast<std::size_t>(tap.first->segment)];
  return "'" + std::string(tap.first->name) + "' of unit " + segment.unit;
}

} // namespace fsdpc::rt
