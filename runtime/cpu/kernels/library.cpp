#include "runtime/cpu/kernels/library.h"

#include "runtime/common/failure.h"
#include "runtime/common/parallel.h"
#include "runtime/cpu/allocation_guard.h"

#include <string>

namespace fsdpc::rt {

void checkLibrary(dnnl_status_t status, const char *what) {
  if (status != dnnl_success)
    throw Failure(ExitCode::internal,
                  std::string("oneDNN refuses ") + what + " (status " + std::to_string(status) + ")");
}

dnnl_engine_t libraryEngine() {
  static const dnnl_engine_t engine = [] {
    dnnl_engine_t made;
    checkLibrary(dnnl_engine_create(&made, dnnl_cpu, 0), "a cpu engine");
    return made;
  }();
  return engine;
}

static dnnl_stream_t libraryStream() {
  static const dnnl_stream_t stream = [] {
    dnnl_stream_t made;
    checkLibrary(dnnl_stream_create(&made, libraryEngine(), dnnl_stream_default_flags), "a stream");
    return made;
  }();
  return stream;
}

std::int64_t scratchBytesOf(const_dnnl_primitive_desc_t description) {
  const dnnl_memory_desc_t *scratch = dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
  return scratch ? static_cast<std::int64_t>(dnnl_memory_desc_get_size(scratch)) : 0;
}

static dnnl_primitive_attr_t userScratch() {
  dnnl_primitive_attr_t attributes;
  checkLibrary(dnnl_primitive_attr_create(&attributes), "attributes");
  checkLibrary(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user), "user scratchpads");
  return attributes;
}

/// Sets the post-operation out += result.
static void addToResult(dnnl_primitive_attr_t attributes) {
  dnnl_post_ops_t operations;
  checkLibrary(dnnl_post_ops_create(&operations), "post-operations");
  checkLibrary(dnnl_post_ops_append_sum(operations, 1), "a sum as post-operation");
  checkLibrary(dnnl_primitive_attr_set_post_ops(attributes, operations), "a sum as post-operation");
  checkLibrary(dnnl_post_ops_destroy(operations), "post-operations");
}

dnnl_primitive_desc_t describePrimitive(const_dnnl_op_desc_t operation, const_dnnl_primitive_desc_t hint,
                                        const char *what, bool accumulates) {
  const dnnl_primitive_attr_t attributes = userScratch();
  if (accumulates)
    addToResult(attributes);
  dnnl_primitive_desc_t description = nullptr;
  checkLibrary(dnnl_primitive_desc_create(&description, operation, attributes, libraryEngine(), hint), what);
  checkLibrary(dnnl_primitive_attr_destroy(attributes), "attributes");
  return description;
}

dnnl_primitive_desc_t tryDescribePrimitive(const_dnnl_op_desc_t operation, const_dnnl_primitive_desc_t hint) {
  const dnnl_primitive_attr_t attributes = userScratch();
  dnnl_primitive_desc_t description = nullptr;
  if (dnnl_primitive_desc_create(&description, operation, attributes, libraryEngine(), hint) != dnnl_success)
    description = nullptr;
  checkLibrary(dnnl_primitive_attr_destroy(attributes), "attributes");
  return description;
}

void failForScratch(const char *what, std::int64_t neededBytes, std::int64_t plannedBytes) {
  throw Failure(ExitCode::memory, std::string("oneDNN needs ") + std::to_string(neededBytes) +
                                      " bytes of scratch for " + what + " on this machine, " +
                                      std::to_string(plannedBytes) +
                                      " are planned: compile the program on this kind of machine");
}

void Primitive::create(const Context &c, const_dnnl_op_desc_t operation, std::initializer_list<Argument> given,
                       std::int64_t workspaceBytes, const char *what, bool accumulates) {
  for (int tried = c.threads;; --tried) {
    setLibraryThreads(tried);
    const dnnl_primitive_desc_t description = describePrimitive(operation, nullptr, what, accumulates);
    const std::int64_t needed = scratchBytesOf(description);
    if (needed <= workspaceBytes) {
      adopt(c, description, tried, given);
      break;
    }
    checkLibrary(dnnl_primitive_desc_destroy(description), what);
    if (tried == 1)
      failForScratch(what, needed, workspaceBytes);
  }
  setLibraryThreads(c.threads);
}

void Primitive::createReorder(const Context &c, int count, const dnnl_memory_desc_t &from,
                              const dnnl_memory_desc_t &to) {
  const dnnl_primitive_attr_t attributes = userScratch();
  dnnl_primitive_desc_t description = nullptr;
  checkLibrary(
      dnnl_reorder_primitive_desc_create(&description, &from, libraryEngine(), &to, libraryEngine(), attributes),
      "a reorder");
  checkLibrary(dnnl_primitive_attr_destroy(attributes), "attributes");
  adopt(c, description, count, {{DNNL_ARG_FROM, &from}, {DNNL_ARG_TO, &to}});
}

void Primitive::adopt(const Context &c, dnnl_primitive_desc_t description, int count,
                      std::initializer_list<Argument> given) {
  contextThreads = c.threads;
  threads = count;
  neededBytes = scratchBytesOf(description);
  checkLibrary(dnnl_primitive_create(&primitive, description), "a primitive");
  argumentCount = 0;
  const auto add = [this](int index, const dnnl_memory_desc_t *memory) {
    dnnl_exec_arg_t &argument = arguments[argumentCount++];
    argument.arg = index;
    checkLibrary(dnnl_memory_create(&argument.memory, memory, libraryEngine(), DNNL_MEMORY_NONE), "a memory");
  };
  for (const Argument &argument : given)
    add(argument.index, argument.memory);
  givenCount = argumentCount;
  if (neededBytes > 0)
    add(DNNL_ARG_SCRATCHPAD, dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0));
  checkLibrary(dnnl_primitive_desc_destroy(description), "a primitive");
}

void Primitive::run(std::initializer_list<const void *> addresses, Workspace workspace) const {
  int i = 0;
  for (const void *address : addresses)
    dnnl_memory_set_data_handle(arguments[i++].memory, const_cast<void *>(address));
  if (givenCount < argumentCount)
    dnnl_memory_set_data_handle(arguments[givenCount].memory, workspace.data);
  const MatmulScope allocationsAreTheLibrarys;
  if (threads != contextThreads)
    setLibraryThreads(threads);
  checkLibrary(dnnl_primitive_execute(primitive, libraryStream(), argumentCount, arguments), "to run a primitive");
  if (threads != contextThreads)
    setLibraryThreads(contextThreads);
}

} // namespace fsdpc::rt
