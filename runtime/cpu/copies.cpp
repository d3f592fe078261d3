#include "runtime/cpu/copies.h"

#include "runtime/cpu/cpu_context.h"
#include "runtime/cpu/stream.h"

#include <cstring>

namespace fsdpc::rt {

namespace {

void start(const Context &context, Copy &copy, const void *from, void *to, std::int64_t bytes) {
  copy.event = cpuOf(context).copyStream->enqueue([=] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); });
}

} // namespace

void offloadStart(const Context &context, Copy &copy, const void *from, void *to, std::int64_t bytes) {
  start(context, copy, from, to, bytes);
}

void reloadStart(const Context &context, Copy &copy, const void *from, void *to, std::int64_t bytes) {
  start(context, copy, from, to, bytes);
}

void wait(const Context &context, const Copy &copy) { cpuOf(context).copyStream->synchronize(copy.event); }

} // namespace fsdpc::rt
