// The table of emitters, and the text helpers that they use.
#include "codegen/common/cpp_text.h"
#include "codegen/common/emitter.h"
#include "codegen/common/section.h"
#include "codegen/emit.h"
#include "ir/text/text.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

namespace fsdpc {
namespace {

TEST(CpuEmitters, EveryOpPrintsOrSaysWhyNot) {
  for (Op op : allOps())
    EXPECT_NE(emitterOf(op).emit, nullptr) << infoOf(op).name.str();
}

TEST(CpuText, StringsHoldWhatTheyHeldAndEndWhereTheyEnd) {
  EXPECT_EQ(cppString("fc1.weight"), "\"fc1.weight\"");
  EXPECT_EQ(cppString("a\"b\\c"), "\"a\\042b\\134c\"");
  EXPECT_EQ(cppString("?\?/\n1"), "\"\\077\\077/\\0121\"") << "no trigraph, and the digit is not part of the escape";
  EXPECT_EQ(cppString("\xc3\xa9"), "\"\\303\\251\"");
  EXPECT_EQ(cppString(llvm::StringRef("a\0b", 3)), "\"a\"");
}

TEST(CpuText, LiteralsReadBackToTheSameBits) {
  EXPECT_EQ(cppLiteral(DType::f32, 0.1), "0.1f");
  EXPECT_EQ(cppLiteral(DType::f32, 1), "1.0f");
  EXPECT_EQ(cppLiteral(DType::f32, 1e30), "1e+30f");
  EXPECT_EQ(cppLiteral(DType::f32, -std::numeric_limits<double>::infinity()), "-scalar::infinity");
  EXPECT_EQ(cppLiteral(DType::f32, std::numeric_limits<double>::quiet_NaN()), "scalar::notANumber");
  EXPECT_EQ(cppLiteral(DType::i64, -100), "std::int64_t{-100}");
  EXPECT_EQ(cppLiteral(DType::boolean, 1), "true");
  EXPECT_EQ(cppDouble(0.1), "0.1");
  for (double value : {1.0 / 3, 16777216.0, 1e-45, 3.4028234663852886e38, 0.30000001192092896}) {
    auto single = static_cast<float>(value);
    EXPECT_EQ(std::strtof(cppLiteral(DType::f32, value).c_str(), nullptr), single);
    EXPECT_EQ(std::strtod(cppDouble(value).c_str(), nullptr), value);
  }
}

TEST(CpuText, HolesAreFilledInOrNamed) {
  SectionText section;
  section.text = "f(\x01"
                 "0\x02, \x01"
                 "1\x02, \x01"
                 "0\x02);";
  section.holes = {{"Place", "t0", "P + 0x40"}, {"int", "collective1", "3"}};
  EXPECT_EQ(section.filled(), "f(P + 0x40, 3, P + 0x40);");
  EXPECT_EQ(section.filled({false, true}), "f(P + 0x40, r.collective1, P + 0x40);");
}

TEST(CpuText, BroadcastStridesAreZeroWhereAnOperandStretches) {
  EXPECT_EQ(broadcastStridesOf({3, 1}, {2, 3, 4}), (Shape{0, 1, 0}));
  EXPECT_EQ(broadcastStridesOf({2, 3, 4}, {2, 3, 4}), (Shape{12, 4, 1}));
  EXPECT_EQ(broadcastStridesOf({}, {2}), (Shape{0}));
}

/// Four ranks: two replicas of two shards. The update gathers into a replica and waits for a reduction that micro_step
/// starts. The next step waits for the last collective of the update.
constexpr llvm::StringLiteral hybridText = R"(
module @hybrid stage(planned) mesh(shard = 2, replicate = 2 stride 2, world = 4)
decisions own_reduce_communicator
unit @a
unit @b
state @b.whole replica : f32[64] unit(@b) owner(@b.p) padded(64) at(private+0x100) slots(@b.weight at 0 size 64)
state @a.p segment : f32[32] unit(@a) over(@shard) padded(64) at(window+0x40) slots(@a.weight at 0 size 64)
state @b.p segment : f32[16] unit(@b) over(@world) padded(64) at(window+0x80) slots(@b.weight at 0 size 64)
state @c.p segment : f32[64] unit(@b) padded(64) at(private+0x200) slots(@c.weight at 0 size 64)

func @micro_step(%x: f32[64] input at(private+0x0), %next.a: future<f32[64]> carry at(private+0x500)) {
  unit @a forward {
    %a.whole = wait %next.a : f32[64] on(compute) at(private+0x500)
  }
  unit @a backward {
    %a.grad = mul %x, %a.whole : f32[64] on(compute) at(window+0x100)
    %0 = reduce_scatter.start %a.grad over(@shard) ranks(2) id(0) : future<f32[32]> on(reduce) at(window+0x200)
    %part = wait %0 : f32[32] on(compute) at(window+0x200)
    %1 = all_reduce.start %part over(@replicate) ranks(2) id(1) : future<f32[32]> on(reduce) at(private+0x300)
  }
  return %1 results("grad.a.p")
}

func @update(%grad.a.p: future<f32[32]> carry at(private+0x300)) {
  unit @b update {
    %b.p = read @b.p : f32[16] on(compute) at(window+0x80)
    %2 = all_gather.start %b.p over(@world) ranks(4) id(2) : future<f32[64]> on(comm) at(private+0x100)
    %b.whole = wait %2 : f32[64] on(compute) at(private+0x100)
    write @b.whole %b.whole on(compute)
  }
  unit @a update {
    %a.g = wait %grad.a.p : f32[32] on(compute) at(private+0x300)
    %a.new = neg %a.g : f32[32] on(compute) at(window+0x800)
    write @a.p %a.new on(compute)
    %3 = all_gather.start %a.new over(@shard) ranks(2) id(3) : future<f32[64]> on(comm) at(private+0x500)
  }
  return %3 results("next.a")
}
)";

/// The file of the emitted program, without verifying the module.
std::string emitted(llvm::StringRef text, llvm::StringRef file) {
  auto module = parse(llvm::MemoryBufferRef(text, "test.fsir"));
  if (!module)
    return llvm::toString(module.takeError());
  EmitInfo info;
  info.resources = FSDPC_SOURCE_DIR;
  auto files = emitProgram(**module, info, dialectOf("cpu"));
  if (!files)
    return llvm::toString(files.takeError());
  for (const EmittedFile &entry : *files)
    if (entry.name == file)
      return entry.text;
  return "no such file";
}

TEST(CpuProgramInfo, NamesTheMeshAndWhatEachSegmentAndCollectiveHasOfIt) {
  std::string info = emitted(hybridText, "program_info.cpp");
  EXPECT_THAT(info, testing::HasSubstr("    {\"shard\", 2, 1},\n    {\"replicate\", 2, 2},\n    {\"world\", 4, 1},\n"));
  EXPECT_THAT(info, testing::HasSubstr("    {\"a\", DType::f32, 64, 32, {Space::window, 64}, 0, -1},\n"
                                       "    {\"b\", DType::f32, 64, 16, {Space::window, 128}, 2, -1},\n"
                                       "    {\"b\", DType::f32, 64, 64, {Space::privateSpace, 512}, -1, -1},\n"
                                       "    {\"b\", DType::f32, 64, 64, {Space::privateSpace, 256}, -1, 1},\n"));
  for (llvm::StringRef row :
       {R"({"reduce_scatter", "a", "0", 256, 0, Channel::reduce,)",
        R"({"all_reduce", "a", "1", 128, 1, Channel::reduce,)", R"({"all_gather", "b", "2", 256, 2, Channel::comm,)",
        R"({"all_gather", "a", "3", 256, 0, Channel::comm,)"})
    EXPECT_THAT(info, testing::HasSubstr(row.str()));
}

TEST(CpuProgram, WaitsForWhatAnotherFunctionStarted) {
  std::string program = emitted(hybridText, "program.cpp");
  EXPECT_THAT(program, testing::HasSubstr("void updateUnit0(Context &c) {\n  wait(c, tickets[1]);\n"));
}

TEST(CpuProgram, StartsBeforeTheFirstStepWhatTheStepBeforeStarts) {
  // Gathers from the state, because no update has written its value yet.
  EXPECT_THAT(emitted(hybridText, "program.cpp"),
              testing::HasSubstr("  if (tickets[3].sequence == 0) // no step before\n"
                                 "    tickets[3] = allGatherStart(c, 3, W + 0x40, t0, 128);\n"
                                 "  wait(c, tickets[3]);\n"));
}

} // namespace
} // namespace fsdpc
