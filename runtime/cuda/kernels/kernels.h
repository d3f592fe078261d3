// Everything an emitted program calls.
#pragma once

#include "runtime/cuda/collectives.h"
#include "runtime/cuda/device_memory.h"
#include "runtime/cuda/kernels/attention.h"
#include "runtime/cuda/kernels/convolution.h"
#include "runtime/cuda/kernels/copy.h"
#include "runtime/cuda/kernels/index.h"
#include "runtime/cuda/kernels/loss.h"
#include "runtime/cuda/kernels/matmul.h"
#include "runtime/cuda/kernels/norm.h"
#include "runtime/cuda/kernels/optimizer.h"
#include "runtime/cuda/kernels/pool.h"
#include "runtime/cuda/kernels/reduce.h"
#include "runtime/cuda/kernels/rotary.h"
#include "runtime/cuda/kernels/softmax.h"
#include "runtime/cuda/kernels/table.h"
#include "runtime/cuda/launch.h"
