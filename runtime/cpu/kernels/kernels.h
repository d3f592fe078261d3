// Everything an emitted program calls.
#pragma once

#include "runtime/common/guard.h"
#include "runtime/cpu/collectives.h"
#include "runtime/cpu/kernels/attention.h"
#include "runtime/cpu/kernels/convolution.h"
#include "runtime/cpu/kernels/copy.h"
#include "runtime/cpu/kernels/index.h"
#include "runtime/cpu/kernels/loss.h"
#include "runtime/cpu/kernels/matmul.h"
#include "runtime/cpu/kernels/norm.h"
#include "runtime/cpu/kernels/optimizer.h"
#include "runtime/cpu/kernels/parallel.h"
#include "runtime/cpu/kernels/pool.h"
#include "runtime/cpu/kernels/random.h"
#include "runtime/cpu/kernels/reduce.h"
#include "runtime/cpu/kernels/rotary.h"
#include "runtime/cpu/kernels/vector_math.h"
