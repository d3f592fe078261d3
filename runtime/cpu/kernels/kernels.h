// Everything an emitted program calls.
#pragma once

#include "runtime/common/guard.h"
#include "runtime/common/host_optimizer.h"
#include "runtime/common/parallel.h"
#include "runtime/common/poison.h"
#include "runtime/cpu/collectives.h"
#include "runtime/cpu/copies.h"
#include "runtime/cpu/kernels/attention.h"
#include "runtime/cpu/kernels/batch_norm.h"
#include "runtime/cpu/kernels/convolution.h"
#include "runtime/cpu/kernels/copy.h"
#include "runtime/cpu/kernels/index.h"
#include "runtime/cpu/kernels/linear_cross_entropy.h"
#include "runtime/cpu/kernels/loss.h"
#include "runtime/cpu/kernels/matmul.h"
#include "runtime/cpu/kernels/norm.h"
#include "runtime/cpu/kernels/pool.h"
#include "runtime/cpu/kernels/random.h"
#include "runtime/cpu/kernels/reduce.h"
#include "runtime/cpu/kernels/rotary.h"
#include "runtime/cpu/kernels/rows.h"
#include "runtime/cpu/kernels/scatter.h"
#include "runtime/cpu/kernels/top_k.h"
#include "runtime/cpu/kernels/vector_math.h"

namespace fsdpc::rt {

// Here the host is the device.
using host::adadelta, host::adagrad, host::adam, host::lion, host::rmsprop, host::sgd;

} // namespace fsdpc::rt
