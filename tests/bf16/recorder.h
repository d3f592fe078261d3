// `fsdpc_rounding instrument` inserts this before a program with node ranges. For every node, it keeps the bytes of its
// operands right before its statements and of its results right after them. For a node that runs in several steps, it
// keeps the last run. FSDPC_REGIONS: the file with their locations (recorded.cpp writes it). FSDPC_RECORD: the file to
// write when the program ends, on rank 0 of one.
#pragma once

#include "runtime/common/program.h"
#ifdef FSDPC_RECORD_DEVICE
#include "runtime/cuda/device.h"
#endif

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace fsdpc::rounding {

class Recorder final : public rt::SectionObserver {
public:
  explicit Recorder(rt::Context &context) : context(context) {
    std::ifstream file(std::getenv("FSDPC_REGIONS"));
    for (std::string line; std::getline(file, line);)
      readNode(line);
  }
  ~Recorder() override {
    std::FILE *file = std::fopen(std::getenv("FSDPC_RECORD"), "wb");
    for (auto &[key, node] : nodes) {
      if (node.bytes.empty())
        continue;
      const std::int64_t header[3] = {key.first, key.second, static_cast<std::int64_t>(node.bytes.size())};
      std::fwrite(header, sizeof header, 1, file);
      std::fwrite(node.bytes.data(), 1, node.bytes.size(), file);
    }
    std::fclose(file);
  }

  void begin(int index) override { section = index; }
  void beginNode(int index) override {
    end();
    current = &nodes.at({section, index});
    current->bytes.clear();
    take(current->operands);
  }
  void end() override {
    if (current)
      take(current->results);
    current = nullptr;
  }

private:
  struct Region {
    rt::Place place;
    std::int64_t bytes;
  };
  struct Node {
    std::vector<Region> operands, results;
    std::vector<std::byte> bytes;
  };

  /// section node, and for each region: operand or result, number of its space, offset, bytes
  void readNode(const std::string &line) {
    std::istringstream words(line);
    int inSection = 0, index = 0;
    words >> inSection >> index;
    Node &node = nodes[{inSection, index}];
    std::int64_t isResult = 0, offset = 0, bytes = 0;
    int space = 0;
    while (words >> isResult >> space >> offset >> bytes)
      (isResult ? node.results : node.operands).push_back({{static_cast<rt::Space>(space), offset}, bytes});
  }

  void take(const std::vector<Region> &regions) {
#ifdef FSDPC_RECORD_DEVICE
    rt::synchronizeCompute(rt::deviceOf(context));
#endif
    for (const Region &region : regions) {
      const std::byte *from = context.at<std::byte>(region.place);
      current->bytes.insert(current->bytes.end(), from, from + region.bytes);
    }
  }

  rt::Context &context;
  std::map<std::pair<int, int>, Node> nodes;
  int section = 0;
  Node *current = nullptr;
};

inline void install(rt::Context &context) {
  static Recorder recorder(context);
  context.observer = &recorder;
}

} // namespace fsdpc::rounding
