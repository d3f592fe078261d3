// Pads, pools, convolutions, resizing and Col2Im, in the variants that ONNX specifies.
#include "tests/unit/onnx_reference_case.h"

namespace fsdpc {

namespace {

const ReferenceCase cases[] = {
    {"PadEdge",
     21,
     -2,
     2,
     "(float[1,2,3] x) => (float[1,4,6] y) { p = Constant<value_ints = [0, 1, 2, 0, 1, 1]>() y = Pad<mode = "
     "\"edge\">(x, p) }",
     {{-1.28125, -1.28125, -1.28125, 1.03125,  -0.65625, -0.65625, -1.28125, -1.28125,
       -1.28125, 1.03125,  -0.65625, -0.65625, 1.65625,  1.65625,  1.65625,  -0.03125,
       -1.71875, -1.71875, 1.65625,  1.65625,  1.65625,  -0.03125, -1.71875, -1.71875}}},
    {"PadReflect",
     21,
     -2,
     2,
     "(float[1,1,3,4] x) => (float[1,1,6,8] y) { p = Constant<value_ints = [2, 3, 1, 1]>() a = Constant<value_ints = "
     "[2, -1]>() y = Pad<mode = \"reflect\">(x, p, , a) }",
     {{0.15625,  1.84375,  -0.46875, 1.21875,  -0.46875, 1.84375, 0.15625,  1.84375,  -1.09375, 0.59375,
       -1.71875, -0.03125, -1.71875, 0.59375,  -1.09375, 0.59375, 1.65625,  -0.65625, 1.03125,  -1.28125,
       1.03125,  -0.65625, 1.65625,  -0.65625, -1.09375, 0.59375, -1.71875, -0.03125, -1.71875, 0.59375,
       -1.09375, 0.59375,  0.15625,  1.84375,  -0.46875, 1.21875, -0.46875, 1.84375,  0.15625,  1.84375,
       -1.09375, 0.59375,  -1.71875, -0.03125, -1.71875, 0.59375, -1.09375, 0.59375}}},
    {"PadReflectTwice",
     21,
     -2,
     2,
     "(float[1,3] x) => (float[1,13] y) { p = Constant<value_ints = [0, 5, 0, 5]>() y = Pad<mode = \"reflect\">(x, p) "
     "}",
     {{1.03125, -1.28125, 1.03125, -0.65625, 1.03125, -1.28125, 1.03125, -0.65625, 1.03125, -1.28125, 1.03125, -0.65625,
       1.03125}}},
    {"PadReflectOne",
     21,
     -2,
     2,
     "(float[2,1] x) => (float[2,4] y) { p = Constant<value_ints = [0, 1, 0, 2]>() y = Pad<mode = \"reflect\">(x, p) }",
     {{-1.28125, -1.28125, -1.28125, -1.28125, 1.03125, 1.03125, 1.03125, 1.03125}}},
    {"PadWrap",
     21,
     -2,
     2,
     "(float[1,3] x) => (float[1,8] y) { p = Constant<value_ints = [0, 4, 0, 1]>() y = Pad<mode = \"wrap\">(x, p) }",
     {{-0.65625, -1.28125, 1.03125, -0.65625, -1.28125, 1.03125, -0.65625, -1.28125}}},
    {"PadComputed",
     21,
     -2,
     2,
     "(float[1,3] x) => (float[1,8] y) { s = Shape(x) o = Constant<value_ints = [0]>() z = Mul(s, o) d = Sub(s, s) e = "
     "Concat<axis = 0>(d, s) f = Constant<value_ints = [0, 1]>() k = Mul(f, s) q = Concat<axis = 0>(k, z) m = "
     "Constant<value_ints = [0, 1, 0, 1]>() p = Add(q, m) v = Constant<value_float = 0.5>()  y = Pad(x, p, v) }",
     {{0.5, 0.5, 0.5, 0.5, -1.28125, 1.03125, -0.65625, 0.5}}},
    {"AveragePoolCeilCounted",
     21,
     -2,
     2,
     "(float[1,1,4,5] x) => (float[1,1,3,3] y) { y = AveragePool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, "
     "1, 1, 1], ceil_mode = 1, count_include_pad = 1>(x) }",
     {{-0.1527778, 0.3055556, 0.2638889, 0.2222222, -0.1979167, -0.04166667, 0.1875, -0.3177083, -0.1666667}}},
    {"AveragePoolCeilNotCounted",
     21,
     -2,
     2,
     "(float[1,1,4,5] x) => (float[1,1,3,3] y) { y = AveragePool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, "
     "1, 1, 1], ceil_mode = 1>(x) }",
     {{-0.34375, 0.4583333, 0.59375, 0.3333333, -0.1979167, -0.0625, 0.5625, -0.6354167, -0.5}}},
    {"AveragePoolLargerThanInput",
     21,
     -2,
     2,
     "(float[1,1,2] x) => (float[1,1,1] y) { y = AveragePool<kernel_shape = [3], strides = [2], ceil_mode = 1>(x) }",
     {{-0.125}}},
    {"AveragePoolDilated",
     21,
     -2,
     2,
     "(float[1,1,3,6] x) => (float[1,1,2,2] y) { y = AveragePool<kernel_shape = [2, 3], dilations = [1, 2]>(x) }",
     {{0.28125, -0.07291666, 0.15625, -0.1979167}}},
    {"AveragePool3d",
     21,
     -2,
     2,
     "(float[1,1,3,4,4] x) => (float[1,1,2,2,2] y) { y = AveragePool<kernel_shape = [2, 2, 2], strides = [1, 2, 2]>(x) "
     "}",
     {{-0.5, 0.125, 0, 0.125, 0, 0.125, 0, -0.375}}},
    {"MaxPoolCeilInPadding",
     21,
     -2,
     2,
     "(float[1,1,5] x) => (float[1,1,2] y) { y = MaxPool<kernel_shape = [2], strides = [3], pads = [1, 1], ceil_mode = "
     "1>(x) }",
     {{-1.28125, 1.65625}}},
    {"MaxPoolDilatedCeil",
     21,
     -2,
     2,
     "(float[1,1,7,6] x) => (float[1,1,4,3] y) { y = MaxPool<kernel_shape = [2, 2], strides = [2, 2], dilations = [2, "
     "2], pads = [0, 1, 1, 0], ceil_mode = 1>(x) }",
     {{1.03125, 1.65625, 1.65625, 0.78125, 1.40625, 1.78125, 0.53125, 1.15625, 1.78125, 0.28125, 0.90625, 1.53125}}},
    {"MaxPoolIndices",
     21,
     -2,
     2,
     "(float[2,2,2,4] x) => (float[2,2,1,2] y, int64[2,2,1,2] i) { y, i = MaxPool<kernel_shape = [2, 2], strides = [2, "
     "2]>(x) }",
     {{1.03125, 1.65625, 1.21875, 1.84375, 0.96875, 1.59375, 1.78125, 1.15625}, {1, 3, 8, 10, 20, 22, 29, 27}}},
    {"MaxPoolIndicesPadded",
     21,
     -2,
     2,
     "(float[1,2,3,3] x) => (float[1,2,3,3] y, int64[1,2,3,3] i) { y, i = MaxPool<kernel_shape = [3, 3], pads = [1, 1, "
     "1, 1]>(x) }",
     {{1.65625, 1.65625, 1.03125, 1.65625, 1.65625, 1.21875, 1.65625, 1.65625, 1.21875, 1.84375, 1.84375, 1.84375,
       1.84375, 1.84375, 1.84375, 1.40625, 1.40625, 0.78125},
      {3, 3, 1, 3, 3, 8, 3, 3, 8, 10, 10, 10, 10, 10, 10, 15, 15, 13}}},
    {"LpPool",
     18,
     -2,
     2,
     "(float[1,1,4,4] x) => (float[1,1,2,2] y) { y = LpPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 0, "
     "0], p = 2>(x) }",
     {{2.379108, 2.956389, 2.759572, 3.399362}}},
    {"LpPoolThird",
     18,
     -2,
     2,
     "(float[1,2,5] x) => (float[1,2,3] y) { y = LpPool<kernel_shape = [2], strides = [2], p = 3, ceil_mode = 1>(x) }",
     {{1.473614, 1.689904, 0.03125, 1.742052, 1.461028, 0.46875}}},
    {"GlobalLpPool",
     21,
     -2,
     2,
     "(float[2,2,2,3] x) => (float[2,2,1,1] y) { y = GlobalLpPool<p = 3>(x) }",
     {{2.357552, 2.132856, 2.479593, 1.982891}}},
    {"Lrn",
     21,
     -2,
     2,
     "(float[1,5,1,2] x) => (float[1,5,1,2] y) { y = LRN<size = 3, alpha = 0.5, beta = 0.6, bias = 1.5>(x) }",
     {{-0.8871207, 0.6543251, -0.4543549, 0.9278347, -0.02330377, -0.9580117, 0.4163936, -0.6762818, 0.8547488,
       -0.3366751}}},
    {"LrnEven",
     21,
     -2,
     2,
     "(float[2,4] x) => (float[2,4] y) { y = LRN<size = 2, alpha = 0.5>(x) }",
     {{-0.8697131, 0.8128008, -0.423449, 1.119497, -0.02063804, -1.093879, 0.4645128, -0.8988621}}},
    {"ConvSameLower1d",
     21,
     -2,
     2,
     "(float[1,2,5] x) => (float[1,2,3] y) { w = Constant<value = float[2,1,2] {1.0, 2.0, -1.0, 0.5}>() y = "
     "Conv<auto_pad = \"SAME_LOWER\", strides = [2], group = 2>(x, w) }",
     {{-2.5625, -0.28125, 1.59375, -0.859375, -1.140625, -1.453125}}},
    {"ConvTransposeSameUpper",
     21,
     -2,
     2,
     "(float[1,1,3] x) => (float[1,1,6] y) { w = Constant<value = float[1,1,3] {1.0, 2.0, -1.0}>() y = "
     "ConvTranspose<auto_pad = \"SAME_UPPER\", strides = [2]>(x, w) }",
     {{-1.28125, -2.5625, 2.3125, 2.0625, -1.6875, -1.3125}}},
    {"ConvTransposeSameLower",
     21,
     -2,
     2,
     "(float[1,1,3] x) => (float[1,1,6] y) { w = Constant<value = float[1,1,3] {1.0, 2.0, -1.0}>() y = "
     "ConvTranspose<auto_pad = \"SAME_LOWER\", strides = [2]>(x, w) }",
     {{-2.5625, 2.3125, 2.0625, -1.6875, -1.3125, 0.65625}}},
    {"ConvTransposeOutputShape",
     21,
     -2,
     2,
     "(float[1,1,3,2] x) => (float[1,1,8,6] y) { w = Constant<value = float[1,1,3,3] {1.0, 2.0, -1.0, 0.5, 1.5, -2.0, "
     "3.0, 0.25, 1.0}>() y = ConvTranspose<strides = [3, 2], output_shape = [8, 6]>(x, w) }",
     {{-0.640625, -1.921875, 3.078125, 1.546875,   -2.0625,  0,          -3.84375,  -0.3203125, 1.8125,    0.2578125,
       1.03125,   0,         -0.65625, -1.3125,    2.3125,   3.3125,     -1.65625,  0,          -0.328125, -0.984375,
       2.140625,  2.484375,  -3.3125,  0,          -1.96875, -0.1640625, 4.3125,    0.4140625,  1.65625,   0,
       -0.03125,  -0.0625,   -1.6875,  -3.4375,    1.71875,  0,          -0.015625, -0.046875,  -0.796875, -2.578125,
       3.4375,    0,         -0.09375, -0.0078125, -5.1875,  -0.4296875, -1.71875,  0}}},
    {"ConvTransposeOutputPadding",
     21,
     -2,
     2,
     "(float[1,1,2,2] x) => (float[1,1,6,5] y) { w = Constant<value = float[1,1,3,2] {1.0, 2.0, -1.0, 0.5, 1.5, "
     "-2.0}>() y = ConvTranspose<strides = [2, 2], output_padding = [1, 1]>(x, w) }",
     {{-1.28125,  -2.5625, 1.03125,  2.0625,  0, 1.28125, -0.640625, -1.03125, 0.515625, 0,
       -2.578125, 1.25,    3.203125, 1.25,    0, 0.65625, -0.328125, -1.65625, 0.828125, 0,
       -0.984375, 1.3125,  2.484375, -3.3125, 0, 0,       0,         0,        0,        0}}},
    {"ConvTransposeDilatedPadding",
     21,
     -2,
     2,
     "(float[1,1,3] x) => (float[1,1,7] y) { w = Constant<value = float[1,1,2] {1.0, 2.0}>() y = "
     "ConvTranspose<dilations = [3], output_padding = [1]>(x, w) }",
     {{-1.28125, 1.03125, -0.65625, -2.5625, 2.0625, -1.3125, 0}}},
    {"ConvTranspose3d",
     21,
     -2,
     2,
     "(float[1,2,1,2,2] x) => (float[1,2,2,3,3] y) { w = Constant<value = float[2,1,2,2,2] {1.0, 2.0, -1.0, 0.5, 1.5, "
     "-2.0, 3.0, 0.25, 1.0, -0.5, 0.75, 2.0, 1.0, -1.0, 0.5, 1.25}>() b = Constant<value_floats = [1.0, -1.0]>() y = "
     "ConvTranspose<group = 2>(x, w, b) }",
     {{-0.28125,  -0.53125,  3.0625,    1.625,      -0.328125, 4.828125,  1.65625,    -0.984375,  1.828125,
       -0.921875, 5.109375,  -1.0625,   -3.828125,  7.570312,  -2.054688, -0.96875,   5.804688,   1.414062,
       -1.03125,  -2.703125, -0.140625, -0.4296875, -3.742188, -3.890625, -0.5546875, -0.6328125, -3.1875,
       -1.03125,  -2.6875,   0.71875,   -0.421875,  -3.585938, -2.054688, -0.703125,  -0.8046875, -2.367188}}},
    {"UpsampleNearest",
     9,
     -2,
     2,
     "(float[1,1,2,3] x) => (float[1,1,4,6] y) { s = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>() y = "
     "Upsample<mode = \"nearest\">(x, s) }",
     {{-1.28125, -1.28125, 1.03125,  1.03125,  -0.65625, -0.65625, -1.28125, -1.28125,
       1.03125,  1.03125,  -0.65625, -0.65625, 1.65625,  1.65625,  -0.03125, -0.03125,
       -1.71875, -1.71875, 1.65625,  1.65625,  -0.03125, -0.03125, -1.71875, -1.71875}}},
    {"UpsampleNearestOdd",
     9,
     -2,
     2,
     "(float[1,1,4] x) => (float[1,1,6] y) { s = Constant<value = float[3] {1.0, 1.0, 1.5}>() y = Upsample<mode = "
     "\"nearest\">(x, s) }",
     {{-1.28125, -1.28125, 1.03125, -0.65625, -0.65625, 1.65625}}},
    {"ResizeTenNearest",
     10,
     -2,
     2,
     "(float[1,1,4] x) => (float[1,1,6] y) { s = Constant<value = float[3] {1.0, 1.0, 1.5}>() y = Resize<mode = "
     "\"nearest\">(x, s) }",
     {{-1.28125, -1.28125, 1.03125, -0.65625, -0.65625, 1.65625}}},
    {"UpsampleLinear",
     9,
     -2,
     2,
     "(float[1,1,2,3] x) => (float[1,1,4,3] y) { s = Constant<value = float[4] {1.0, 1.0, 2.0, 1.0}>() y = "
     "Upsample<mode = \"linear\">(x, s) }",
     {{-1.28125, 1.03125, -0.65625, 0.1875, 0.5, -1.1875, 1.65625, -0.03125, -1.71875, 1.65625, -0.03125, -1.71875}}},
    {"ResizeSymmetric",
     21,
     -2,
     2,
     "(float[1,4] x) => (float[1,6] y) { s = Constant<value_floats = [1.0, 1.6]>() y = Resize<mode = \"linear\", "
     "coordinate_transformation_mode = \"half_pixel_symmetric\">(x, , s) }",
     {{-1.28125, 0.01953128, 0.7148438, -0.3398438, 0.3554687, 1.65625}}},
    {"ResizeScaleOnly",
     21,
     -2,
     2,
     "(float[1,5] x) => (float[1,5] y) { s = Constant<value_floats = [1.0, 1.1]>() y = Resize<mode = \"linear\">(x, , "
     "s) }",
     {{-1.28125, 0.715909, -0.2727272, 0.9204544, 0.6590911}}},
    {"ResizeBySevenTenths",
     21,
     -2,
     2,
     "(float[1,10] x) => (float[1,7] y) { s = Constant<value_floats = [1.0, 0.7]>() y = Resize<mode = \"nearest\">(x, "
     ", s) }",
     {{-1.28125, -0.65625, 1.65625, -0.03125, 0.59375, -1.09375, -0.46875}}},
    {"ResizeAntialias",
     21,
     -2,
     2,
     "(float[1,8] x) => (float[1,3] y) { s = Constant<value_ints = [1, 3]>() y = Resize<mode = \"linear\", antialias = "
     "1>(x, , , s) }",
     {{-0.1388081, 0.1458333, -0.5617732}}},
    {"ResizeAntialiasCubic",
     21,
     -2,
     2,
     "(float[1,9] x) => (float[1,4] y) { s = Constant<value_ints = [1, 4]>() y = Resize<mode = \"cubic\", antialias = "
     "1, exclude_outside = 1>(x, , , s) }",
     {{-0.2216285, 0.578296, -0.640796, 0.1591285}}},
    {"ResizeCubicExcluded",
     21,
     -2,
     2,
     "(float[1,4] x) => (float[1,7] y) { s = Constant<value_ints = [1, 7]>() y = Resize<mode = \"cubic\", "
     "exclude_outside = 1, cubic_coeff_a = -0.5>(x, , , s) }",
     {{-1.464694, -0.5183215, 0.9784186, 0.1875, -0.6034186, 0.8933215, 1.839694}}},
    {"ResizeNotLarger",
     21,
     -2,
     2,
     "(float[1,1,4,3] x) => (float[1,1,7,5] y) { s = Constant<value_ints = [7, 5]>() y = Resize<mode = \"linear\", "
     "axes = [2, 3], keep_aspect_ratio_policy = \"not_larger\">(x, , , s) }",
     {{-1.28125, -0.35625, 1.03125, 0.01875,  -0.65625, -0.10625, 0.17875, 0.60625,  -0.40625,
       -1.08125, 1.65625,  0.98125, -0.03125, -1.04375, -1.71875, 1.01875, 0.34375,  -0.66875,
       -0.24125, 0.04375,  0.38125, 0.02625,  -0.50625, 0.40125,  1.00625, -0.25625, 0.34875,
       1.25625,  0.72375,  0.36875, -0.46875, 0.45625,  1.84375,  0.83125, 0.15625}}},
    {"Col2Im",
     21,
     -2,
     2,
     "(float[1,4,6] x) => (float[1,1,3,4] y) { i = Constant<value_ints = [3, 4]>() b = Constant<value_ints = [2, 2]>() "
     "y = Col2Im(x, i, b) }",
     {{-1.28125, 1.625, -1.75, 1.21875, 0.125, 0.625, -2.125, 1.125, 1.40625, -1, -0.375, -0.09375}}},
    {"Col2ImTiles",
     21,
     -2,
     2,
     "(float[1,8,4] x) => (float[1,2,5,4] y) { i = Constant<value_ints = [5, 4]>() b = Constant<value_ints = [2, 2]>() "
     "y = Col2Im<strides = [2, 2]>(x, i, b) }",
     {{-1.28125, -0.03125, 1.03125,  -1.71875, 1.21875,  -1.53125, -0.46875, 0.78125, -0.65625, 0.59375,
       1.65625,  -1.09375, 1.84375,  -0.90625, 0.15625,  1.40625,  0,        0,       0,        0,
       -0.28125, 0.96875,  -1.96875, -0.71875, -1.78125, -0.53125, 0.53125,  1.78125, 0.34375,  1.59375,
       -1.34375, -0.09375, -1.15625, 0.09375,  1.15625,  -1.59375, 0,        0,       0,        0}}},
    {"Col2ImPadded",
     21,
     -2,
     2,
     "(float[2,6,6] x) => (float[2,1,5,4] y) { i = Constant<value_ints = [5, 4]>() b = Constant<value_ints = [2, 3]>() "
     "y = Col2Im<strides = [2, 2], dilations = [2, 1], pads = [1, 0, 1, 2]>(x, i, b) }",
     {{0, 0, 0, 0, -0.3125, -0.5625, -0.5, 0.0625,  0, 0, 0, 0, 0.9375,  0.6875,  -2, 1.3125,  0, 0, 0, 0,
       0, 0, 0, 0, -1.8125, 1.9375,  0.5,  -1.4375, 0, 0, 0, 0, -0.5625, -0.8125, -1, -0.1875, 0, 0, 0, 0}}},
    {"Col2Im3d",
     21,
     -2,
     2,
     "(float[1,8,2] x) => (float[1,1,2,2,3] y) { i = Constant<value_ints = [2, 2, 3]>() b = Constant<value_ints = [2, "
     "2, 2]>() y = Col2Im(x, i, b) }",
     {{-1.28125, 0.375, 1.65625, -0.03125, -1.125, -1.09375, 1.21875, 1.375, 0.15625, -1.53125, -0.125, 1.40625}}},
};

class OnnxPadPool : public testing::TestWithParam<ReferenceCase> {};

TEST_P(OnnxPadPool, AgreesWithTheReference) { checkReferenceCase(GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, OnnxPadPool, testing::ValuesIn(cases),
                         [](const auto &info) { return std::string(info.param.name); });

/// The message with which the graph is refused.
std::string refusalOf(const char *text) {
  llvm::Expected<ImportedModel> imported = importCase({"", 21, 0, 1, text, {}});
  if (imported)
    return "";
  return llvm::toString(imported.takeError());
}

TEST(OnnxPadPool, AttributesThatOverflowAreRefusedByName) {
  const std::pair<const char *, const char *> refused[] = {
      {"(float[1,1,4] x) => (float[1,1,n] y) { y = MaxPool<kernel_shape = [2], strides = [9223372036854775807]>(x) }",
       "a stride of 9223372036854775807"},
      {"(float[1,1,4] x) => (float[1,1,n] y) { y = AveragePool<kernel_shape = [4611686018427387904], dilations = "
       "[4]>(x) "
       "}",
       "a kernel of 4611686018427387904"},
      {"(float[1,1,4] x) => (float[1,1,n] y) { w = Constant<value = float[1,1,1] {1.0}>() y = ConvTranspose<strides = "
       "[4611686018427387904]>(x, w) }",
       "a stride of 4611686018427387904"},
      {"(float[1,1,4] x) => (float[1,m,n] y) { w = Constant<value = float[1,2,1] {1.0, 2.0}>() y = ConvTranspose<group "
       "= "
       "4611686018427387904>(x, w) }",
       "groups"},
      {"(float[1,4] x) => (float[1,n] y) { p = Constant<value_ints = [0, 9223372036854775807, 0, 0]>() y = Pad<mode = "
       "\"edge\">(x, p) }",
       "pads of 9223372036854775807"},
      {"(float[1,4] x) => (float[1,n] y) { p = Constant<value_ints = [0, 2147483647, 0, 0]>() y = Pad<mode = "
       "\"wrap\">(x, p) }",
       "more than 1024 times"},
      {"(float[1,4] x) => (float[1,n] y) { s = Constant<value_floats = [1.0, 1e30]>() y = Resize<mode = \"linear\">(x, "
       ", "
       "s) }",
       "axis 1 of f32[1,4] cannot get 4"},
      {"(float[1,4,4] x) => (float[1,1,2,2] y) { i = Constant<value_ints = [2, 2]>() b = Constant<value_ints = "
       "[4294967296, 4294967296]>() y = Col2Im(x, i, b) }",
       "a block of 4294967296"},
      {"(float[1,4,1,1] x) => (float[1,m,n,k] y) { y = DepthToSpace<blocksize = 4294967296>(x) }",
       "blocksize 4294967296 does not fit"},
  };
  for (auto [text, message] : refused)
    EXPECT_NE(refusalOf(text).find(message), std::string::npos) << refusalOf(text) << "\n" << text;
}

} // namespace

} // namespace fsdpc
