// Weights as people have them: folders, indices, names with other prefixes, parameters with two names.
#include "runtime/common/model_folder.h"
#include "runtime/common/weights.h"
#include "tests/runtime/fake_program.h"
#include "tests/runtime/temporary_folder.h"

#include <filesystem>

namespace fsdpc::rt {
namespace {

/// A program of parameters f32[2] with these names.
struct NamedProgram {
  std::vector<ParameterInfo> parameters;
  std::vector<OtherNameInfo> otherNames;
  ProgramInfo info = {};

  NamedProgram(std::initializer_list<const char *> names, std::vector<OtherNameInfo> others = {})
      : otherNames(std::move(others)) {
    for (const char *name : names)
      parameters.push_back({name, DType::f32, {1, {2}}, 0, 0, true, name, {0}, {1, {2}}, 0, true});
    info.parameters = parameters;
    info.otherNames = otherNames;
  }
};

class WeightFolder : public ::testing::Test {
protected:
  /// Tensors f32[2] of these names; all hold `first` and 0.
  std::string write(const std::string &file, const std::vector<std::string> &names, float first = 1) {
    std::vector<TensorSpec> specs;
    for (const std::string &name : names)
      specs.push_back({name, ElementType::f32, {2}});
    SafetensorsWriter writer(folder.path(file), specs);
    for (const std::string &name : names)
      writer.write(*writer.find(name), bytesOf<float>({first, 0}).data());
    writer.commit();
    return folder.path(file);
  }
  WeightNames match(const NamedProgram &program, const std::vector<std::string> &stored) {
    files = std::make_unique<WeightFiles>(write("w.safetensors", stored));
    return matchNames(program.info, *files);
  }
  static std::vector<std::string> found(const WeightNames &names) {
    std::vector<std::string> result;
    for (const StoredTensor *tensor : names.ofParameter)
      result.push_back(tensor ? tensor->name() : "");
    return result;
  }
  Weights weights(const NamedProgram &program, const std::string &path, const std::string &partial = "") {
    return Weights(program.info, path, WeightsOrigin::user, partial);
  }

