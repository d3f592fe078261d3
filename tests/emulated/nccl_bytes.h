// Element sizes for both stand-ins for NCCL: the emulated one and the loopback transport.
#pragma once

#include <nccl.h>

#include <cstddef>

namespace fsdpc {

/// The size of one element; 0 for types that programs do not send.
inline std::size_t bytesOf(ncclDataType_t type) {
  switch (type) {
  case ncclInt8:
  case ncclUint8: return 1;
  case ncclFloat16:
  case ncclBfloat16: return 2;
  case ncclInt32:
  case ncclFloat32: return 4;
  case ncclInt64:
  case ncclFloat64: return 8;
  default: return 0;
  }
}

} // namespace fsdpc
