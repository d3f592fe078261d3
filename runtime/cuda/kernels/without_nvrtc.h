// cuDNN's frontend has experimental engines that compile kernels at run time with NVRTC. Attention uses none of them,
// so programs should not need NVRTC. These definitions replace it at link time and report an error if called. They are
// hidden, so that cuDNN itself, which compiles kernels, finds the real ones. Include in one source file only.
#pragma once

#include <nvrtc.h>

#define FSDPC_WITHOUT_NVRTC(function, parameters)                                                                      \
  extern "C" __attribute__((visibility("hidden"))) nvrtcResult function parameters {                                   \
    return NVRTC_ERROR_INTERNAL_ERROR;                                                                                 \
  }

FSDPC_WITHOUT_NVRTC(nvrtcCreateProgram,
                    (nvrtcProgram *, const char *, const char *, int, const char *const *, const char *const *))
FSDPC_WITHOUT_NVRTC(nvrtcDestroyProgram, (nvrtcProgram *))
FSDPC_WITHOUT_NVRTC(nvrtcCompileProgram, (nvrtcProgram, int, const char *const *))
FSDPC_WITHOUT_NVRTC(nvrtcGetCUBINSize, (nvrtcProgram, size_t *))
FSDPC_WITHOUT_NVRTC(nvrtcGetCUBIN, (nvrtcProgram, char *))
FSDPC_WITHOUT_NVRTC(nvrtcGetProgramLogSize, (nvrtcProgram, size_t *))
FSDPC_WITHOUT_NVRTC(nvrtcGetProgramLog, (nvrtcProgram, char *))

#undef FSDPC_WITHOUT_NVRTC