  std::unique_ptr<WeightFiles> files;
  TemporaryFolder folder;
};
using Names = std::vector<std::string>;

TEST_F(WeightFolder, PrefixesOfWrappersAndBaseModelsComeAndGo) {
  const NamedProgram wrapped{"model.bert.a.weight", "model.bert.b.weight", "model.head.weight"};
  EXPECT_EQ(found(match(wrapped, {"bert.a.weight", "bert.b.weight", "head.weight"})),
            (Names{"bert.a.weight", "bert.b.weight", "head.weight"}));
  EXPECT_EQ(found(match(wrapped, {"a.weight", "b.weight"})), (Names{"a.weight", "b.weight", ""}));
  EXPECT_EQ(found(match(wrapped, {"module.model.bert.a.weight", "module.model.bert.b.weight"})),
            (Names{"module.model.bert.a.weight", "module.model.bert.b.weight", ""}));
  const NamedProgram base{"a.weight", "b.weight"};
  const WeightNames names = match(base, {"bert.a.weight", "bert.b.weight", "cls.weight"});
  EXPECT_EQ(found(names), (Names{"bert.a.weight", "bert.b.weight"}));
  ASSERT_EQ(names.extra.size(), 1u);
  EXPECT_EQ(names.extra[0]->name(), "cls.weight");
}

TEST_F(WeightFolder, OnePartOfAModelIsNotTakenForAnother) {
  const NamedProgram program{"encoder.a", "encoder.b", "head.a"};
  EXPECT_EQ(found(match(program, {"decoder.a", "decoder.b"})), (Names{"", "", ""}));
  EXPECT_EQ(found(match(program, {"encoder.a", "encoder.b", "cls.a"})), (Names{"encoder.a", "encoder.b", ""}));
  const NamedProgram encoder{"encoder.a", "encoder.b"};
  EXPECT_EQ(found(match(encoder, {"decoder.a", "decoder.b"})), (Names{"", ""}));
  const NamedProgram wrapped{"model.a", "model.b"};
  EXPECT_EQ(found(match(wrapped, {"bert.a", "bert.b"})), (Names{"bert.a", "bert.b"}));
  const NamedProgram stack{"a", "b"};
  EXPECT_FAILURE(match(stack, {"encoder.a", "encoder.b", "decoder.a", "decoder.b"}), incompatible,
                 "fit with the prefix 'decoder.' and with 'encoder.'");
}

TEST_F(WeightFolder, WhatTheCompilerWroteHasExactNames) {
  NamedProgram program{"model.a", "model.b", "a"};
  program.parameters[0].inWeightsFile = program.parameters[1].inWeightsFile = false;
  const WeightFiles written(write("w.safetensors", {"a", "b"}));
  EXPECT_EQ(found(exactNames(program.info, written)), (Names{"", "", "a"}));
}

TEST_F(WeightFolder, ExactNamesAreNotRenamed) {
  const NamedProgram program{"model.a", "model.b", "a"};
  EXPECT_EQ(found(match(program, {"a", "model.a", "model.b"})), (Names{"model.a", "model.b", "a"}));
}

TEST_F(WeightFolder, AParameterOfTwoNamesIsFoundUnderEither) {
  const NamedProgram program({"model.lm_head.weight", "model.norm.weight"}, {{0, "model.embed.weight"}});
  EXPECT_EQ(found(match(program, {"embed.weight", "norm.weight"})), (Names{"embed.weight", "norm.weight"}));
  EXPECT_EQ(found(match(program, {"lm_head.weight", "norm.weight"})), (Names{"lm_head.weight", "norm.weight"}));
}

TEST_F(WeightFolder, AParameterStoredTwiceMustHaveEqualValues) {
  const NamedProgram program({"head.weight"}, {{0, "embed.weight"}});
  weights(program, write("same.safetensors", {"head.weight", "embed.weight"})).requireEqualCopies();
  SafetensorsWriter writer(folder.path("other.safetensors"),
                           {{"head.weight", ElementType::f32, {2}}, {"embed.weight", ElementType::f32, {2}}});
  writer.write(*writer.find("head.weight"), bytesOf<float>({1, 2}).data());
  writer.commit();
  EXPECT_FAILURE(weights(program, folder.path("other.safetensors")).requireEqualCopies(), incompatible,
                 "head.weight and embed.weight differ there and are one parameter here");
}

TEST_F(WeightFolder, StateThatModelsComputeIsLeftOut) {
  const NamedProgram program{"h.0.attn.weight"};
  const Weights read = weights(program, write("w.safetensors", {"h.0.attn.weight", "h.0.attn.inv_freq"}));
  ASSERT_EQ(read.notes().size(), 1u);
  EXPECT_NE(read.notes()[0].find("h.0.attn.inv_freq"), std::string::npos);
}

TEST_F(WeightFolder, PartialWeightsAreAllowedByEntireNames) {
  const NamedProgram program{"a.weight", "head.weight"};
  const std::string path = write("w.safetensors", {"a.weight", "cls.weight"});
  EXPECT_FAILURE(weights(program, path), incompatible, "missing: head.weight [2]\n  extra: cls.weight [2]");
  EXPECT_FAILURE(weights(program, path, "head.*"), incompatible, "extra: cls.weight [2]");
  EXPECT_EQ(weights(program, path, "(head|cls)\\..*").notes().size(), 2u);
  EXPECT_FAILURE(weights(program, write("all.safetensors", {"a.weight", "head.weight"}), "cls"), usage,
                 "matches the entire name of nothing that is missing or extra");
  EXPECT_FAILURE(weights(program, path, "("), usage, "--load_partial (");
}

TEST_F(WeightFolder, ANameOfAnyLengthEndsInNoFault) {
  const NamedProgram program{"a.weight"};
  const std::string path = write("w.safetensors", {"a.weight", std::string(1'000'000, 'x')});
  EXPECT_FAILURE(weights(program, path, ".*"), incompatible, "has a name of 1000000 bytes");
}

TEST_F(WeightFolder, AFolderIsItsWholeFileOrItsIndexOrAllItsFiles) {
  const NamedProgram program{"a", "b"};
  std::filesystem::create_directory(folder.path("m"));
  write("m/x.safetensors", {"a"});
  write("m/y.safetensors", {"b"});
  EXPECT_EQ(weights(program, folder.path("m")).folder(), folder.path("m"));
  folder.write(
      "m/model.safetensors.index.json",
      R"({"metadata": {"total_size": 16, "of": [{}]}, "weight_map": {"a": "x.safetensors", "b": "y.safetensors"}})");
  weights(program, folder.path("m"));
  weights(program, folder.path("m/model.safetensors.index.json"));
  folder.write("m/model.safetensors.index.json", R"({"weight_map": {"a": "x.safetensors"}})");
  EXPECT_FAILURE(weights(program, folder.path("m")), incompatible, "missing: b [2]");
  folder.write("m/model.safetensors.index.json", R"({"weight_map": {"a": "x.safetensors", "b": "x.safetensors"}})");
  EXPECT_FAILURE(weights(program, folder.path("m")), corrupt, "lacks tensor 'b'");
  folder.write("m/model.safetensors.index.json", R"({"weight_map": {"a": "../x.safetensors"}})");
  EXPECT_FAILURE(weights(program, folder.path("m")), corrupt, "is no file of this folder");
  folder.write("m/model.safetensors.index.json", R"({"weight_map": {"a": "z.safetensors"}})");
  EXPECT_FAILURE(weights(program, folder.path("m")), corrupt, "z.safetensors: cannot open");
  folder.write("m/model.safetensors.index.json", R"({"metadata": {}})");
  EXPECT_FAILURE(weights(program, folder.path("m")), corrupt, "has no weight_map");
  write("m/model.safetensors", {"a", "b"});
  weights(program, folder.path("m"));
}

TEST_F(WeightFolder, FoldersWithoutSafetensorsAndRepeatedTensorsAreNamed) {
  const NamedProgram program{"a"};
  std::filesystem::create_directory(folder.path("m"));
  EXPECT_FAILURE(weights(program, folder.path("m")), corrupt, "has no safetensors files");
  folder.write("m/pytorch_model.bin", "");
  EXPECT_FAILURE(weights(program, folder.path("m")), corrupt, "safe_serialization=True");
  write("m/x.safetensors", {"a"});
  write("m/y.safetensors", {"a"});
  EXPECT_FAILURE(weights(program, folder.path("m")), corrupt, "tensor 'a' is also in");
}

TEST_F(WeightFolder, ASavedFolderHasFilesOfLimitedSizeAnIndexAndWhatGoesAlong) {
  const NamedProgram program{"a", "b", "c"};
  std::filesystem::create_directory(folder.path("from"));
  folder.write("from/config.json", "{}");
  folder.write("from/merges.txt", "x y");
  folder.write("from/model.safetensors.index.json", "not this");
  std::filesystem::create_directory(folder.path("to"));
  write("to/model.safetensors", {"stale"});
  const ModelFolder target{folder.path("to"), {"bert.a", "bert.b", "c"}, folder.path("from"), 16};
  const std::unique_ptr<FileTap> tap = folderTap(program.info, target, 0);
  for (int i = 0; i < 3; ++i)
    tap->take(i, bytesOf<float>({float(i), 9}).data(), 0, 2);
  tap->finish();
  EXPECT_FALSE(fileExists(folder.path("to/model.safetensors")));
  EXPECT_EQ(contentOf(folder.path("to/config.json")), "{}");
  EXPECT_EQ(contentOf(folder.path("to/merges.txt")), "x y");
  EXPECT_EQ(contentOf(folder.path("to/model.safetensors.index.json")),
            R"({"metadata":{"total_size":24},"weight_map":{"bert.a":"model-00001-of-00002.safetensors",)"
            R"("bert.b":"model-00001-of-00002.safetensors","c":"model-00002-of-00002.safetensors"}})");
  const WeightFiles read(folder.path("to"));
  ASSERT_EQ(read.tensors().size(), 3u);
  const StoredTensor &last = *read.find("c");
  float value = 0;
  last.file->file().read(last.entry->offsetBytes, &value, 4);
  EXPECT_EQ(value, 2);
  EXPECT_NE(contentOf(folder.path("to/model-00002-of-00002.safetensors")).find(R"("format":"pt")"), std::string::npos);

  ModelFolder small = target;
  small.maxFileBytes = 100;
  folderTap(program.info, small, 0)->finish();
  EXPECT_TRUE(fileExists(folder.path("to/model.safetensors")));
  EXPECT_FALSE(fileExists(folder.path("to/model.safetensors.index.json")));
}

} // namespace
} // namespace fsdpc::rt
