// Runs of the fake program: data, arguments, and what they leave behind.
#pragma once

#include "runtime/common/run_program.h"
#include "runtime/common/safetensors.h"
#include "tests/runtime/fake_program.h"
#include "tests/runtime/temporary_folder.h"

#include <algorithm>
#include <sstream>

namespace fsdpc::rt {

class Run : public ::testing::Test {
protected:
  Run() {
    std::filesystem::create_directory(folder.path("weights"));
    SafetensorsWriter weights(folder.path("weights/model.safetensors"),
                              {{"w", ElementType::f32, {3}}, {"scale", ElementType::f32, {2, 2}}});
    weights.write(*weights.find("w"), bytesOf<float>({0.5f, -0.25f, 1}).data());
    weights.write(*weights.find("scale"), bytesOf<float>({1, 2, 3, 4}).data());
    weights.commit();
    folder.write("model.onnx", "\x0a\x09the model");
  }

  /// `samples` points of y = x0 + 2 x1 with x in {0, 1}.
  std::string data(const std::string &name, std::int64_t samples, std::int64_t badLabelAt = -1) {
    std::vector<float> x;
    std::vector<std::int64_t> labels;
    for (std::int64_t i = 0; i < samples; ++i) {
      x.push_back(static_cast<float>(i & 1));
      x.push_back(static_cast<float>((i >> 1) & 1));
      labels.push_back(i == badLabelAt ? 99 : (i & 1) + 2 * ((i >> 1) & 1));
    }
    SafetensorsWriter file(folder.path(name),
                           {{"x", ElementType::f32, {samples, 2}}, {"labels", ElementType::i64, {samples}}});
    file.write(*file.find("x"), x.data());
    file.write(*file.find("labels"), labels.data());
    file.commit();
    return folder.path(name);
  }

  std::optional<Failure> run(int worldSize, std::vector<std::string> arguments) {
    return run(FakeProgram(worldSize), worldSize, arguments);
  }

  std::optional<Failure> run(const FakeProgram &program, int ranks, std::vector<std::string> arguments) {
    std::vector<const char *> pointers;
    arguments.insert(arguments.end(), {"--progress", "none"});
    for (const std::string &argument : arguments)
      pointers.push_back(argument.c_str());
    return onRanks(ranks, [&](Platform &platform) {
      Pulse pulse(platform.rank());
      const Options options = parseOptions(program.info, pointers);
      runProgram(program.info, options, platform, folder.path("."), pulse);
    });
  }

  std::vector<std::string> lines(const std::string &name) {
    std::istringstream in(contentOf(folder.path(name)));
    std::vector<std::string> result;
    for (std::string line; std::getline(in, line);)
      result.push_back(line);
    return result;
  }

  static double number(const std::string &line, const std::string &key) {
    const auto at = line.find("\"" + key + "\":");
    return at == std::string::npos ? std::nan("") : std::stod(line.substr(at + key.size() + 3));
  }

  std::vector<float> tensor(const std::string &file, const char *name) {
    const SafetensorsFile opened(folder.path(file));
    const TensorEntry *entry = opened.find(name);
    if (!entry)
      return {};
    std::vector<float> values(static_cast<std::size_t>(entry->elements));
    opened.file().read(entry->offsetBytes, values.data(), entry->sizeBytes);
    return values;
  }

  TemporaryFolder folder;
};

} // namespace fsdpc::rt
