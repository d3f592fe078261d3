// Facts of weights are those of the elements, however they are read, and are learnt from the file once.
#include "frontend/onnx/import.h"
#include "frontend/onnx/model.h"

#include "ir/write_file.h"
#include "llvm/Support/FileSystem.h"
#include <cmath>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <sys/stat.h>
#include <unistd.h>

namespace fsdpc {

namespace {

std::vector<float> randomFloats(size_t many) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(many);
  for (float &value : values)
    value = normal(generator);
  return values;
}

const uint8_t *bytesOf(const std::vector<float> &values) { return reinterpret_cast<const uint8_t *>(values.data()); }

/// Of a vector, or of a matrix of `rows` rows, appended `step` elements at a time.
TensorFacts factsOf(const std::vector<float> &values, int64_t rows = 0, int64_t step = 1 << 20) {
  const int64_t many = static_cast<int64_t>(values.size());
  TensorFacts facts(DType::f32, many, rows);
  for (int64_t i = 0; i < many; i += step)
    facts.append(bytesOf(values) + i * 4, std::min(step, many - i));
  return facts;
}

std::vector<float> transposed(const std::vector<float> &matrix, size_t rows) {
  const size_t columns = matrix.size() / rows;
  std::vector<float> result(matrix.size());
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; ++j)
      result[j * rows + i] = matrix[i * columns + j];
  return result;
}

TEST(TensorFacts, DigestsDependOnElementsAndPositionsOnly) {
  std::vector<float> values = randomFloats(7 * 13);
  const TensorFacts whole = factsOf(values, 7);
  for (int64_t step : {1, 5, 13, 40}) {
    EXPECT_EQ(factsOf(values, 7, step).digest, whole.digest);
    EXPECT_EQ(factsOf(values, 7, step).digestOfTranspose, whole.digestOfTranspose);
  }
  EXPECT_EQ(factsOf(values).digest, whole.digest);
  std::swap(values[17], values[60]);
  EXPECT_NE(factsOf(values, 7).digest, whole.digest);
  EXPECT_NE(factsOf(values, 7).digestOfTranspose, whole.digestOfTranspose);
}

TEST(TensorFacts, DigestOfTransposeIsTheTransposesDigest) {
  const std::vector<float> matrix = randomFloats(7 * 13), other = transposed(matrix, 7);
  for (int64_t step : {3, 91}) {
    EXPECT_EQ(factsOf(matrix, 7, step).digestOfTranspose, factsOf(other, 13).digest);
    EXPECT_EQ(factsOf(matrix, 7, step).digest, factsOf(other, 13).digestOfTranspose);
  }
  EXPECT_NE(factsOf(matrix, 7).digest, factsOf(other, 13).digest);
}

TEST(TensorFacts, ZerosOfAHoleAreLikeZerosThatAreRead) {
  for (float before : {0.0F, 2.0F, -1e9F}) {
    std::vector<float> values(40);
    values[0] = values[1] = before;
    values[39] = 1;
    const TensorFacts read = factsOf(values, 8);
    TensorFacts skipped(DType::f32, 40, 8);
    skipped.append(bytesOf(values), 2);
    skipped.appendZeros(37);
    skipped.append(bytesOf(values) + 39 * 4, 1);
    EXPECT_EQ(skipped.digest, read.digest);
    EXPECT_EQ(skipped.digestOfTranspose, read.digestOfTranspose);
    EXPECT_EQ(std::tie(skipped.isUniform, skipped.isMask, skipped.varies, skipped.ascends, skipped.descends),
              std::tie(read.isUniform, read.isMask, read.varies, read.ascends, read.descends));
    EXPECT_TRUE(skipped.isComplete());
  }
}

TEST(TensorFacts, UniformIsByBitsAndMasksAreByValues) {
  EXPECT_TRUE(factsOf({3, 3, 3}, 0, 1).isUniform);
  EXPECT_FALSE(factsOf({3, 3, 4}, 0, 1).isUniform);
  EXPECT_FALSE(factsOf({0, -0.0F}).isUniform);
  const TensorFacts mask = factsOf({0, -INFINITY, 0, -1e4F}), zeros = factsOf({0, -0.0F}), other = factsOf({0, 1, 2});
  EXPECT_TRUE(mask.isMask && mask.varies);
  EXPECT_TRUE(zeros.isMask && !zeros.varies);
  EXPECT_FALSE(other.isMask);
}

TEST(TensorFacts, OrderIsSeenAcrossRuns) {
  for (int64_t step : {1, 2, 4}) {
    const TensorFacts up = factsOf({1, 2, 2, 5}, 0, step), down = factsOf({5, 5, 1, 0}, 0, step),
                      neither = factsOf({1, 2, 1, 2}, 0, step);
    EXPECT_TRUE(up.ascends && !up.descends);
    EXPECT_TRUE(!down.ascends && down.descends);
    EXPECT_TRUE(!neither.ascends && !neither.descends);
  }
}

/// A model with one matrix in a file of its own.
class FactsOfFiles : public testing::Test {
protected:
  static constexpr int64_t rows = 1024, columns = 512;

  FactsOfFiles() {
    EXPECT_FALSE(llvm::sys::fs::createUniqueDirectory("fsdpc-facts", folder));
    llvm::SmallString<128> real;
    EXPECT_FALSE(llvm::sys::fs::real_path(folder, real));
    folder = real;
    model.folder = folder.str().str();
    onnx::TensorProto &tensor = *model.graph().add_initializer();
    tensor.set_name("w");
    tensor.set_data_type(onnx::TensorProto::FLOAT);
    tensor.add_dims(rows);
    tensor.add_dims(columns);
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    onnx::StringStringEntryProto &location = *tensor.add_external_data();
    location.set_key("location");
    location.set_value("weights.bin");
  }
  ~FactsOfFiles() override { llvm::sys::fs::remove_directories(folder); }

