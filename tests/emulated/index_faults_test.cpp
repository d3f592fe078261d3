// An index outside its axis is reported to the host with its node, by every kernel that checks indices.
#include "runtime/common/index_fault.h"
#include "runtime/cuda/index_faults.h"
#include "tests/runtime/kernels_support.h"

#include <functional>

namespace fsdpc::rt {

std::span<const IndexNodeInfo> programIndexNodes() {
  static constexpr IndexNodeInfo nodes[] = {{"/embed/Gather", {1, {4}}}, {"/pick/GatherND", {2, {4, 2}}}};
  return nodes;
}

namespace {

/// The host's message after the kernel, "" if all indices were in range.
std::string faultOf(const std::function<void(const Context &)> &kernel) {
  const Context c = contextOf();
  kernel(c);
  std::string message;
  try {
    requireNoIndexFault(deviceOf(c));
  } catch (const Failure &failure) {
    message = failure.what();
    EXPECT_EQ(failure.code, ExitCode::corrupt);
  }
  *deviceOf(c).indexFault = IndexFaults::none;
  return message;
}

const std::vector<float> table = {0, 1, 2, 3, 4, 5, 6, 7};

TEST(IndexFaults, EveryKernelWithIndicesTells) {
  const std::vector<std::int64_t> rows = {1, 9, -5}, tuples = {0, 1, 3, -3};
  std::vector<float> y(8);
  const std::string ofGather = "node '/embed/Gather': index -5 is outside an axis of 4 elements";
  EXPECT_EQ(faultOf([&](const Context &c) {
              gather(c, {.size = 4, .inner = 2, .count = 3, .node = 0}, bits(table.data()), rows.data(),
                     bits(y.data()));
            }),
            ofGather)
      << "the smallest of several";
  EXPECT_EQ(faultOf([&](const Context &c) {
              scatterAdd(c, {.size = 4, .inner = 2, .count = 3, .node = 0}, rows.data(), table.data(), y.data());
            }),
            ofGather);
  const RowsShape ofRows{.size = 4, .inner = 2, .count = 3, .own = 4, .node = 0};
  EXPECT_EQ(faultOf([&](const Context &c) { gatherRows(c, ofRows, bits(table.data()), rows.data(), bits(y.data())); }),
            ofGather);
  EXPECT_EQ(faultOf([&](const Context &c) { scatterRows(c, ofRows, rows.data(), table.data(), y.data()); }), ofGather);
  const GatherNdShape shape{.count = 2, .depth = 2, .dims = {4, 2}, .node = 1};
  const std::string ofTuple = "node '/pick/GatherND': index -3 is outside an axis of 2 elements";
  EXPECT_EQ(faultOf([&](const Context &c) { gatherNd(c, shape, bits(table.data()), tuples.data(), bits(y.data())); }),
            ofTuple);
  EXPECT_EQ(faultOf([&](const Context &c) {
              scatterNd(c, shape, Reduction::add, table.data(), tuples.data(), table.data(), y.data());
            }),
            ofTuple);
}

TEST(IndexFaults, IndicesInRangeAndOnesThatCountFromTheEndSayNothing) {
  const std::vector<std::int64_t> rows = {3, -4, 0};
  std::vector<float> y(6);
  EXPECT_EQ(faultOf([&](const Context &c) {
              gather(c, {.size = 4, .inner = 2, .count = 3, .node = 0}, bits(table.data()), rows.data(),
                     bits(y.data()));
            }),
            "");
}

} // namespace
} // namespace fsdpc::rt
