// The schedule checker accepts a correct program, and rejects every class of injected error under its label.
//
// tests/check/Inputs holds one training step as a train module and, written by hand, as a planned module for two ranks:
// two units, prefetched and regathered parameters, reuse of memory across streams, writes in place, an optimizer with
// momentum.
#include "ir/text/text.h"
#include "ir/verify.h"
#include "passes/check/check_schedule.h"

#include "llvm/Support/MemoryBuffer.h"
#include <fstream>
#include <gmock/gmock.h>
#include <sstream>

namespace fsdpc {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string inputText(const std::string &name) {
  std::ifstream file(std::string(FSDPC_SOURCE_DIR) + "/tests/check/Inputs/" + name);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(file) << name;
  return text.str();
}

std::string trainText() { return inputText("two_units/train.fsir"); }
std::string plannedText() { return inputText("two_units/planned.fsir"); }

std::unique_ptr<Module> parsed(const std::string &text) {
  llvm::Expected<std::unique_ptr<Module>> module = parse(llvm::MemoryBufferRef(text, "test"));
  EXPECT_TRUE(static_cast<bool>(module)) << (module ? "" : llvm::toString(module.takeError()));
  return module ? std::move(*module) : nullptr;
}

std::string messageOf(llvm::Error error) { return error ? llvm::toString(std::move(error)) : ""; }

struct Verdicts {
  std::string planned, translation;
  /// The error that the user sees: that of the first failing check.
  std::string first() const { return planned.empty() ? translation : planned; }
};

Verdicts check(const std::string &train, const std::string &planned) {
  std::unique_ptr<Module> trainModule = parsed(train), plannedModule = parsed(planned);
  if (!trainModule || !plannedModule)
    return {"not parsed", "not parsed"};
  return {messageOf(checkPlanned(*plannedModule)), messageOf(checkAgainstTrain(*trainModule, *plannedModule))};
}

/// Replaces the one occurrence of `from`.
std::string replaced(std::string text, const std::string &from, const std::string &to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  EXPECT_EQ(text.find(from, at + 1), std::string::npos) << "more than one: " << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

std::string replacedAll(std::string text, const std::string &from, const std::string &to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  for (; at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

/// The line that holds `key` (once in the text), with its newline.
std::string lineWith(const std::string &text, const std::string &key) {
  size_t at = text.find(key);
  EXPECT_NE(at, std::string::npos) << key;
  EXPECT_EQ(text.find(key, at + 1), std::string::npos) << "more than one: " << key;
  size_t begin = text.rfind('\n', at) + 1;
  return text.substr(begin, text.find('\n', at) + 1 - begin);
}

std::string without(const std::string &text, const std::string &key) { return replaced(text, lineWith(text, key), ""); }

std::string movedBefore(const std::string &text, const std::string &key, const std::string &target) {
  std::string line = lineWith(text, key), place = lineWith(text, target);
  return replaced(replaced(text, line, ""), place, line + place);
}

TEST(CheckSchedule, ARightProgramPasses) {
  std::unique_ptr<Module> planned = parsed(plannedText());
  EXPECT_EQ(messageOf(verify(*planned)), "");
  Verdicts verdicts = check(trainText(), plannedText());
  EXPECT_EQ(verdicts.planned, "");
  EXPECT_EQ(verdicts.translation, "");
}

// ---- the plan alone

TEST(CheckSchedule, EveryFutureIsWaitedForOnce) {
  std::string text = plannedText();
  std::string dropped = replaced(without(without(text, "%loss = wait"), "free %ls"),
                                 "return %loss, %ga, %gb results(\"loss\", ", "return %ga, %gb results(");
  EXPECT_THAT(check(trainText(), dropped).planned, StartsWith("(S1) micro_step, unit @b: nothing waits for it"));

  std::string line = lineWith(text, "%loss = wait");
  std::string twice = replaced(text, line, line + replaced(line, "%loss", "%again"));
  EXPECT_THAT(check(trainText(), twice).planned, HasSubstr("is waited for twice"));

  std::string returned = replaced(without(without(text, "%loss = wait"), "free %ls"), "return %loss", "return %fl");
  EXPECT_THAT(check(trainText(), returned).planned,
              StartsWith("(S1) micro_step: %fl is returned, but no later function waits for it"));
}

TEST(CheckSchedule, AFutureMayBeCarriedToItsWait) {
  // Without taps, which would have to wait as well.
  std::string text = plannedText();
  size_t taps = text.find("func @tap_gradients"), update = text.find("func @update");
  text.erase(taps, update - taps);
  text = without(text, "%ga = wait %fga");
  text = without(text, "free %gap");
  text = replaced(text, "return %loss, %ga, %gb", "return %loss, %fga, %gb");
  text = replaced(text, "%\"grad.a.p\": f32[32] carry", "%arriving: future<f32[32]> carry(\"grad.a.p\")");
  text = replaced(text, "  %lr = read",
                  "  %grad.a.p = wait %arriving : f32[32] on(compute) at(window+0x300)\n  %lr = read");
  // Its operand is carried as well, because it is being sent until the wait.
  EXPECT_THAT(check(trainText(), text).planned, StartsWith("(S2) micro_step: %gap is never freed"));
  text = replaced(text, "return %loss, %fga, %gb results(\"loss\", ",
                  "return %loss, %gap, %fga, %gb results(\"loss\", \"sent\", ");
  text = replaced(text, "func @update(", "func @update(%sent: f32[64] carry at(window+0x100), ");
  text = replaced(text, "  %lr = read", "  free %sent on(compute)\n  %lr = read");
  EXPECT_EQ(check(trainText(), text).planned, "");
  text =
      replaced(text, "  %grad.a.p = wait %arriving : f32[32] on(compute) at(window+0x300)\n  free %sent on(compute)\n",
               "  free %sent on(compute)\n  %grad.a.p = wait %arriving : f32[32] on(compute) at(window+0x300)\n");
  EXPECT_THAT(check(trainText(), text).planned, StartsWith("(S5) update: a collective that uses this memory"));
}

TEST(CheckSchedule, MemoryIsFreedOnceAfterItsLastUse) {
  std::string text = plannedText();
  EXPECT_THAT(check(trainText(), movedBefore(text, "free %r on", "%dwb = matmul")).planned,
              StartsWith("(S2) micro_step, unit @b: %r is used after the free of its memory"));
  EXPECT_THAT(check(trainText(), without(text, "free %dh on")).planned,
              StartsWith("(S2) micro_step: %dh is never freed"));
  EXPECT_THAT(check(trainText(), without(text, "free %grad.b.p")).planned,
              StartsWith("(S2) micro_step: %gb is carried to later functions, but none of them frees it"));
  std::string line = lineWith(text, "free %B2");
  EXPECT_THAT(check(trainText(), replaced(text, line, line + line)).planned, HasSubstr("%B2 is freed twice"));
  EXPECT_THAT(check(trainText(), replaced(text, "free %ls on", "free %x on")).planned,
              HasSubstr("the memory of a state or an input is never freed"));
}

TEST(CheckSchedule, ReuseAcrossStreamsIsOrdered) {
  std::string text = plannedText();
  EXPECT_THAT(check(trainText(), replaced(text, " after(%goneA)", "")).planned,
              StartsWith("(S5) micro_step, unit @b: no edge makes %fb2 of micro_step wait for the end of %fa"));
  EXPECT_THAT(check(trainText(), replaced(text, " after(%gone)", "")).planned, StartsWith("(S5) tap_gradients"));
  // Scratch of a compute node, after the last edge that the gather waits for.
  std::string scratch = replaced(text, "%y = matmul %r, %wb : f32[2,4] on(compute) at(private+0xc0)",
                                 "%y = matmul %r, %wb : f32[2,4] on(compute) at(private+0xc0) work(64 private+0x100)");
  EXPECT_THAT(
      check(trainText(), scratch).planned,
      StartsWith(
          "(S5) micro_step, unit @b: no edge makes %fb2 of micro_step wait for the end of the workspace of '%y"));
  // Freed while the other ranks may still read it.
  EXPECT_THAT(check(trainText(), movedBefore(text, "free %gap", "%ga = wait")).planned,
              HasSubstr("a collective that uses this memory has not been waited for"));
  // The optimizer overwrites a shard that is being gathered.
  std::string gather =
      "  %fx = all_gather.start %pb over(@shard) ranks(2) id(20) : future<f32[32]> on(comm) at(private+0x200)\n";
  std::string wait = "  %X = wait %fx : f32[32] on(compute) at(private+0x200)\n  free %X on(compute)\n";
  std::string optimizer = lineWith(text, "%pb2, %vb2 = sgd");
  EXPECT_EQ(check(trainText(), replaced(text, optimizer, gather + wait + optimizer)).planned, "");
  EXPECT_THAT(check(trainText(), replaced(text, optimizer, gather + optimizer + wait)).planned,
              StartsWith("(S5) update: it overwrites state @b.p, which a collective may still read"));
}

TEST(CheckSchedule, PlacesThatAreInUseDoNotOverlap) {
  std::string text = plannedText();
  auto moved = [&](const std::string &from, const std::string &to) {
    return check(trainText(), replaced(text, from, to)).planned;
  };
  EXPECT_THAT(
      moved("%y = matmul %r, %wb : f32[2,4] on(compute) at(private+0xc0)",
            "%y = matmul %r, %wb : f32[2,4] on(compute) at(private+0xa0)"),
      StartsWith("(S6) micro_step, unit @b: %y of micro_step overlaps %r of micro_step, which is still in use"));
  EXPECT_THAT(moved("id(1) unit(@b) : future<f32[32]> on(comm) at(private+0x200)",
                    "id(1) unit(@b) : future<f32[32]> on(comm) at(private+0x1fc)"),
              StartsWith("(S6)"));
  EXPECT_THAT(moved("work(64 private+0x500)", "work(64 private+0x440)"),
              HasSubstr("overlaps state @a.p.momentum_buffer"));
  EXPECT_THAT(moved("work(64 private+0x500)", "work(64 private+0x70)"), StartsWith("(S6)"));
  EXPECT_THAT(moved("field(momentum_buffer) at(private+0x480)", "field(momentum_buffer) at(private+0x440)"),
              StartsWith("(S6)"));
  EXPECT_THAT(moved("setting arena_private_bytes \"4096\"", "setting arena_private_bytes \"1343\""),
              HasSubstr("ends outside the private arena of 1343 bytes"));
  EXPECT_THAT(moved("setting arena_window_bytes \"4096\"\n", ""), HasSubstr("does not specify its size"));
  EXPECT_THAT(moved("at(private+0xe0)\n    %ls", "at(private+0xe2)\n    %ls"), HasSubstr("is not aligned"));
  EXPECT_THAT(check(trainText(), replacedAll(text, "at(window+0xc0)", "at(private+0x600)")).planned,
              HasSubstr("its operand does not lie in the window"));
}

TEST(CheckSchedule, RanksIssueTheSameCollectives) {
  std::string text = plannedText();
  std::string swapped = replaced(replaced(replaced(text, "id(0)", "id(-)"), "id(1)", "id(0)"), "id(-)", "id(1)");
  EXPECT_THAT(check(trainText(), swapped).planned,
              StartsWith("(S7) micro_step, unit @b: id 0 is issued after id 1: ids count up in order of issue"));
  EXPECT_THAT(check(trainText(), replaced(text, "id(6)", "id(5)")).planned,
              StartsWith("(S7) tap_gradients: id 5 belongs to another collective"));
  EXPECT_THAT(check(trainText(), replaced(text, "mesh(shard = 2)", "mesh(shard = 3)")).planned,
              HasSubstr("mesh axis @shard has 3 ranks"));
}

TEST(CheckSchedule, MemoryHoldsTheVersionThatIsRead) {
  std::string text = plannedText();
  // Read again between the optimizer and the write that makes its result the state's value.
  std::string write = lineWith(text, "write @b.p %pb2");
  std::string early = "  %stale = read @b.p : f32[16] on(compute) at(window+0x80)\n";
  EXPECT_THAT(check(trainText(), replaced(text, write, early + write)).planned,
              StartsWith("(S9) update: the memory of the state already holds its next version"));
  EXPECT_THAT(check(trainText(), without(text, "write @b.p %pb2")).planned,
              StartsWith("(S9) update: state @b.p is overwritten, but no write"));
  // Uses the old value after the write.
  std::string late =
      "  %fx = all_gather.start %pb over(@shard) ranks(2) id(20) : future<f32[32]> on(comm) at(private+0x200)\n";
  EXPECT_THAT(check(trainText(), replaced(text, write, write + late)).planned,
              StartsWith("(S9) update: the memory of %pb was overwritten before this use"));
  // %h overwrites the memory of %m.
  EXPECT_THAT(check(trainText(), replaced(text, "%r = relu %h", "%r = relu %m")).planned, HasSubstr("%m"));
}

// ---- against the train module

std::string translation(const std::string &planned) { return check(trainText(), planned).translation; }

TEST(CheckTranslation, EveryGradientContributionArrivesOnce) {
  std::string text = plannedText();
  std::string lost = replaced(text, "%gap = pack %dwa, %dba offsets(0, 32)", "%gap = pack %dwa offsets(0)");
  EXPECT_THAT(translation(lost), StartsWith("(S3) micro_step: the gradient of parameter 'a.bias' is not returned"));

  std::string unreduced =
      replaced(replaced(text, "%fga = reduce_scatter.start %gap over(@shard) ranks(2) id(5) : future<f32[32]>",
                        "%fga = all_reduce.start %gap over(@shard) ranks(2) id(5) : future<f32[64]>"),
               "%ga = wait %fga : f32[32]", "%ga = wait %fga : f32[64]");
  EXPECT_THAT(translation(unreduced), StartsWith("(S8)"));

  std::string twice = replaced(
      text, "    %gb = wait %fgb",
      "    %g1 = wait %fgb : f32[16] on(compute) at(window+0x380)\n"
      "    %again = all_reduce.start %g1 over(@shard) ranks(2) id(6) : future<f32[16]> on(comm) at(window+0x500)\n"
      "    %gb = wait %again");
  EXPECT_THAT(translation(twice), StartsWith("(S8)"));

  std::string partial = replaced(text, "%dwb = matmul %r, %dy transpose_a", "%dw1 = matmul %r, %dy transpose_a");
  partial = replaced(partial, "%gbp = pack %dwb offsets(0)",
                     "%dwb = fused %dw1 body(s0 = add a0, a0; yield s0) : f32[4,4] on(compute) at(window+0x200)\n"
                     "    %gbp = pack %dwb offsets(0)");
  EXPECT_THAT(translation(partial), StartsWith("(S3) micro_step, unit @b: the gradient of parameter 'b.w' differs"));
}

TEST(CheckTranslation, ValuesAreThoseOfTheTrainModule) {
  std::string text = plannedText();
  EXPECT_THAT(translation(replaced(text, "body(s0 = mul a0, 2; yield s0)", "body(s0 = mul a0, 1; yield s0)")),
              testing::AllOf(StartsWith("(S4) micro_step"), HasSubstr("that has constant 2 "),
                             HasSubstr("planned module has constant 1 ")));
  EXPECT_THAT(translation(replaced(text, "less 0, a0", "less_equal 0, a0")), StartsWith("(S4)"));
  EXPECT_THAT(translation(replaced(text, "select s0, a1, 0", "select s0, 0, a1")), StartsWith("(S4)"));
  EXPECT_THAT(translation(replaced(text, "%dr = matmul %dy, %wb2 transpose_b", "%dr = matmul %dy, %wb2")),
              StartsWith("(S4)"));
  EXPECT_THAT(translation(replaced(text, "%sb2 = read @b.p : f32[16] on(compute) at(window+0x80)",
                                   "%sb2 = read @b.p.momentum_buffer : f32[16] on(compute) at(private+0x480)")),
              testing::AllOf(StartsWith("(S4)"), HasSubstr("momentum_buffer")));
  EXPECT_THAT(translation(replaced(text, "sgd %pb, %grad.b.p, %vb, %lr, %wd,", "sgd %pb, %grad.b.p, %vb, %wd, %lr,")),
              StartsWith("(S4) update: the new value of state 'b.w'"));
  EXPECT_THAT(translation(replaced(text, "  tap @b.w %gb on(compute)\n", "")), StartsWith("(S4) tap_gradients: 'b.w'"));
  EXPECT_THAT(translation(replaced(text, "tap @a.w %ga", "tap @b.w %ga")), StartsWith("(S4) tap_gradients"));
  EXPECT_THAT(translation(replaced(replaced(text, "%loss = wait", "%lo = wait"), "return %loss", "return %ls")),
              HasSubstr("result 'loss' differs"));
}

TEST(CheckTranslation, ParametersLieWhereTheirSegmentSays) {
  std::string text = plannedText();
  EXPECT_THAT(translation(replaced(text, "%ba = view %A offset(32) : f32[4] on(compute) at(private+0x180)\n    %h",
                                   "%ba = view %A offset(16) : f32[4] on(compute) at(private+0x140)\n    %h")),
              StartsWith("(S8) micro_step, unit @a: no parameter is at elements 16 to 20"));
  EXPECT_THAT(translation(replaced(text, "offsets(0, 32)", "offsets(0, 36)")), StartsWith("(S8)"));
  EXPECT_THAT(translation(replaced(text, "@a.bias at 32 size 4", "@a.bias at 32 size 8")), StartsWith("(S8)"));
  EXPECT_THAT(translation(replaced(text, "@a.bias at 32 size 4", "@a.bias at 12 size 4")), StartsWith("(S8)"));
  EXPECT_THAT(translation(replaced(text, ", @a.bias at 32 size 4", "")), HasSubstr("@a.bias is in no segment"));
  EXPECT_THAT(translation(replaced(text, "padded(32)", "padded(48)")), StartsWith("(S8)"));
  EXPECT_THAT(translation(replaced(text, "init(0.9)", "init(0.8)")), HasSubstr("initial value"));
}

TEST(CheckTranslation, NewStatesAreWritten) {
  std::string text = plannedText();
  EXPECT_THAT(translation(without(text, "write @b.p.momentum_buffer")),
              StartsWith("(S9) update: state 'b.w' (momentum_buffer) is not written"));
  EXPECT_THAT(translation(replaced(text, "write @b.p %pb2", "write @b.p %pb")), StartsWith("(S9) update"));
}

TEST(CheckTranslation, OneRankAloneNeedsNoCollectives) {
  std::string train = "module @m stage(train) mesh(shard = 1)\n"
                      "state @w parameter : f32[4]\n"
                      "func @micro_step(%x: f32[2,4] input) {\n"
                      "  %w = read @w : f32[4]\n  %b = broadcast %w : f32[2,4]\n  %y = mul %x, %b : f32[2,4]\n"
                      "  %l = reduce_sum %y axes(0, 1) : f32[]\n  %loss = batch_sum %l : f32[]\n"
                      "  %d = reduce_sum %x axes(0) : f32[4]\n  %g = batch_sum %d : f32[4]\n"
                      "  return %loss, %g results(\"loss\", \"grad.w\")\n}\n";
  std::string planned =
      "module @m stage(planned) mesh(shard = 1)\n"
      "setting arena_private_bytes \"1024\"\nsetting arena_window_bytes \"0\"\n"
      "state @p segment : f32[32] padded(32) at(private+0x0) slots(@w at 0 size 4)\n"
      "func @micro_step(%x: f32[2,4] input at(private+0x80)) {\n"
      "  %s = read @p : f32[32] on(compute) at(private+0x0)\n"
      "  %w = view %s : f32[4] on(compute) at(private+0x0)\n"
      "  %y = fused %x, %w body(s0 = mul a0, a1; yield s0) : f32[2,4] on(compute) at(private+0xa0)\n"
      "  %loss = reduce_sum %y axes(0, 1) : f32[] on(compute) at(private+0xc0)\n  free %y on(compute)\n"
      "  %d = reduce_sum %x axes(0) : f32[4] on(compute) at(private+0x100)\n"
      "  %g = pack %d offsets(0) : f32[32] on(compute) at(private+0x100)\n"
      "  return %loss, %g results(\"loss\", \"grad.p\")\n}\n";
  Verdicts verdicts = check(train, planned);
  EXPECT_EQ(verdicts.planned, "");
  EXPECT_EQ(verdicts.translation, "");
}

TEST(CheckTranslation, FusedBodiesAreTheirSteps) {
  // Constants, casts, broadcasts at any point and random numbers, several results; leading dims of 1.
  std::string train =
      "module @m stage(train) mesh(shard = 2)\n"
      "state @seed scalar : i64[]\nstate @step scalar : i64[]\n"
      "func @micro_step(%x: f32[1,4] input, %y: f32[3,4] input) {\n"
      "  %seed = read @seed : i64[]\n  %step = read @step : i64[]\n"
      "  %half = constant value(0.5) : f32[4]\n  %flat = reshape %x : f32[4]\n"
      "  %a = mul %flat, %half : f32[4]\n  %wide = broadcast %a : f32[3,4]\n  %b = add %wide, %y : f32[3,4]\n"
      "  %u = random_uniform %seed, %step instance(3) : f32[3,4]\n"
      "  %keep = less %u, %b : bool[3,4]\n  %z = cast %b to(f64) : f64[3,4]\n"
      "  return %keep, %z results(\"keep\", \"z\")\n}\n";
  std::string body = "body(s0 = mul a0, 0.5; s1 = add s0, a1; s2 = random_uniform[3, 0] a2, a3; s3 = less s2, s1; "
                     "s4 = cast s1 : f64; yield s3, s4)";
  std::string planned = "module @m stage(planned) mesh(shard = 2)\n"
                        "setting arena_private_bytes \"1024\"\nsetting arena_window_bytes \"0\"\n"
                        "state @seed scalar : i64[] at(private+0x0)\nstate @step scalar : i64[] at(private+0x8)\n"
                        "func @micro_step(%x: f32[1,4] input at(private+0x40), %y: f32[3,4] input at(private+0x80)) {\n"
                        "  %seed = read @seed : i64[] on(compute) at(private+0x0)\n"
                        "  %step = read @step : i64[] on(compute) at(private+0x8)\n"
                        "  %keep, %z = fused %x, %y, %seed, %step BODY : bool[3,4], f64[3,4] on(compute) "
                        "at(private+0x100, private+0x200)\n"
                        "  return %keep, %z results(\"keep\", \"z\")\n}\n";
  Verdicts verdicts = check(train, replaced(planned, "BODY", body));
  EXPECT_EQ(verdicts.planned, "");
  EXPECT_EQ(verdicts.translation, "");
  std::string other = replaced(body, "random_uniform[3, 0]", "random_uniform[2, 0]");
  EXPECT_THAT(check(train, replaced(planned, "BODY", other)).translation, StartsWith("(S4)"));
  std::string swapped = replaced(body, "add s0, a1", "add a1, s0");
  EXPECT_THAT(check(train, replaced(planned, "BODY", swapped)).translation, StartsWith("(S4)"));
}

TEST(CheckTranslation, NormsThatAddAreTheNormAndTheAdd) {
  const std::string types = " axis(1) : f32[2,4], ";
  std::string train = "module @m stage(train)\n"
                      "func @micro_step(%x: f32[2,4] input, %r: f32[2,4] input, %g: f32[4] input) {\n"
                      "  %s = add %x, %r : f32[2,4]\n  %y, %rstd = rms_norm %s, %g" +
                      types + "f32[2]\n  %t, %dg = rms_norm_grad %y, %s, %g, %rstd" + types +
                      "f32[4]\n  %ds = add %s, %t : f32[2,4]\n"
                      "  return %ds, %dg, %y results(\"ds\", \"dg\", \"y\")\n}\n";
  // The sum is placed over its operand, and the derivative over its addend.
  std::string planned = "module @m stage(planned)\n"
                        "setting arena_private_bytes \"1024\"\nsetting arena_window_bytes \"0\"\n"
                        "func @micro_step(%x: f32[2,4] input at(private+0x0), %r: f32[2,4] input at(private+0x20), "
                        "%g: f32[4] input at(private+0x40)) {\n"
                        "  %x2 = copy %x : f32[2,4] on(compute) at(private+0x80)\n"
                        "  %y, %rstd, %s = rms_norm %x2, %g, %r axis(1) : f32[2,4], f32[2], f32[2,4] on(compute) "
                        "at(private+0xc0, private+0x100, private+0x80)\n"
                        "  free %x2 on(compute)\n"
                        "  %d = copy %s : f32[2,4] on(compute) at(private+0x180)\n"
                        "  %ds, %dg = rms_norm_grad %y, %s, %g, %rstd, %d axis(1) : f32[2,4], f32[4] on(compute) "
                        "at(private+0x180, private+0x140)\n"
                        "  free %s on(compute)\n  free %d on(compute)\n  free %rstd on(compute)\n"
                        "  return %ds, %dg, %y results(\"ds\", \"dg\", \"y\")\n}\n";
  Verdicts verdicts = check(train, planned);
  EXPECT_EQ(verdicts.planned, "");
  EXPECT_EQ(verdicts.translation, "");
  auto edited = [&](const char *from, const char *to) { return check(train, replaced(planned, from, to)); };
  EXPECT_THAT(edited("%x2, %g, %r", "%r, %g, %x2").translation, StartsWith("(S4)"));
  EXPECT_THAT(edited("%rstd, %d axis", "%rstd, %y axis").translation, StartsWith("(S4)"));
  // Places a result over an operand that is read again: dx over dy.
  EXPECT_THAT(edited("at(private+0x180, private+0x140)", "at(private+0xc0, private+0x140)").planned,
              StartsWith("(S6)"));
}

} // namespace
} // namespace fsdpc
