// The text form: printed text reads back to the same text, and invalid text is an error with a location.
#include "ir/text/text.h"

#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "ir/verify.h"
#include "llvm/Support/MemoryBuffer.h"
#include <gtest/gtest.h>
#include <random>

namespace fsdpc {
namespace {

llvm::Expected<std::unique_ptr<Module>> read(llvm::StringRef text) {
  return parse(llvm::MemoryBufferRef(text, "test.fsir"));
}

std::string errorOf(llvm::StringRef text) {
  llvm::Expected<std::unique_ptr<Module>> module = read(text);
  return module ? "no error" : llvm::toString(module.takeError());
}

/// The text after reading and printing, or the error.
std::string reprinted(llvm::StringRef text) {
  llvm::Expected<std::unique_ptr<Module>> module = read(text);
  return module ? toText(**module) : llvm::toString(module.takeError());
}

std::string fileText(const std::string &name) {
  auto buffer = llvm::MemoryBuffer::getFile(FSDPC_SOURCE_DIR "/tests/text/" + name);
  return buffer ? (*buffer)->getBuffer().str() : "";
}

std::string withoutComments(llvm::StringRef text) {
  while (text.starts_with("//"))
    text = text.split('\n').second;
  return text.str();
}

/// A graph-stage module around lines of nodes; %x is f32[2,3], %i is i64[2,3].
std::string around(llvm::StringRef nodes) {
  return ("module @m stage(graph)\n\nfunc @forward(%x: f32[2,3] input, %i: i64[2,3] input) {\n" + nodes +
          "  return\n}\n")
      .str();
}

class StageText : public testing::TestWithParam<const char *> {};

TEST_P(StageText, PrintsAsItWasRead) {
  std::string text = withoutComments(fileText(std::string(GetParam()) + ".fsir"));
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(reprinted(text), text);
}

INSTANTIATE_TEST_SUITE_P(AllStages, StageText, testing::Values("graph", "stage_train", "sharded", "async", "planned"),
                         [](const auto &info) { return std::string(info.param); });

/// Lines of nodes that print as they are written. Each file-wide rule of the text form has a line here.
constexpr llvm::StringLiteral forms[] = {
    // names
    "  %\"a b\" = neg %x : f32[2,3]\n",
    "  %\"\\22quoted\\22 \\\\ \\0A\" = neg %x : f32[2,3]\n",
    "  %\"12\" = neg %x : f32[2,3]\n  %0 = neg %x    : f32[2,3]\n",
    "  %$a.b_1 = neg %x : f32[2,3]\n",
    "  %\"\\C3\\A9\" = neg %x : f32[2,3]\n",
    // constants
    "  %0 = constant value(0.1) : f32[2]\n",
    "  %0 = constant value([0.1, -0, 3e+20]) : f32[3]\n",
    "  %0 = constant value([nan, inf, -inf]) : f32[3]\n",
    "  %0 = constant value(nan) : f16[]\n",
    "  %0 = constant value(0.1) : bf16[7]\n",
    "  %0 = constant value([0.1]) : f16[1]\n",
    "  %0 = constant value([9223372036854775807, -9223372036854775808]) : i64[2]\n",
    "  %0 = constant value([true, false]) : bool[2]\n",
    "  %0 = constant value(true) : bool[]\n",
    "  %0 = constant value([255, 0]) : u8[2]\n",
    "  %0 = constant value(f64 [0.1]) : f32[1]\n",
    "  %0 = constant value([]) : i64[0]\n",
    "  %0 = constant : f32[0]\n",
    "  %0 = constant value(hex \"000102030405060708090a0b0c0d0e0f10\") : u8[17]\n",
    "  %0 = constant value(hex \"02\") : bool[1]\n",
    "  %0 = constant value(hex \"0100c07f\") : f32[1]\n",
    // attributes that follow from the result type are omitted, others are printed
    "  %0 = constant value(1) shape(4) : f32[2]\n",
    "  %0 = cast %x : bf16[2,3]\n",
    "  %0 = cast %x to(f16) : bf16[2,3]\n",
    "  %0 = reshape %x : f32[3,2]\n",
    "  %0 = reshape %x shape() : f32[3,2]\n",
    "  %0 = iota axis(1) start(2) step(0.5) : f32[2,3]\n",
    "  %0 = pack %x offsets(0) : f32[6]\n",
    "  %0 = pack %x offsets(0) elements(7) : f32[6]\n",
    "  %0 = max_pool_grad %x, %i kernel(2) : f32[2,3]\n",
    "  %0, %1 = max_pool %x kernel(2) shape(1, 2) : f32[2,3], i32[2,3]\n",
    // kinds of fields
    "  %0 = read @\"odd name\" : i64[]\n",
    "  write @w %x\n",
    "  write @w %x dtype(i64)\n",
    "  write %x\n",
    "  %0 = reduce_sum %x axes(0, 1) keep_dims : f32[1,1]\n",
    "  %0, %1, %2 = layer_norm %x, %x, %x epsilon(1e-06) : f32[2,3], f32[2], f32[2]\n",
    "  %0 = pad %x before(0, 1) after(0, 0) interior(0, 0) value(-inf) : f32[2,4]\n",
    "  %0, %1 = cross_entropy %x, %i ignore_index(-1) label_smoothing(0.1) : f32[2], f32[2]\n",
    "  %0 = all_gather %x over(@\"a b\") ranks(2) : f32[12]\n",
    // syntax around attributes
    "  %t = free %x              : token\n  %0 = neg %x after(%t, %t) : f32[2,3] from(\"a \\22b\\22\")\n",
    "  free %x\n  %0 = neg %x : f32[2,3]\n",
    "  %0 = neg %x : future<f32[2,3]> on(comm)    at(window+0x40) work(16 private+0x0)\n",
    "  %0, %1 = neg %x : f32[2], f32[2] at(none, private+0x7fffffffffffffff) work(-1)\n",
    // bodies
    "  %0 = fused %x body(yield a0) : f32[2,3]\n",
    "  %0 = fused %x body(s0 = add a0, 0.1; s1 = gelu s0; yield s1, s0) : f32[2,3]\n",
    "  %0 = fused %x body(s0 = 0.1; s1 = add a0, s0; s2 = mul s1, s0; yield s2) : f32[2,3]\n",
    "  %0 = fused %x body(s0 = add a0, 0x1.999999999999ap-4; yield s0) : f32[2,3]\n",
    "  %0 = fused %x body(s0 = less a0, 0; s1 = select s0, -inf, a0; s2 = select s0, 1, 2; yield s1, s2) : f32[2,3]\n",
    "  %0 = fused %x body(s0 = cast a0 : bf16; s1 = mul s0, 0.1; s2 = mul s0, f64(0.1); yield s1, s2) : bf16[2,3]\n",
    "  %0 = fused %x, %i body(s0 = random_uniform[7, -1] a1, a1; s1 = neg a0 : f16; yield s0, s1) : f32[2,3]\n",
    "  %0 = fused %x body(s0 = 0.1 : f64; yield s0) : f64[2,3]\n",
    "  %0 = fused %x body(yield) : f64[2,3]\n",
};

TEST(Text, EveryFormPrintsAsItWasRead) {
  for (llvm::StringRef form : forms)
    EXPECT_EQ(reprinted(around(form)), around(form));
}

TEST(Text, HandWrittenLayoutIsFree) {
  std::string text = "module @m stage(graph) // a comment\n"
                     "func @forward(%x : f32 [ 2 ,3] input(\"x\")\n , %i: i64[2,3] input) {\n"
                     "  %y = reduce_sum %x\n    axes(0)\n    : f32[3]   // and another\n"
                     "\n  section forward { free %y }\n return }\n";
  EXPECT_EQ(reprinted(text), around("  %y = reduce_sum %x axes(0) : f32[3]\n  section forward {\n    free %y\n  }\n"));
}

TEST(Text, TablesPrintAsTheyWereRead) {
  std::string text =
      "module @\"odd name\" stage(planned) mesh(replicate = 2 stride 4, shard = 4)\n"
      "setting arena_window_used_bytes \"70\"\n"
      "setting labels \"a \\22value\\22\"\n"
      "setting loss \"mse\"\n"
      "setting loss_reduction \"sum\"\n"
      "setting ordered_by_events \"\"\n"
      "decisions max_inflight_all_gathers(3) no_forward_prefetch backward_prefetch(backward_post) "
      "no_overlap_comm own_reduce_communicator\n"
      "unit @layers.0 source(name_scopes) strategy(shard_grad_op) reshard_after_forward(never)\n"
      "unit @layers.1 reshard_after_forward(\"2\") forward_prefetch(off) backward_prefetch(no_prefetch)\n"
      "outline @layer\n"
      "state @p segment : bf16[8] unit(@layers.0) over(@shard) padded(32) frozen at(window+0x40)\n"
      "  slots(@a at 0 size 3,\n"
      "        @\"b c\" at 8 size 4,\n"
      "        @d at 16 size 1)\n"
      "state @p.full replica : bf16[32] owner(@p)\n"
      "state @p.m optimizer : f32[8] owner(@p) field(exp_avg) init(-0)\n"
      "state @lr scalar : f64[] init(0.001) at(private+0x0)\n"
      "state @mean buffer : f32[3]\n"
      "\n"
      "parameter @a : f32[3] frozen no_value ignored initializer(\"\") permutation(1, 0) file_shape(3, 1) "
      "unit(@layers.0)"
      " recovered(\"was folded\") uses(\"Gemm 1\": 1, \"Gemm 2\": 0)\n"
      "parameter @\"b c\" : f32[2,2] no_value initial(uniform -0.5, 0.25, \"rule\")\n"
      "parameter @c : f32[2] no_value initial(constant 1)\n"
      "parameter @d : f32[2] no_value initial(normal 0, 0.02)\n";
  EXPECT_EQ(reprinted(text), text);
}

TEST(Text, ArgumentsNameWhatTheyAre) {
  std::string text = "module @m stage(train)\n\n"
                     "func @update(\n    %0: f32[] carry(\"grad.w\"),\n    %x: f32[] input at(private+0x40),\n"
                     "    %y: f32[] input(\"z\"),\n    %\"7\": f32[] input(\"7\")) {\n  return\n}\n";
  EXPECT_EQ(reprinted(text), text);
}

TEST(Text, EqualNamesBecomeUnique) {
  Module module;
  Function *forward = module.addFunction(FunctionKind::forward);
  Value *x = forward->addArgument(ArgumentKind::input, "x", Type(DType::f32, {}));
  Builder builder(*forward);
  for (const char *name : {"x", "x", "x.1", ""})
    builder.unary(Op::neg, x)->setName(name);
  std::string text = toText(module);
  for (const char *name : {"%x.1 = neg %x", "%x.2 = neg %x", "%x.1.1 = neg %x", "%0 = neg %x"})
    EXPECT_TRUE(llvm::StringRef(text).contains(name)) << text;
  EXPECT_EQ(reprinted(text), text);
}

TEST(Text, NodesPrintAloneAsInTheirFunction) {
  llvm::Expected<std::unique_ptr<Module>> module = read(around("  %0 = neg %x : f32[2,3]\n  %y = neg %0 : f32[2,3]\n"));
  ASSERT_TRUE(static_cast<bool>(module));
  Function *forward = (*module)->function(FunctionKind::forward);
  EXPECT_EQ(toText(*forward->front()->next()), "%y = neg %0 : f32[2,3]");
}

/// Gives every field a value that is not its default.
class Unusual final : public AttributeVisitor {
public:
  void field(llvm::StringRef, int64_t &value) override { value = value - 12345; }
  void field(llvm::StringRef, double &value) override { value = value / 3 + 0.1; }
  void field(llvm::StringRef, bool &value) override { value = !value; }
  void field(llvm::StringRef, std::string &value) override { value += " \"odd\"\n"; }
  void field(llvm::StringRef, DType &value) override { value = DType::u8; }
  void field(llvm::StringRef, Symbol &value) override { value.name = "odd name"; }
  void field(llvm::StringRef, Shape &value) override { value = {7, -1, 0}; }
  void field(llvm::StringRef, std::vector<std::string> &value) override { value = {"", "a, b"}; }
  void field(llvm::StringRef, Dense &value) override { value = Dense::fromDoubles(DType::i32, {1, -2}); }
  void field(llvm::StringRef, Expression &value) override {
    value.operandCount = 0;
    value.steps = {{Op::constant, DType::f16, {}, {}, 0.1}, {Op::exp, DType::f32, {0}, {3}, 0}};
    value.yields = {1};
  }
};

TEST(Text, EveryOpKeepsUnusualAttributes) {
  for (Op op : allOps()) {
    std::unique_ptr<AttributesBase> attributes;
    if (infoOf(op).makeAttributes) {
      attributes = infoOf(op).makeAttributes();
      Unusual unusual;
      attributes->visit(unusual);
    }
    for (bool hasResult : {true, false}) {
      Module module;
      Function *forward = module.addFunction(FunctionKind::forward);
      Value *x = forward->addArgument(ArgumentKind::input, "x", Type(DType::f32, {2}));
      llvm::SmallVector<Type, 1> types(hasResult ? 1 : 0, Type(DType::bf16, {5}));
      llvm::SmallVector<Value *, 8> operands(infoOf(op).minOperands(), x);
      // A free without a result is shorthand for one whose token is unused.
      if (op == Op::free && !hasResult)
        continue;
      Builder(*forward).createWithTypes(op, operands, attributes ? attributes->clone() : nullptr, types);
      std::string text = toText(module);
      llvm::Expected<std::unique_ptr<Module>> again = read(text);
      ASSERT_TRUE(static_cast<bool>(again)) << text << llvm::toString(again.takeError());
      EXPECT_EQ(toText(**again), text);
      Node *node = (*again)->function(FunctionKind::forward)->front();
      EXPECT_TRUE(equalAttributes(node->attributes(), attributes.get())) << text;
    }
  }
}

struct BrokenText {
  llvm::StringLiteral text;
  llvm::StringLiteral message;
};

constexpr BrokenText brokenModules[] = {
    {"", "expected `module"},
    {"\n\n  ", "expected `module"},
    {"module m", "expected an @name"},
    {"module @m", "stage(...) is missing"},
    {"module @m stage(grph)", "expected a stage"},
    {"module @m stage(graph) stage(graph)", "twice"},
    {"module @m stage(graph", "expected ')'"},
    {"module @m stage(graph) mesh(a = 0)", "at least 1 rank"},
    {"module @m stage(graph) mesh(a = 65536 stride 65536)", "fewer than 2^31"},
    {"module @m stage(graph) mesh(a = 99999999999999999999)", "fits in 64 bits"},
    {"module @\"m stage(graph)", "closing quote"},
    {"module @\"\\q\" stage(graph)", "unknown escape"},
    {"module @ stage(graph)", "a name must follow"},
    {"module @m stage(graph) garbage", "a module has no 'garbage'"},
    {"module @m stage(graph)\ngarbage", "expected setting"},
    {"module @m stage(graph)\n\x01", "no token starts"},
    {"module @m stage(graph)\nsetting loss \"l1\"\nsetting loss \"mse\"", "twice"},
    {"module @m stage(graph)\nsetting colour \"1\"", "no setting colour"},
    {"module @m stage(graph)\nsetting loss \"L1\"", "setting loss: not a value of cross_entropy, "},
    {"module @m stage(graph)\nsetting loss \"cross_entrpy\"", "; did you mean cross_entropy?"},
    {"module @m stage(graph)\nsetting ignore_index \"none\"", "setting ignore_index: not a value"},
    {"module @m stage(planned)\nsetting arena_private_bytes \"-1\"", "setting arena_private_bytes: not a value"},
    {"module @m stage(graph)\nunit @u\nunit @u", "declared twice"},
    {"module @m stage(graph)\noutline @u\noutline @u", "declared twice"},
    {"module @m stage(graph)\nstate @s scalar : f64[]\nstate @s scalar : f64[]", "declared twice"},
    {"module @m stage(graph)\nstate @s thing : f64[]", "expected the state's role"},
    {"module @m stage(graph)\nstate @s scalar : f65[]", "expected an element type"},
    {"module @m stage(graph)\nstate @s scalar : f64[-1]", "a dim is negative"},
    {"module @m stage(graph)\nstate @s scalar : f64[4294967296,4294967296]", "no memory has as many bytes"},
    {"module @m stage(graph)\nstate @s scalar : f64[4611686018427387904]", "no memory has as many bytes"},
    {"module @m stage(graph)\nstate @s scalar : f64[] init(1e999)", "an f64 can hold"},
    {"module @m stage(graph)\nstate @s scalar : f64[] init(x)", "expected a number"},
    {"module @m stage(graph)\nstate @s scalar : f64[] at(window-4)", "expected '+'"},
    {"module @m stage(graph)\nstate @s scalar : f64[] at(window+0xffffffffffffffff)", "expected an offset"},
    {"module @m stage(graph)\nstate @s scalar : f64[] at(moon+4)", "expected a memory space"},
    {"module @m stage(graph)\nstate @s scalar : f64[] slots(@a at 0)", "expected `size"},
    {"module @m stage(graph)\nparameter @p : f32[]\nparameter @p : f32[]", "declared twice"},
    {"module @m stage(graph)\nparameter @p : f32[] uses(\"a\")", "expected ':'"},
    {"module @m stage(graph)\nfunc @main() {}", "expected @forward"},
    {"module @m stage(graph)\nfunc @update() {return\n}\nfunc @update() {return\n}", "defined twice"},
    {"module @m stage(graph)\nfunc @update(", "expected an argument"},
    {"module @m stage(graph)\nfunc @update(%0: f32[] input) {", "says which one it is"},
    {"module @m stage(graph)\nfunc @update(%x: f32[] input, %x: f32[] input) {", "defined twice"},
    {"module @m stage(graph)\nfunc @update() {", "expected an op"},
    {"module @m stage(graph)\nfunc @update() {\n  unit @a {", "unit @a is not declared"},
    {"module @m stage(graph)\nunit @a1\nfunc @update() {\n  unit @a2 {", "did you mean a1?"},
    {"module @m stage(graph)\nfunc @update() {\n  section {\n section {", "do not nest"},
    {"module @m stage(graph)\nfunc @update() {\n  section as(@a) {", "not declared"},
};

constexpr BrokenText brokenNodes[] = {
    {"%y = matmull %x, %x : f32[]", "unknown op 'matmull'; did you mean matmul?"},
    {"%y = neg %z : f32[]", "%z is not defined above"},
    {"%y = neg %y : f32[]", "%y is not defined above"},
    {"%x = neg %x : f32[]", "%x is defined twice"},
    {"%y, %y = neg %x : f32[], f32[]", "%y is defined twice"},
    {"%y = neg %x", "1 results, but 0 types"},
    {"neg %x : f32[]", "0 results, but 1 types"},
    {"%y = neg : f32[]", "takes (x), not 0 operands"},
    {"%y = neg %x, %x : f32[]", "takes (x), not 2 operands"},
    {"%y = neg %x,", "expected an operand"},
    {"%y neg %x : f32[]", "expected '='"},
    {"%y = neg %x axis(1) : f32[]", "neg has no attribute 'axis'"},
    {"%y = reduce_sum %x axis(1) : f32[]", "did you mean axes?"},
    {"%y = reduce_sum %x axes(0) axes(0) : f32[]", "twice"},
    {"%y = reduce_sum %x axes(0 1) : f32[]", "expected ')'"},
    {"%y = reduce_sum %x axes(99999999999999999999) : f32[]", "fits in 64 bits"},
    {"%y = reduce_sum %x axes(0.5) : f32[]", "fits in 64 bits"},
    {"%y = neg %x : future<future<f32[]>>", "expected an element type"},
    {"%y = neg %x : f32[] at(private+0, private+0)", "2 places for 1 results"},
    {"%y = neg %x : f32[] on(moon)", "expected compute, comm, reduce, copy or host"},
    {"%y = neg %x after(%x) : f32[]", "names tokens"},
    {"%y = neg %x unit(@u) : f32[]", "unit @u is not declared"},
    {"%y = neg %x : f32[] %x", "expected an attribute"},
    {"%y = constant value(256) : u8[]", "that u8 can hold"},
    {"%y = constant value(9007199254740993) : i64[]", "that i64 can hold"},
    {"%y = constant value([1, true]) : f32[2]", "that f32 can hold"},
    {"%y = constant value(1.5) : i64[]", "that i64 can hold"},
    {"%y = constant value(hex \"0\\q\") : u8[]", "unknown escape"},
    {"%y = constant value(hex \"0g\") : u8[]", "not hexadecimal"},
    {"%y = constant value(hex \"000000\") : f32[]", "not a multiple of the element size"},
    {"%y = constant value([1, 2) : f32[2]", "expected ']'"},
    {"%y = fused %x body(s0 = add a0, a1; yield s0) : f32[]", "expected an operand (a0, a1, ...)"},
    {"%y = fused %x body(s0 = add a0, s0; yield s0) : f32[]", "expected an operand (a0, a1, ...)"},
    {"%y = fused %x body(s0 = ad a0, a0; yield s0) : f32[]", "expected an elementwise op"},
    {"%y = fused %x body(s0 = neg a0; s0 = neg a0; yield s0) : f32[]", "defined twice"},
    {"%y = fused %x body(s0 = cast a0; yield s0) : f32[]", "needs its element type"},
    {"%y = fused %x body(s0 = add a0, 1e999; yield s0) : f32[]", "an f64 can hold"},
    {"%y = fused %x body(s0 = neg a99999999999999999999; yield s0) : f32[]", "expected an operand"},
    {"%y = fused %x body(yield s0", "expected an operand"},
};

TEST(Text, BrokenTextIsAnErrorThatSaysWhat) {
  for (const BrokenText &broken : brokenModules)
    EXPECT_TRUE(llvm::StringRef(errorOf(broken.text)).contains(broken.message)) << broken.text.str() << '\n'
                                                                                << errorOf(broken.text);
  for (const BrokenText &broken : brokenNodes) {
    std::string text = around(("  " + broken.text + "\n").str());
    EXPECT_TRUE(llvm::StringRef(errorOf(text)).contains(broken.message)) << text << errorOf(text);
  }
}

TEST(Text, ErrorsPointAtTheirPlace) {
  EXPECT_EQ(errorOf(around("  %y = neg %z : f32[2]\n")), "test.fsir:4:12: error: %z is not defined above\n"
                                                         "  %y = neg %z : f32[2]\n"
                                                         "           ^");
}

TEST(Text, ErrorsInLongLinesQuoteAPart) {
  std::string text = around("  %y = neg %" + std::string(100000, 'y') + " : f32[2]\n");
  EXPECT_LT(errorOf(text).size(), 1000u);
}

/// Whether the error has a location within the text and a message.
bool isAtAPlaceOf(llvm::StringRef text, llvm::StringRef error) {
  size_t line = 0, column = 0;
  if (!error.consume_front("test.fsir:") || error.consumeInteger(10, line) || !error.consume_front(":") ||
      error.consumeInteger(10, column) || !error.consume_front(": error: "))
    return false;
  llvm::SmallVector<llvm::StringRef, 0> lines;
  text.split(lines, '\n');
  return line >= 1 && line <= lines.size() && column >= 1 && column <= lines[line - 1].size() + 1 &&
         !error.split('\n').first.empty();
}

/// Reading yields a module whose printed text reads back, or an error with a location. Verifying succeeds or yields an
/// error with a message.
void expectAnswer(llvm::StringRef text) {
  llvm::Expected<std::unique_ptr<Module>> module = read(text);
  if (!module) {
    std::string error = llvm::toString(module.takeError());
    EXPECT_TRUE(isAtAPlaceOf(text, error)) << error;
    return;
  }
  std::string printed = toText(**module);
  EXPECT_EQ(reprinted(printed), printed);
  if (llvm::Error error = verify(**module)) {
    EXPECT_NE(llvm::toString(std::move(error)), "");
  }
}

TEST(Text, EveryPrefixOfAModuleIsAnswered) {
  for (const char *stage : {"stage_train", "planned"}) {
    std::string text = fileText(std::string(stage) + ".fsir");
    for (size_t length = 0; length < text.size(); ++length)
      expectAnswer(llvm::StringRef(text).take_front(length));
  }
}

TEST(Text, DamagedModulesAreAnswered) {
  std::mt19937 random(1);
  const llvm::StringRef pieces[] = {"(",   ")",   "{",     "}",       "[",  "]",     ",",
                                    ":",   "=",   "%x",    "@fc",     "\"", "-1",    "9223372036854775807",
                                    "0",   "\n",  "token", "future<", ">",  "yield", "\\",
                                    "inf", "f32", "free",  "return",  "[0]"};
  for (const char *stage : {"graph", "stage_train", "sharded", "async", "planned"}) {
    std::string original = fileText(std::string(stage) + ".fsir");
    for (int round = 0; round < 400; ++round) {
      std::string text = original;
      for (uint32_t edits = 1 + random() % 3; edits > 0; --edits) {
        size_t at = random() % text.size();
        llvm::StringRef piece = pieces[random() % std::size(pieces)];
        text.replace(at, random() % 4, piece.data(), piece.size());
      }
      expectAnswer(text);
    }
  }
}

TEST(Text, LongModulesReadInOneGo) {
  std::string nodes;
  for (int i = 0; i < 100000; ++i)
    nodes += "  %0" + std::to_string(i) + " = neg %" + (i == 0 ? "x" : "0" + std::to_string(i - 1)) + " : f32[2,3]\n";
  llvm::Expected<std::unique_ptr<Module>> module = read(around(nodes));
  ASSERT_TRUE(static_cast<bool>(module));
  std::string text = toText(**module);
  EXPECT_EQ(reprinted(text), text);
}

} // namespace
} // namespace fsdpc
