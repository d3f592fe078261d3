#include "runtime/common/dataset.h"
#include "tests/runtime/temporary_folder.h"

#include <limits>

namespace fsdpc::rt {
namespace {

class Data : public ::testing::Test {
protected:
  TemporaryFolder folder;

  /// Raw bytes of samples of a field.
  static std::string read(const Dataset &data, const char *name, std::int64_t first, std::int64_t count) {
    const Field &field = *data.find(name);
    std::string bytes(static_cast<std::size_t>(count * field.sampleBytes()), '\0');
    data.read(field, first, count, reinterpret_cast<std::byte *>(bytes.data()));
    return bytes;
  }

  static std::string tokenFile(std::int32_t magic, std::int32_t version, std::int32_t count,
                               const std::string &tokens) {
    std::vector<std::int32_t> header(256);
    header[0] = magic;
    header[1] = version;
    header[2] = count;
    return bytesOf(header) + tokens;
  }

  static std::string idxFile(std::vector<std::uint32_t> dims, const std::string &data) {
    std::string bytes = {0, 0, 8, static_cast<char>(dims.size())};
    for (const std::uint32_t dim : dims)
      for (int shift = 24; shift >= 0; shift -= 8)
        bytes += static_cast<char>(dim >> shift);
    return bytes + data;
  }

  static std::string npyFile(const std::string &dict, const std::string &data, int version = 1) {
    std::string header = dict + "\n";
    const int lengthBytes = version == 1 ? 2 : 4;
    std::string start = "\x93NUMPY";
    start += static_cast<char>(version);
    start += '\0';
    for (int i = 0; i < lengthBytes; ++i)
      start += static_cast<char>(header.size() >> (8 * i));
    return start + header + data;
  }

  /// A member of a ustar archive.
  static std::string tarMember(const std::string &name, const std::string &data, char kind = '0') {
    std::string header(512, '\0');
    const auto put = [&](std::size_t at, const std::string &text) { header.replace(at, text.size(), text); };
    char size[12];
    std::snprintf(size, sizeof size, "%011zo", data.size());
    put(0, name);
    put(124, size);
    put(148, "        ");
    header[156] = kind;
    put(257, std::string("ustar\0"
                         "00",
                         8));
    unsigned sum = 0;
    for (const char c : header)
      sum += static_cast<unsigned char>(c);
    char text[8];
    std::snprintf(text, sizeof text, "%06o", sum);
    put(148, std::string(text) + '\0');
    return header + data + std::string((512 - data.size() % 512) % 512, '\0');
  }

  static std::string npyOf(const std::vector<float> &values) {
    return npyFile("{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(values.size()) + ",), }",
                   bytesOf(values));
  }

  /// Samples of unequal length: `x`, and where they begin and end.
  std::string ragged(const std::string &name, std::vector<std::int32_t> x, std::vector<std::int64_t> bounds) {
    const std::string n = std::to_string(x.size()), end = std::to_string(x.size() * 4),
                      last = std::to_string(x.size() * 4 + bounds.size() * 8);
    return folder.write(name, safetensorsBytes(R"({"x":{"dtype":"I32","shape":[)" + n + R"(],"data_offsets":[0,)" +
                                                   end + R"(]},"x.offsets":{"dtype":"I64","shape":[)" +
                                                   std::to_string(bounds.size()) + R"(],"data_offsets":[)" + end + "," +
                                                   last + "]}}",
                                               bytesOf(x) + bytesOf(bounds)));
  }

  std::string tensors(const std::string &name, std::vector<float> x) {
    const std::string n = std::to_string(x.size()), end = std::to_string(x.size() * 4);
    return folder.write(
        name,
        safetensorsBytes(R"({"x":{"dtype":"F32","shape":[)" + n + R"(],"data_offsets":[0,)" + end + "]}}", bytesOf(x)));
  }
};

TEST_F(Data, SafetensorsFilesAreReadAsOneInTheOrderOfTheirNames) {
  tensors("b.safetensors", {3, 4, 5});
  tensors("a.safetensors", {1, 2});
  const Dataset data = openDataset({folder.path("*.safetensors")});
  EXPECT_EQ(data.find("x")->samples, 5);
  EXPECT_EQ(read(data, "x", 1, 3), bytesOf<float>({2, 3, 4}));
  EXPECT_NE(data.where(*data.find("x"), 3, 0).find("b.safetensors: byte"), std::string::npos);
  EXPECT_NE(data.where(*data.find("x"), 3, 0).find("(sample 1 of x)"), std::string::npos);
}

