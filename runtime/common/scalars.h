// The run-time scalars and results of a program, read and written by name.
#pragma once

#include "runtime/common/element_type.h"
#include "runtime/common/program.h"

#include <span>
#include <string_view>

namespace fsdpc::rt {

/// Writes scalar `name`, as f64 or i64; a program without it is left alone.
inline void setScalar(const ProgramInfo &program, const Context &context, std::string_view name, double value) {
  for (const ScalarInfo &scalar : program.scalars)
    if (name == scalar.name) {
      if (scalar.isInteger)
        *context.at<std::int64_t>(scalar.place) = static_cast<std::int64_t>(value);
      else
        *context.at<double>(scalar.place) = value;
    }
}

/// As above, for integers that a double cannot hold.
inline void setIntegerScalar(const ProgramInfo &program, const Context &context, std::string_view name,
                             std::int64_t value) {
  for (const ScalarInfo &scalar : program.scalars)
    if (name == scalar.name && scalar.isInteger)
      *context.at<std::int64_t>(scalar.place) = value;
    else if (name == scalar.name)
      *context.at<double>(scalar.place) = static_cast<double>(value);
}

inline const ResultInfo *findResult(std::span<const ResultInfo> results, std::string_view name) {
  for (const ResultInfo &result : results)
    if (name == result.name)
      return &result;
  return nullptr;
}

/// The first element of a result; integers too.
inline double readResult(const Context &context, const ResultInfo &result) {
  const auto *data = context.at<std::byte>(result.place);
  return isFloat(result.dtype) ? loadFloat(result.dtype, data, 0)
                               : static_cast<double>(loadInteger(result.dtype, data, 0));
}

/// Results that are figures, not outputs of the model.
constexpr bool isFigure(std::string_view name) {
  return name == "loss" || name == "loss_sum" || name == "count" || name == "correct" || name == "total";
}

} // namespace fsdpc::rt
