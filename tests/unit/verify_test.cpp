// The verifier: every invariant has texts that violate it (tests/verify), and modules that no text can express.
#include "ir/verify.h"

#include "ir/builder.h"
#include "ir/ops/attributes.h"
#include "ir/text/text.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include <gtest/gtest.h>
#include <set>

namespace fsdpc {
namespace {

constexpr int invariants = 20;
// The reader already rejects violations of these. See the tests below.
const std::set<std::string> withoutText = {"V3", "V4"};

std::vector<std::string> brokenFiles() {
  std::vector<std::string> files;
  std::error_code error;
  for (llvm::sys::fs::directory_iterator file(FSDPC_SOURCE_DIR "/tests/verify", error), end; !error && file != end;
       file.increment(error))
    if (llvm::sys::path::extension(file->path()) == ".fsir")
      files.push_back(file->path());
  return files;
}

/// V5 from .../v05_wrong_type.fsir.
std::string labelOf(llvm::StringRef file) {
  int number = 0;
  EXPECT_FALSE(llvm::sys::path::filename(file).substr(1, 2).getAsInteger(10, number)) << file.str();
  return "V" + std::to_string(number);
}

std::string message(const Module &module) { return llvm::toString(verify(module)); }

bool contains(const std::string &text, llvm::StringRef part) { return llvm::StringRef(text).contains(part); }

TEST(Verify, EveryBrokenTextBreaksTheInvariantOfItsName) {
  for (const std::string &file : brokenFiles()) {
    auto buffer = llvm::MemoryBuffer::getFile(file);
    ASSERT_TRUE(static_cast<bool>(buffer));
    llvm::Expected<std::unique_ptr<Module>> module = parse(**buffer);
    ASSERT_TRUE(static_cast<bool>(module)) << llvm::toString(module.takeError());
    EXPECT_TRUE(llvm::StringRef(message(**module)).starts_with("(" + labelOf(file) + ") ")) << file << '\n'
                                                                                            << message(**module);
  }
}

TEST(Verify, EveryInvariantHasABrokenText) {
  std::set<std::string> labels = withoutText;
  for (const std::string &file : brokenFiles())
    labels.insert(labelOf(file));
  for (int i = 1; i <= invariants; ++i)
    EXPECT_TRUE(labels.contains("V" + std::to_string(i))) << i;
}

TEST(Verify, TheManualListsEveryInvariant) {
  auto manual = llvm::MemoryBuffer::getFile(FSDPC_SOURCE_DIR "/ir/README.md");
  ASSERT_TRUE(static_cast<bool>(manual));
  for (int i = 1; i <= invariants; ++i)
    EXPECT_TRUE((*manual)->getBuffer().contains("| V" + std::to_string(i) + " |")) << i;
}

TEST(Verify, ModulesOfEveryStagePass) {
  for (const char *stage : {"graph", "stage_train", "sharded", "async", "planned"}) {
    auto buffer = llvm::MemoryBuffer::getFile(FSDPC_SOURCE_DIR "/tests/text/" + std::string(stage) + ".fsir");
    ASSERT_TRUE(static_cast<bool>(buffer));
    llvm::Expected<std::unique_ptr<Module>> module = parse(**buffer);
    ASSERT_TRUE(static_cast<bool>(module)) << llvm::toString(module.takeError());
    EXPECT_EQ(message(**module), "") << stage;
  }
}

/// forward(%x: f32[2]) without nodes yet.
struct Forward {
  Module module;
  Function *function = module.addFunction(FunctionKind::forward);
  Value *x = function->addArgument(ArgumentKind::input, "x", Type(DType::f32, {2}));
  Builder builder{*function};
};

TEST(Verify, UseBeforeDefinition) {
  Forward forward;
  Node *first = forward.builder.create(Op::neg, {forward.x});
  Node *second = forward.builder.create(Op::neg, {first->result()});
  forward.builder.ret({second->result()}, {"y"});
  EXPECT_EQ(message(forward.module), "");
  first->moveAfter(second);
  EXPECT_TRUE(
      contains(message(forward.module), "(V3) forward: operand 0 is not defined before it is used\n  %0 = neg %1"))
      << message(forward.module);
}

TEST(Verify, ValueOfAnotherFunction) {
  Forward forward;
  Function *update = forward.module.addFunction(FunctionKind::update);
  Builder builder(*update);
  Node *node = builder.create(Op::neg, {forward.x});
  builder.ret({}, {});
  forward.builder.ret({}, {});
  EXPECT_TRUE(
      contains(message(forward.module), "(V3) update: operand 0 is not defined before it is used\n  %0 = neg %?"))
      << message(forward.module);
  node->dropOperands();
}

TEST(Verify, OperandCount) {
  Forward forward;
  Node *node = forward.builder.create(Op::neg, {forward.x});
  node->appendOperand(forward.x);
  forward.builder.ret({}, {});
  EXPECT_TRUE(contains(message(forward.module), "(V4) forward: neg cannot have 2 operands\n  %0 = neg %x, %x"))
      << message(forward.module);
}

TEST(Verify, AttributesOfAnotherOp) {
  Forward forward;
  Node *node = forward.builder.create(Op::neg, {forward.x});
  node->setAttributes(std::make_unique<Attributes<AxisAttributes>>());
  forward.builder.ret({}, {});
  EXPECT_TRUE(contains(message(forward.module), "(V4) forward: neg has the attributes of another op"))
      << message(forward.module);
}

TEST(Verify, UnitOutsideTheTable) {
  Forward forward;
  forward.builder.create(Op::neg, {forward.x})->unit = 3;
  forward.builder.ret({}, {});
  EXPECT_TRUE(contains(message(forward.module), "(V6) forward: its unit does not exist")) << message(forward.module);
}

} // namespace
} // namespace fsdpc