TEST_F(Data, FilesOfDifferentKindsAreNotOneDataSet) {
  tensors("a.safetensors", {1, 2});
  folder.write("b.safetensors", safetensorsBytes(R"({"x":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})", "1234"));
  EXPECT_FAILURE(openDataset({folder.path("*.safetensors")}), corrupt, "b.safetensors: x is I32[] per sample");
}

TEST_F(Data, AMissingFileIsNamed) {
  EXPECT_FAILURE(openDataset({folder.path("no.bin")}), corrupt, "no.bin: no such file");
  EXPECT_FAILURE(openDataset({folder.path("no*.bin")}), corrupt, "no file matches");
  EXPECT_FAILURE(openDataset({folder.write("x.dat", "what is this")}), corrupt, "x.dat: byte 0: not a");
}

TEST_F(Data, TokensOverlapByOneBetweenSamples) {
  const auto tokens = bytesOf<std::uint16_t>({10, 11, 12, 13, 14, 15, 16, 17});
  DataRequest request{folder.write("t.bin", tokenFile(20240520, 1, 8, tokens))};
  request.tokensPerSample = 3;
  const Dataset data = openDataset(request);
  EXPECT_EQ(data.find("tokens")->samples, 2); // the third would need a tenth token
  EXPECT_EQ(read(data, "tokens", 0, 2), bytesOf<std::uint16_t>({10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(read(data, "labels", 1, 1), bytesOf<std::uint16_t>({14, 15, 16}));
}

TEST_F(Data, WideTokensAndHeaderlessTokens) {
  DataRequest request{folder.write("w.bin", tokenFile(20240801, 7, 4, bytesOf<std::uint32_t>({1, 70000, 3, 4})))};
  request.tokensPerSample = 3;
  EXPECT_EQ(read(openDataset(request), "tokens", 0, 1), bytesOf<std::uint32_t>({1, 70000, 3}));

  request.pattern = folder.write("h.bin", bytesOf<std::uint16_t>({1, 2, 3, 4}));
  EXPECT_FAILURE(openDataset(request), corrupt, "h.bin: byte 0");
  request.format = "tokens";
  EXPECT_EQ(read(openDataset(request), "labels", 0, 1), bytesOf<std::uint16_t>({2, 3, 4}));
}

TEST_F(Data, BadTokenFilesAreRefused) {
  DataRequest request;
  request.tokensPerSample = 2;
  const auto refused = [&](const std::string &content, const char *part) {
    request.pattern = folder.write("t.bin", content);
    EXPECT_FAILURE(openDataset(request), corrupt, part);
  };
  const auto four = bytesOf<std::uint16_t>({1, 2, 3, 4});
  refused(tokenFile(20240520, 2, 4, four), "byte 4: version 2");
  refused(tokenFile(20240520, 1, 5, four), "byte 8: the header counts 5 tokens");
  refused(tokenFile(20240520, 1, -4, four), "overflows");
  refused(tokenFile(20240520, 1, 2, bytesOf<std::uint16_t>({1, 2})), "less than one sample");
  refused(tokenFile(20240520, 1, 4, four).substr(0, 100), "inside the header");
  request.tokensPerSample = 0;
  EXPECT_FAILURE(openDataset({folder.write("u.bin", tokenFile(20240520, 1, 4, four))}), usage, "--map INPUT=tokens");
}

TEST_F(Data, IdxImagesComeWithTheLabelsBesideThem) {
  const std::string images =
      folder.write("t-images-idx3-ubyte", idxFile({2, 1, 2}, std::string("\x00\xff\x33\x66", 4)));
  folder.write("t-labels-idx1-ubyte", idxFile({2}, "\x07\x09"));
  DataRequest request{images};
  request.normalize = {0.5f, 0.25f};
  const Dataset data = openDataset(request);
  const Field &field = *data.find("images");
  EXPECT_EQ(field.samples, 2);
  EXPECT_EQ(field.sampleDims, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(field.lookup[0], -2.0f);
  EXPECT_EQ(field.lookup[255], 2.0f);
  EXPECT_EQ(field.lookup[51], (51.0f / 255.0f - 0.5f) / 0.25f);
  EXPECT_EQ(read(data, "labels", 0, 2), "\x07\x09");
  EXPECT_EQ(openDataset({folder.path("t-*")}).fields.size(), 2u);
}

TEST_F(Data, BadIdxFilesAreRefused) {
  const auto refused = [&](const std::string &content, const char *part) {
    EXPECT_FAILURE(openDataset({folder.write("x-ubyte", content)}), corrupt, part);
  };
  refused(idxFile({2, 2}, "abc"), "ends at byte 15");
  refused(idxFile({2, 2}, "abcde"), "makes it 16");
  refused(std::string("\0\0\x0d\x01", 4) + "abcd", "element type 13");
  refused(std::string("\0\1\x08\x01", 4) + "abcd", "not the magic");
  refused(idxFile({0xffffffff, 0xffffffff, 0xffffffff}, ""), "overflows");
  refused(std::string("\0\0\x08\x03\0\0", 6), "ends at byte 6");
  folder.write("a-images-idx3-ubyte", idxFile({1, 1, 1}, "a"));
  folder.write("b-images-idx3-ubyte", idxFile({1, 1, 1}, "a"));
  EXPECT_FAILURE(openDataset({folder.path("?-images-idx3-ubyte")}), usage, "two files of images");
}

TEST_F(Data, NpyFilesAreNamedByInput) {
  const std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  const std::string x = folder.write("x.npy", npyFile(dict, bytesOf<float>({1, 2, 3, 4, 5, 6})));
  const std::string y = folder.write(
      "y.npy", npyFile("{'shape': (2,), 'fortran_order': False, 'descr': '<i8'}", bytesOf<std::int64_t>({7, 8}), 3));
  const Dataset data = openDataset({"x=" + x + ",labels=" + y});
  EXPECT_EQ(read(data, "x", 1, 1), bytesOf<float>({4, 5, 6}));
  EXPECT_EQ(read(data, "labels", 0, 2), bytesOf<std::int64_t>({7, 8}));
  EXPECT_FAILURE(openDataset({x}), usage, "INPUT=FILE.npy");
  EXPECT_FAILURE(openDataset({"x=" + x + ",x=" + y}), usage, "two files for x");
}

TEST_F(Data, BadNpyFilesAreRefused) {
  const auto refused = [&](const std::string &content, const char *part) {
    EXPECT_FAILURE(openDataset({"x=" + folder.write("x.npy", content)}), corrupt, part);
  };
  const auto dict = [](const std::string &descr, const std::string &order, const std::string &shape) {
    return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + "}";
  };
  const std::string data = bytesOf<float>({1, 2});
  refused("not numpy at all", "byte 0: not the magic");
  refused(npyFile(dict("<f4", "True", "(2,)"), data), "Fortran order");
  refused(npyFile(dict("|O", "False", "(2,)"), data), "element type '|O'");
  refused(npyFile(dict(">f4", "False", "(2,)"), data), "element type '>f4'");
  refused(npyFile(dict("<f4", "False", "(3,)"), data), "the header makes it");
  refused(npyFile(dict("<f4", "False", "(1,)"), data), "the header makes it");
  refused(npyFile(dict("<f4", "False", "()"), bytesOf<float>({1})), "is a scalar");
  refused(npyFile(dict("<f4", "False", "(-2,)"), data), "expected a dimension");
  refused(npyFile(dict("<f4", "False", "(4611686018427387904, 4)"), data), "overflows");
  refused(npyFile(dict("<f4", "False", "(2,)") + "__import__('os')", data), "expected descr");
  refused(npyFile("{'descr': '<f4', 'descr': '<f4'}", data), "unexpected key 'descr'");
  refused(npyFile("{'descr': '<f4'", data), "expected '}'");
  refused(std::string("\x93NUMPY\x01\x00\xff\xff", 10) + "{}", "header length 65535");
  refused(npyFile(dict("<f4", "False", "(2,)"), data).substr(0, 40), "does not fit the file");
}

TEST_F(Data, ATruncatedFileIsRefusedAndAFlippedBitIsRefusedOrReadWithinTheFile) {
  const std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  const std::string header = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::pair<std::string, std::string> files[] = {
      {"x.safetensors", safetensorsBytes(header, "12345678")},
      {"x.npy", npyFile(dict, std::string(24, 'x'))},
      {"x-ubyte", idxFile({2, 2}, "abcd")},
      {"x.tar", tarMember("0.x.npy", npyOf({1})) + tarMember("0.cls", "7") + std::string(512, '\0')}};
  for (const auto &[name, content] : files) {
    const std::string pattern = endsWith(name, ".npy") ? "x=" + folder.path(name) : folder.path(name);
    for (std::size_t length = 0; length < content.size(); ++length) {
      folder.write(name, content.substr(0, length));
      EXPECT_THROW(openDataset({pattern}), Failure) << name << " of " << length << " bytes";
    }
    for (std::size_t bit = 0; bit < 8 * content.size(); ++bit) {
      std::string damaged = content;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
      folder.write(name, damaged);
      try {
        const Dataset data = openDataset({pattern});
        for (const Field &field : data.fields) {
          EXPECT_LE(field.samples * field.sampleBytes(), static_cast<std::int64_t>(content.size())) << bit;
          read(data, field.name.c_str(), 0, field.samples);
        }
      } catch (const Failure &failure) {
        EXPECT_EQ(failure.code, ExitCode::corrupt) << name << ", bit " << bit << ": " << failure.what();
        EXPECT_NE(std::string(failure.what()).find(name), std::string::npos) << failure.what();
      }
    }
  }
}

TEST_F(Data, SeveralPatternsAreOneSourceAndWeightsMakeSources) {
  const std::string a = tensors("a1.safetensors", {1, 2}), b = tensors("b.safetensors", {3, 4, 5});
  tensors("a2.safetensors", {6});
  const Dataset one = openDataset({b + "," + folder.path("a*.safetensors")});
  EXPECT_EQ(read(one, "x", 0, 6), bytesOf<float>({3, 4, 5, 1, 2, 6}));
  ASSERT_EQ(one.sourcesOf(one.fields[0]).size(), 1u);
  EXPECT_EQ(one.sourcesOf(one.fields[0])[0].shardEnds, (std::vector<std::int64_t>{3, 5, 6}));
  const Dataset two = openDataset({folder.path("a*.safetensors") + ":3," + b + ":0.5"});
  const std::vector<SampleSource> sources = two.sourcesOf(two.fields[0]);
  ASSERT_EQ(sources.size(), 2u);
  EXPECT_EQ(sources[0].shardEnds, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(sources[0].weight, 3);
  EXPECT_EQ(sources[1].firstSample, 3);
  EXPECT_EQ(sources[1].shardEnds, (std::vector<std::int64_t>{3}));
  EXPECT_EQ(sources[1].weight, 0.5);
  EXPECT_FAILURE(openDataset({a + ":1," + b}), usage, "give all sources a weight");
  EXPECT_FAILURE(openDataset({a + ":-1"}), usage, "the weight of a source is a positive number");
  EXPECT_FAILURE(openDataset({a + ",,"}), corrupt, "no such file");
  EXPECT_FAILURE(openDataset({a + ":x"}), corrupt, "a1.safetensors:x: no such file");
}

TEST_F(Data, ACommaOrAColonInTheNameOfAFileIsPartOfIt) {
  const std::string odd = tensors("a,b:2.safetensors", {1});
  EXPECT_EQ(openDataset({odd}).fields[0].samples, 1);
}

TEST_F(Data, NpyFilesOfAPatternAreReadAsOne) {
  folder.write("x1.npy", npyOf({1, 2}));
  folder.write("x2.npy", npyOf({3}));
  const Dataset data = openDataset({"x=" + folder.path("x*.npy")});
  EXPECT_EQ(read(data, "x", 0, 3), bytesOf<float>({1, 2, 3}));
  EXPECT_EQ(data.sourcesOf(data.fields[0])[0].shardEnds, (std::vector<std::int64_t>{2, 3}));
}

TEST_F(Data, SamplesOfUnequalLengthAreWhereTheirPositionsSay) {
  ragged("a.safetensors", {1, 2, 3}, {0, 1, 1, 3});
  ragged("b.safetensors", {4, 5, 6, 7}, {0, 4});
  const Dataset data = openDataset({folder.path("*.safetensors")});
  ASSERT_EQ(data.fields.size(), 1u);
  const Field &field = data.fields[0];
  EXPECT_EQ(field.text(), "x I32[at most 4]");
  EXPECT_EQ(field.samples, 4);
  EXPECT_EQ(field.longest, 3);
  EXPECT_EQ(field.shortestElements, 0);
  const std::int64_t elements[] = {1, 0, 2, 4};
  for (std::int64_t sample = 0; sample < 4; ++sample)
    EXPECT_EQ(data.placeOf(field, sample).elements, elements[sample]);
  std::int32_t values[2] = {};
  const SamplePlace place = data.placeOf(field, 2);
  data.files[place.file].read(place.offsetBytes, values, sizeof values);
  EXPECT_EQ(values[1], 3);
  EXPECT_NE(data.where(field, 2, 1).find("(sample 2 of x)"), std::string::npos);
}

TEST_F(Data, PositionsThatDoNotFitTheElementsAreRefused) {
  const auto refused = [&](std::vector<std::int64_t> bounds, const std::string &part) {
    EXPECT_FAILURE(openDataset({ragged("r.safetensors", {1, 2, 3}, std::move(bounds))}), corrupt, part);
  };
  refused({0, 2, 1, 3}, "the positions of x are not ascending from 0");
  refused({-1, 3}, "the positions of x are not ascending from 0");
  refused({std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()},
          "the positions of x are not ascending from 0");
  refused({1, 3}, "go from 1 to 3, its elements from 0 to 3");
  refused({0, 2}, "go from 0 to 2, its elements from 0 to 3");
  refused({0, 1LL << 62}, "go from 0 to 4611686018427387904");
}

TEST_F(Data, MembersOfATarFileWithOneKeyAreASample) {
  folder.write("a.tar", tarMember("dir/", "", '5') + tarMember("dir/one.image.npy", npyOf({1, 2})) +
                            tarMember("dir/one.cls", "3\n") + tarMember("dir/one.txt", "unused") +
                            tarMember("dir/two.image.npy", npyOf({4, 5})) + tarMember("dir/two.cls", "-100") +
                            std::string(1024, '\0'));
  const Dataset data = openDataset({folder.path("a.tar")});
  EXPECT_EQ(data.fieldList(), "image F32[2], labels I64[]");
  EXPECT_EQ(data.defaultField, "image");
  EXPECT_EQ(read(data, "image", 0, 2), bytesOf<float>({1, 2, 4, 5}));
  EXPECT_EQ(read(data, "labels", 0, 2), bytesOf<std::int64_t>({3, -100}));
  EXPECT_NE(data.where(*data.find("image"), 1, 1).find("(sample 0 of image)"), std::string::npos);
}

TEST_F(Data, LongNamesOfTarFilesAreRead) {
  const std::string deep = std::string(150, 'd') + "/one.npy", record = " path=" + deep + "\n";
  const std::string pax = std::to_string(record.size() + 3) + record;
  const std::string tail = std::string(512, '\0');
  folder.write("pax.tar", tarMember("x", pax, 'x') + tarMember("short.txt", npyOf({1})) + tail);
  folder.write("gnu.tar", tarMember("@LongLink", deep + '\0', 'L') + tarMember("short.txt", npyOf({1})) + tail);
  for (const char *name : {"pax.tar", "gnu.tar"})
    EXPECT_EQ(openDataset({folder.path(name)}).fieldList(), "npy F32[1]") << name;
}

TEST_F(Data, WhatATarFileCannotBeIsNamedWithItsOffset) {
  const auto refused = [&](ExitCode code, const std::string &content, const std::string &part) {
    try {
      openDataset({folder.write("r.tar", content)});
      ADD_FAILURE() << "no failure: " << part;
    } catch (const Failure &failure) {
      EXPECT_EQ(failure.code, code);
      EXPECT_NE(std::string(failure.what()).find(part), std::string::npos) << failure.what();
    }
  };
  const std::string end(512, '\0'), one = tarMember("1.npy", npyOf({1})) + tarMember("1.cls", "1");
  refused(ExitCode::corrupt, "not a tar file", "r.tar: byte 0: the file ends inside a header");
  refused(ExitCode::corrupt, std::string(512, 'x') + end, "r.tar: byte 124: not a tar header");
  refused(ExitCode::corrupt, one, "the file ends before the empty block");
  refused(ExitCode::corrupt, one + tarMember("2.npy", npyOf({1})) + end, "the sample before 2.npy has no labels");
  refused(ExitCode::corrupt, one + tarMember("2.npy", npyOf({1, 2})) + tarMember("2.cls", "1") + end,
          "npy is F32[2] per sample, the files before have npy F32[1]");
  refused(ExitCode::corrupt, tarMember("1.cls", "cat") + end, "byte 512: 1.cls is not an integer");
  refused(ExitCode::usage, tarMember("1.jpg", "...") + end, "1.jpg is a compressed image");
}

TEST_F(Data, NormalizeIsForImages) {
  DataRequest request{tensors("a.safetensors", {1, 2})};
  request.normalize = {0.0f, 1.0f};
  EXPECT_FAILURE(openDataset(request), usage, "--normalize applies to IDX images");
}

} // namespace
} // namespace fsdpc::rt
