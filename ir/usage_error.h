// An error in the command line, detected in the options themselves or after a model is read.
#pragma once

#include "llvm/Support/Error.h"
#include <string>

namespace fsdpc {

/// The process exits with code 2.
class UsageError : public llvm::ErrorInfo<UsageError> {
public:
  static char ID;
  explicit UsageError(std::string message) : message(std::move(message)) {}
  void log(llvm::raw_ostream &out) const override { out << message; }
  std::error_code convertToErrorCode() const override { return llvm::inconvertibleErrorCode(); }

private:
  std::string message;
};

} // namespace fsdpc
