#pragma once

namespace fsdpc::rt {

/// The version of the fsdpc that this runtime belongs to: `fsdpc --version`.
inline constexpr const char *version = "0.1";

} // namespace fsdpc::rt
