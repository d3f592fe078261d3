// Shared code of the oneDNN wrappers: one engine and stream, failures with a message, primitives with planned scratch.
//
// Primitives are created once, in the program's start(), and executed through oneDNN's C calls with existing argument
// arrays. So a run allocates nothing of ours (oneDNN itself makes a handful of allocations of about 100 bytes).
#pragma once

#include "runtime/common/address.h"

#include <dnnl.h>

#include <initializer_list>

namespace fsdpc::rt {

/// Throws Failure{internal} naming `what` unless `status` is success.
void checkLibrary(dnnl_status_t status, const char *what);
dnnl_engine_t libraryEngine();

/// Creates a description with user scratch, for the number of threads set in the library. The caller destroys it.
/// `hint`: the forward primitive, for derivatives.
/// `accumulates`: the result is added to what is in memory.
dnnl_primitive_desc_t describePrimitive(const_dnnl_op_desc_t operation, const_dnnl_primitive_desc_t hint,
                                        const char *what, bool accumulates = false);
/// The same, but null where the library has no such primitive.
dnnl_primitive_desc_t tryDescribePrimitive(const_dnnl_op_desc_t operation, const_dnnl_primitive_desc_t hint);
std::int64_t scratchBytesOf(const_dnnl_primitive_desc_t description);
/// Throws Failure{memory}: `what` needs more scratch than the plan has, even with one thread.
[[noreturn]] void failForScratch(const char *what, std::int64_t neededBytes, std::int64_t plannedBytes);

/// One primitive with its argument memories. Handles live as long as the process, because programs store primitives in
/// static storage.
class Primitive {
public:
  struct Argument {
    int index; ///< DNNL_ARG_SRC, ...
    const dnnl_memory_desc_t *memory;
  };

  /// Creates the primitive of a oneDNN operation descriptor. Scratch must fit in `workspaceBytes`. If the library needs
  /// more for this many threads, the primitive gets fewer threads. If one thread still needs too much, throws
  /// Failure{memory} naming `what`.
  void create(const Context &c, const_dnnl_op_desc_t operation, std::initializer_list<Argument> arguments,
              std::int64_t workspaceBytes, const char *what, bool accumulates = false);
  /// Takes ownership of an existing description for `threads` threads.
  void adopt(const Context &c, dnnl_primitive_desc_t description, int threads,
             std::initializer_list<Argument> arguments);
  /// Creates a copy from one layout to another.
  void createReorder(const Context &c, int threads, const dnnl_memory_desc_t &from, const dnnl_memory_desc_t &to);
  /// `addresses` are in the order of the arguments given to create.
  void run(std::initializer_list<const void *> addresses, Workspace workspace) const;
  bool exists() const { return primitive != nullptr; }
  std::int64_t scratchBytes() const { return neededBytes; }

private:
  static constexpr int maxArguments = 5;
  dnnl_primitive_t primitive = nullptr;
  mutable dnnl_exec_arg_t arguments[maxArguments] = {};
  int argumentCount = 0;
  int givenCount = 0;
  std::int64_t neededBytes = 0;
  int threads = 0, contextThreads = 0; ///< of this primitive; of the program
};

} // namespace fsdpc::rt
