// A separate folder for one test, removed at the end, and helpers for binary files in it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace fsdpc::rt {

class TemporaryFolder {
public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "fsdpc-test-XXXXXX").string();
    folder = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(folder); }
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;

  std::string path(const std::string &name) const { return folder + "/" + name; }

  std::string write(const std::string &name, const std::string &bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto &entry : std::filesystem::directory_iterator(folder))
      found.push_back(entry.path().filename().string());
    return found;
  }

private:
  std::string folder;
};

inline std::string contentOf(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The concatenated bytes of values.
template <class T>
std::string bytesOf(const std::vector<T> &values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <class T>
std::vector<T> valuesOf(const std::string &bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

/// A safetensors file from its header and data.
inline std::string safetensorsBytes(const std::string &header, const std::string &data) {
  return bytesOf<std::uint64_t>({header.size()}) + header + data;
}

} // namespace fsdpc::rt

/// `statement` throws Failure with this code and a message that contains `part`.
#define EXPECT_FAILURE(statement, expectedCode, part)                                                                  \
  try {                                                                                                                \
    statement;                                                                                                         \
    ADD_FAILURE() << "no failure: " #statement;                                                                        \
  } catch (const ::fsdpc::rt::Failure &failure) {                                                                      \
    EXPECT_EQ(static_cast<int>(failure.code), static_cast<int>(::fsdpc::rt::ExitCode::expectedCode))                   \
        << failure.what();                                                                                             \
    EXPECT_NE(std::string(failure.what()).find(part), std::string::npos) << failure.what();                            \
  }
