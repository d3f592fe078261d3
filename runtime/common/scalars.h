// The run-time scalars and results of a program, read and written by name.
#pragma once

#include "runtime/common/arena_access.h"
#include "runtime/common/element_type.h"
#include "runtime/common/program.h"

#include <cstring>
#include <span>
#include <string_view>

namespace fsdpc::rt {

/// Writes the scalar, as f64 or i64. Value: double or std::int64_t.
template <class Value>
void storeScalar(const Context &context, const ScalarInfo &scalar, Value value) {
  writeArena(context, scalar.place, 8, [&](std::byte *to) {
    // Converts only to the stored type, because not every double fits an integer.
    const auto store = [to](auto converted) { std::memcpy(to, &converted, sizeof converted); };
    scalar.isInteger ? store(static_cast<std::int64_t>(value)) : store(static_cast<double>(value));
  });
}

/// The same by name. Does nothing if the program has no such scalar.
template <class Value>
void storeScalar(const ProgramInfo &program, const Context &context, std::string_view name, Value value) {
  for (const ScalarInfo &scalar : program.scalars)
    if (name == scalar.name)
      storeScalar(context, scalar, value);
}

/// Scalars that the program itself updates. A checkpoint has them.
inline constexpr std::string_view updatedScalars[] = {
    "optimizer_step", "loss_scale", "loss_scale_good_steps", "loss_scale_hysteresis", "norm_mean",
    "norm_variance",  "norm_count"};
constexpr bool isUpdatedByProgram(std::string_view name) {
  for (const std::string_view updated : updatedScalars)
    if (name == updated)
      return true;
  return false;
}

inline double readScalar(const Context &context, const ScalarInfo &scalar) {
  const std::byte *data = readArena(context, scalar.place, 8);
  if (!scalar.isInteger)
    return loadFloat(DType::f64, data, 0);
  return static_cast<double>(loadInteger(DType::i64, data, 0));
}

inline void setScalar(const ProgramInfo &program, const Context &context, std::string_view name, double value) {
  storeScalar(program, context, name, value);
}

/// As above, for integers that a double cannot hold.
inline void setIntegerScalar(const ProgramInfo &program, const Context &context, std::string_view name,
                             std::int64_t value) {
  storeScalar(program, context, name, value);
}

inline const ResultInfo *findResult(std::span<const ResultInfo> results, std::string_view name) {
  for (const ResultInfo &result : results)
    if (name == result.name)
      return &result;
  return nullptr;
}

/// Returns the first element of a result whose bytes begin at `data`. Also converts integers.
inline double elementOf(const ResultInfo &result, const std::byte *data) {
  return isFloat(result.dtype) ? loadFloat(result.dtype, data, 0)
                               : static_cast<double>(loadInteger(result.dtype, data, 0));
}
inline double readResult(const Context &context, const ResultInfo &result) {
  return elementOf(result, readArena(context, result.place, byteSize(result.dtype)));
}

/// The first element of a result as of `fetch`. Later functions may be called before `value`. `value` waits for the
/// element if the arenas are not host memory. A replayed step contains the fetch.
class PendingResult {
public:
  /// `which`: below DeviceMemory::maxFetches, distinct for each pending result.
  PendingResult(const Context &context, const ResultInfo &result, std::size_t which = 0)
      : context(context), result(result), which(which) {}
  void fetch() {
    if (context.memory)
      context.memory->fetch(result.place, byteSize(result.dtype), which);
    else
      known = readResult(context, result);
  }
  bool isKnown() const { return !context.memory; }
  double value() const { return isKnown() ? known : elementOf(result, context.memory->fetched(which)); }

private:
  const Context &context;
  const ResultInfo &result;
  const std::size_t which;
  double known = 0;
};

/// True for metrics, false for outputs of the model.
constexpr bool isFigure(std::string_view name) {
  return name == "loss" || name == "loss_sum" || name == "count" || name == "correct" || name == "total" ||
         name.starts_with("correct_top");
}

} // namespace fsdpc::rt