  std::string path() const { return (folder + "/weights.bin").str(); }
  std::string cache() const { return (folder + "/cache").str(); }
  const onnx::TensorProto &tensor() { return model.graph().initializer(0); }

  /// Writes the values with that time, in seconds since 1970.
  void write(const std::vector<float> &values, int64_t seconds) {
    ASSERT_FALSE(writeFile(path(), llvm::StringRef(reinterpret_cast<const char *>(values.data()), values.size() * 4)));
    setTime(seconds);
  }
  void setTime(int64_t seconds) {
    const timespec times[] = {{seconds, 0}, {seconds, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, path().c_str(), times, 0), 0);
  }
  ElementDigest digest() {
    llvm::Expected<TensorFacts> facts = allFacts(model, tensor());
    EXPECT_TRUE(static_cast<bool>(facts)) << llvm::toString(facts.takeError());
    return facts ? facts->digest : ElementDigest();
  }

  llvm::SmallString<128> folder;
  OnnxModel model;
  const std::vector<float> values = randomFloats(rows * columns), ones = std::vector<float>(rows * columns, 1.0F);
};

TEST_F(FactsOfFiles, AreOfTheElements) {
  write(values, 1000);
  EXPECT_EQ(digest(), factsOf(values, rows).digest);
  EXPECT_FALSE(llvm::cantFail(isUniform(model, tensor(), true)));
  write(ones, 2000);
  EXPECT_TRUE(llvm::cantFail(isUniform(model, tensor(), false)));
}

/// Values that change behind an unchanged time are not seen, so the file was not read again.
TEST_F(FactsOfFiles, AreLearntOnce) {
  write(values, 1000);
  const ElementDigest before = digest();
  write(ones, 1000);
  EXPECT_EQ(digest(), before);
  EXPECT_FALSE(llvm::cantFail(isUniform(model, tensor(), true)));
  write(ones, 1001);
  EXPECT_EQ(digest(), factsOf(ones, rows).digest);
}

TEST_F(FactsOfFiles, AQuestionReadsOnFromTheLastOne) {
  write(values, 1000);
  EXPECT_FALSE(llvm::cantFail(isUniform(model, tensor(), true)));
  const int64_t known = llvm::cantFail(firstFacts(model, tensor())).known;
  EXPECT_LT(known, rows * columns);
  std::vector<float> mixed = ones;
  std::copy_n(values.begin(), known, mixed.begin());
  std::vector<float> behind = mixed;
  behind[0] = 7; // already read
  write(behind, 1000);
  EXPECT_EQ(digest(), factsOf(mixed, rows).digest);
}

TEST_F(FactsOfFiles, OfAHoleAreThoseOfZeros) {
  write({}, 1000);
  ASSERT_EQ(truncate(path().c_str(), rows * columns * 4), 0);
  int file = open(path().c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_EQ(pwrite(file, values.data(), 4096, 1 << 20), 4096);
  close(file);
  std::vector<float> all(rows * columns);
  std::copy_n(values.begin(), 1024, all.begin() + (1 << 18));
  EXPECT_EQ(digest(), factsOf(all, rows).digest);
  EXPECT_FALSE(llvm::cantFail(isUniform(model, tensor(), true)));
}

TEST_F(FactsOfFiles, OutliveTheStoreInAFolder) {
  write(values, 1000);
  model.facts = makeFactStore(cache());
  const ElementDigest before = digest();
  model.facts->save();
  write(ones, 1000);
  model.facts = makeFactStore(cache());
  EXPECT_EQ(digest(), before);
  setTime(1001);
  model.facts = makeFactStore(cache());
  EXPECT_EQ(digest(), factsOf(ones, rows).digest);
}

TEST_F(FactsOfFiles, OfAFileWhoseTimeIsNotPastAreNotKept) {
  write(values, time(nullptr) + 3600);
  model.facts = makeFactStore(cache());
  digest();
  model.facts->save();
  EXPECT_FALSE(llvm::sys::fs::exists(cache()));
}

TEST(FactFile, ReadsBackAndIgnoresEveryDamage) {
  FactFile file{{1 << 20, 12345}, {}};
  const TensorFacts facts = factsOf(randomFloats(35), 5);
  file.facts[{64, onnx::TensorProto::FLOAT, 35, 5}] = facts;
  file.facts[{0, onnx::TensorProto::FLOAT16, 8, 0}] = TensorFacts(DType::f32, 8, 0);
  const std::string text = toText("/a/weights.bin", file);
  std::optional<FactFile> again = fromText(text, "/a/weights.bin", file.state);
  ASSERT_TRUE(again);
  EXPECT_EQ(toText("/a/weights.bin", *again), text);
  EXPECT_EQ((again->facts[{64, onnx::TensorProto::FLOAT, 35, 5}].digestOfTranspose), facts.digestOfTranspose);
  EXPECT_FALSE(fromText(text, "/b/weights.bin", file.state));
  EXPECT_FALSE(fromText(text, "/a/weights.bin", {1 << 20, 12346}));
  for (size_t end = 0; end < text.size(); ++end)
    EXPECT_FALSE(fromText(llvm::StringRef(text).take_front(end), "/a/weights.bin", file.state)) << end;
  for (size_t at = 0; at < text.size(); ++at) {
    std::string damaged = text;
    damaged[at] ^= 1;
    EXPECT_FALSE(fromText(damaged, "/a/weights.bin", file.state)) << at;
  }
}

} // namespace

} // namespace fsdpc
