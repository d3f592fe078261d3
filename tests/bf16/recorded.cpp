#include "tests/bf16/recorded.h"

#include "codegen/common/program_writer.h"
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cstring>
#include <map>

namespace fsdpc::rounding {

namespace {

const Node *constantBehind(const Value *value) {
  const Node *definer = value->definer();
  while (definer && infoOf(*definer).has(aliasesOperand))
    definer = definer->operand(0)->definer();
  return definer && definer->op() == Op::constant ? definer : nullptr;
}

bool isRecorded(const Value *value) { return value->type().isTensor() && value->place.isPlaced(); }

void addRegion(std::string &line, const Value *value, bool isResult) {
  if (isRecorded(value))
    line += " " + std::to_string(isResult) + " " + std::to_string(indexOf(value->place.space)) + " " +
            std::to_string(value->place.offsetBytes) + " " + std::to_string(value->type().bytes());
}

template <class T>
double elementAt(const char *bytes, size_t i) {
  T element;
  std::memcpy(&element, bytes + i * sizeof element, sizeof element);
  return static_cast<double>(element);
}

double bfloat16At(const char *bytes, size_t i) {
  uint16_t half = 0;
  std::memcpy(&half, bytes + i * sizeof half, sizeof half);
  const uint32_t bits = uint32_t{half} << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

double elementOf(DType dtype, const char *bytes, size_t i) {
  switch (dtype) {
  case DType::f64: return elementAt<double>(bytes, i);
  case DType::f32: return elementAt<float>(bytes, i);
  case DType::bf16: return bfloat16At(bytes, i);
  case DType::f16: return elementAt<_Float16>(bytes, i);
  case DType::i64: return elementAt<int64_t>(bytes, i);
  case DType::i32: return elementAt<int32_t>(bytes, i);
  case DType::u8:
  case DType::boolean: return elementAt<uint8_t>(bytes, i);
  }
  return 0;
}

HostTensor tensorOf(const Type &type, const char *&bytes) {
  HostTensor tensor(type);
  for (size_t i = 0; i < tensor.values.size(); ++i)
    tensor.values[i] = elementOf(type.dtype(), bytes, i);
  bytes += type.bytes();
  return tensor;
}

HostTensor valueOf(const Value *value, const char *&bytes) {
  if (isRecorded(value))
    return tensorOf(value->type(), bytes);
  const Node *constant = constantBehind(value);
  assert(constant && "what lies in no arena is a constant");
  return hostTensorOf(constant->get<ConstantAttributes>().value, value->type());
}

int64_t recordedBytes(const Node &node) {
  int64_t bytes = 0;
  for (const Value *operand : node.operands())
    bytes += isRecorded(operand) ? operand->type().bytes() : 0;
  for (unsigned i = 0; i < node.resultCount(); ++i)
    bytes += isRecorded(node.result(i)) ? node.result(i)->type().bytes() : 0;
  return bytes;
}

Recording recordingOf(const Node &node, const char *bytes) {
  Recording recording{&node, {}, {}};
  for (const Value *operand : node.operands())
    if (operand->type().isTensor())
      recording.operands.push_back(valueOf(operand, bytes));
  for (unsigned i = 0; i < node.resultCount(); ++i)
    if (isRecorded(node.result(i)))
      recording.results.push_back(tensorOf(node.result(i)->type(), bytes));
  return recording;
}

/// Inserted after the opening of `start`, which runs once, when the arenas exist.
std::string withRecorder(const std::string &text, llvm::StringRef target) {
  const std::string opening = "void start(Context &c) {\n";
  const size_t at = text.find(opening);
  assert(at != std::string::npos && "every program has a start");
  std::string out = target == "cuda" ? "#define FSDPC_RECORD_DEVICE\n" : "";
  out += "#include \"tests/bf16/recorder.h\"\n" + text;
  out.insert(out.find(opening) + opening.size(), "  rounding::install(c);\n");
  return out;
}

} // namespace

InstrumentedProgram instrument(const Module &module, llvm::StringRef target) {
  EmitInfo info;
  info.nodeRanges = true;
  ProgramText program(module, info, dialectOf(target));
  InstrumentedProgram instrumented;
  instrumented.text = withRecorder(ProgramWriter(program).write(), target);
  for (size_t section = 0; section < program.sections.size(); ++section)
    for (size_t i = 0; i < program.sections[section].named.size(); ++i) {
      const Node *node = program.sections[section].named[i];
      instrumented.nodes.push_back({static_cast<int>(section), static_cast<int>(i), node});
      std::string line = std::to_string(section) + " " + std::to_string(i);
      for (const Value *operand : node->operands())
        addRegion(line, operand, false);
      for (unsigned k = 0; k < node->resultCount(); ++k)
        addRegion(line, node->result(k), true);
      instrumented.regions += line + "\n";
    }
  return instrumented;
}

llvm::Expected<std::vector<Recording>> readRecordings(llvm::ArrayRef<NumberedNode> nodes, llvm::StringRef path) {
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!file)
    return llvm::createStringError(path + ": " + llvm::Twine(file.getError().message()));
  std::map<std::pair<int64_t, int64_t>, const char *> bytesOf;
  const char *position = (*file)->getBufferStart();
  while (position < (*file)->getBufferEnd()) {
    int64_t header[3];
    std::memcpy(header, position, sizeof header);
    position += sizeof header;
    bytesOf[{header[0], header[1]}] = position;
    position += header[2];
  }
  std::vector<Recording> recordings;
  for (const NumberedNode &numbered : nodes) {
    auto found = bytesOf.find({numbered.section, numbered.index});
    if (found != bytesOf.end() && recordedBytes(*numbered.node) > 0)
      recordings.push_back(recordingOf(*numbered.node, found->second));
  }
  return recordings;
}

} // namespace fsdpc::rounding
