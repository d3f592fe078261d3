// program_info.cpp: the side table. The only emitted file that holds strings of the model.
#include "codegen/common/cpp_text.h"
#include "codegen/common/index_limits.h"
#include "codegen/common/program_text.h"
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "ir/reserved_names.h"
#include <cmath>

namespace fsdpc {

namespace {

/// Shape{2, {4, 64}}
std::string shapeText(llvm::ArrayRef<int64_t> dims) {
  return "{" + std::to_string(dims.size()) + ", " + cppList(dims) + "}";
}

std::string spaceText(Space space) {
  static constexpr llvm::StringLiteral names[] = {"Space::privateSpace", "Space::window", "Space::host"};
  return names[indexOf(space)].str();
}

std::string placeText(Place place) {
  return "{" + (place.isPlaced() ? spaceText(place.space) : spaceText(Space::privateSpace)) + ", " +
         std::to_string(place.offsetBytes) + "}";
}

/// The last fields of a SectionInfo or CollectiveInfo: its begin and its duration. Begin and end are rounded to
/// nanoseconds, so that the successor begins where this one ends.
std::string predictedText(const llvm::DenseMap<const Node *, PredictedTime> &times, const Node *first,
                          const Node *last) {
  auto begin = times.find(first), end = times.find(last);
  if (begin == times.end() || end == times.end())
    return "-1, 0";
  const double beginNanoseconds = std::round(begin->second.beginMicroseconds * 1000);
  const double endNanoseconds = std::round(end->second.endMicroseconds * 1000);
  return cppDouble(beginNanoseconds / 1000) + ", " + cppDouble((endNanoseconds - beginNanoseconds) / 1000);
}

std::string boolText(bool value) { return value ? "true" : "false"; }

/// A table `name` of `type`, one row per entry; its span is null when there are none.
class Table {
public:
  Table(llvm::StringRef type, llvm::StringRef name) : type(type), name(name) {}
  void row(std::initializer_list<std::string> fields) {
    rows += "    {";
    size_t i = 0;
    for (const std::string &field : fields)
      rows += (i++ ? ", " : "") + field;
    rows += "},\n";
    ++count;
  }
  std::string declaration() const {
    return count == 0 ? "" : "constexpr " + type + " " + name + "[] = {\n" + rows + "};\n\n";
  }
  size_t size() const { return count; }
  std::string reference() const { return count == 0 ? "{}" : name; }

private:
  std::string type, name, rows;
  size_t count = 0;
};

class InfoWriter {
public:
  explicit InfoWriter(const ProgramText &program) : program(program), module(program.module), info(program.info) {
    for (const OnnxDataOffset &entry : info.onnxOffsets)
      onnxOffsets[entry.parameter] = entry.bytes;
    for (const State *segment : program.segments())
      segmentIndex.try_emplace(segment->name, static_cast<int>(segmentIndex.size()));
  }
  std::string write();

private:
  void fillMemory();
  void fillInputs();
  std::string rangesText(llvm::ArrayRef<IndexRange> ranges);
  void fillParameters();
  void fillStates();
  void fillCollectives();
  void fillSections();
  void fillResults(FunctionKind kind, Table &table, llvm::StringMap<char> &seen);
  std::string programInfo() const;
  std::string onnxText(const Parameter &parameter) const;

  const ProgramText &program;
  const Module &module;
  const EmitInfo &info;
  llvm::StringMap<int64_t> onnxOffsets;
  llvm::StringMap<int> segmentIndex;
  Table arenas{"ArenaInfo", "arenas"}, memoryClasses{"MemoryClassBytes", "memoryClasses"},
      inputs{"InputInfo", "inputs"}, inputRanges{"IndexRangeInfo", "inputRanges"};
  Table axes{"MeshAxisInfo", "axes"};
  Table segments{"SegmentInfo", "segments"}, parameters{"ParameterInfo", "parameters"},
      otherNames{"OtherNameInfo", "otherNames"}, adapters{"AdapterInfo", "adapters"};
  Table optimizerStates{"OptimizerStateInfo", "optimizerStates"}, scalars{"ScalarInfo", "scalars"};
  Table accumulators{"AccumulatorInfo", "accumulators"};
  Table stepResults{"ResultInfo", "stepResults"}, evalResults{"ResultInfo", "evalResults"},
      predictResults{"ResultInfo", "predictResults"};
  Table collectives{"CollectiveInfo", "collectives"}, sections{"SectionInfo", "sections"};
  Table nodes{"NodeInfo", "nodes"}, indexNodes{"IndexNodeInfo", "indexNodes"};
};

void InfoWriter::fillMemory() {
  for (const ArenaUse &arena : info.arenas)
    arenas.row(
        {spaceText(arena.space), std::to_string(arena.bytes),
         std::to_string(arena.usedBytes) + (arena.predictBytes ? ", " + std::to_string(arena.predictBytes) : "")});
  for (const ClassBytes &entry : info.memoryClasses)
    memoryClasses.row({cppString(entry.name), std::to_string(entry.bytes)});
}

/// Adds the ranges to the table of ranges and returns them as a span of it.
std::string InfoWriter::rangesText(llvm::ArrayRef<IndexRange> ranges) {
  if (ranges.empty())
    return "{}";
  std::string text =
      "{inputRanges + " + std::to_string(inputRanges.size()) + ", " + std::to_string(ranges.size()) + "}";
  for (const IndexRange &range : ranges)
    inputRanges.row({std::to_string(range.first), std::to_string(range.count), std::to_string(range.limit),
                     std::to_string(range.ignored.value_or(0)), boolText(range.ignored.has_value())});
  return text;
}

void InfoWriter::fillInputs() {
  llvm::StringMap<std::vector<IndexRange>> ranges = indexRanges(module);
  llvm::StringMap<char> seen;
  for (const std::unique_ptr<Function> &function : module.functions)
    for (const Argument &argument : function->arguments()) {
      if (argument.kind != ArgumentKind::input || !seen.try_emplace(argument.name).second)
        continue;
      bool isLabels = argument.name == info.labels, isWeight = argument.name == info.sampleWeight;
      const Type &type = argument.value->type();
      const Function *prologue = module.function(FunctionKind::prologue);
      std::vector<IndexRange> own = ranges.lookup(argument.name);
      if (isLabels && info.ignoreIndex && info.classes > 0)
        own = {{0, type.elements() / type.dim(0), info.classes, info.ignoreIndex}};
      // A single range over all elements needs no table.
      bool isOne = own.size() == 1 && own[0].count == type.elements() / type.dim(0);
      IndexRange all = isOne ? own[0] : IndexRange{};
      std::string parts = isOne ? "{}" : rangesText(own);
      bool isShifted = argument.name == info.shiftedLabels;
      std::string rest = isShifted || parts != "{}" ? ", " + parts + ", " + boolText(isShifted) : "";
      inputs.row({cppString(argument.name),
                  isLabels   ? "InputKind::labels"
                  : isWeight ? "InputKind::sampleWeight"
                             : "InputKind::data",
                  cppDType(type.dtype()), shapeText(type.shape()), placeText(argument.value->place),
                  std::to_string(all.limit), std::to_string(all.ignored.value_or(0)), boolText(all.ignored.has_value()),
                  boolText(prologue && prologue->argument(argument.name)) + rest});
    }
}

/// The last fields of a ParameterInfo: how OUT/model.onnx stores it.
std::string InfoWriter::onnxText(const Parameter &parameter) const {
  Shape permutation = parameter.permutation, fileShape = parameter.fileShape;
  llvm::ArrayRef<int64_t> dims = parameter.type.shape();
  if (permutation.empty())
    for (size_t i = 0; i < dims.size(); ++i)
      permutation.push_back(static_cast<int64_t>(i));
  if (fileShape.empty())
    for (int64_t axis : permutation)
      fileShape.push_back(dims[axis]);
  return cppString(parameter.initializer) + ", " + cppList(permutation) + ", " + shapeText(fileShape) + ", " +
         std::to_string(onnxOffsets.lookup(parameter.name));
}

/// The last fields of a ParameterInfo: whether OUT/weights has it, else its initialization; another type in the file.
std::string startText(const Parameter &parameter) {
  std::string text = boolText(parameter.hasValue);
  if (!parameter.hasValue && parameter.initial)
    text += ", {InitialKind::" + nameOf(parameter.initial->kind).str() + ", " + cppDouble(parameter.initial->first) +
            ", " + cppDouble(parameter.initial->second) + "}";
  else if (parameter.fileDType)
    text += ", {}";
  return parameter.fileDType ? text + ", " + cppDType(*parameter.fileDType) : text;
}

void InfoWriter::fillParameters() {
  for (const MeshAxis &axis : module.mesh)
    axes.row({cppString(axis.name), std::to_string(axis.size), std::to_string(axis.stride)});
  for (const State *segment : program.segments()) {
    int repeated = segment->role == StateRole::replica ? segmentIndex.lookup(segment->owner) : -1;
    segments.row({cppString(segment->unit), cppDType(segment->type.dtype()), std::to_string(segment->paddedElements),
                  std::to_string(segment->type.elements()), placeText(segment->place),
                  std::to_string(program.axisOf(segment->over)), std::to_string(repeated)});
  }
  for (const ProgramText::PlacedParameter &placed : program.parameters()) {
    const Parameter &parameter = *placed.parameter;
    parameters.row({cppString(parameter.name), cppDType(parameter.type.dtype()), shapeText(parameter.type.shape()),
                    std::to_string(placed.segment), std::to_string(placed.offsetElements),
                    boolText(parameter.trainable), onnxText(parameter), startText(parameter)});
    for (const std::string &name : parameter.otherNames)
      otherNames.row({std::to_string(parameters.size() - 1), cppString(name)});
    if (const std::optional<Adapter> &adapter = parameter.adapter)
      adapters.row({std::to_string(parameters.size() - 1), std::to_string(program.parameterOf(adapter->down)),
                    std::to_string(program.parameterOf(adapter->up)), cppDouble(adapter->scale),
                    cppDouble(adapter->dropout), boolText(adapter->inputFirst)});
  }
}

void InfoWriter::fillStates() {
  for (const State &state : module.states) {
    if (state.role == StateRole::optimizer)
      optimizerStates.row({cppString(state.field), std::to_string(segmentIndex.lookup(state.owner)),
                           cppDType(state.type.dtype()), placeText(state.place), cppDouble(state.initialValue)});
    else if (state.role == StateRole::scalar)
      scalars.row({cppString(state.name), boolText(state.type.dtype() == DType::i64), cppDouble(state.initialValue),
                   placeText(state.place), cppString(state.owner), state.factor ? cppDouble(*state.factor) : "{}"});
    else if (state.role == StateRole::accumulator)
      accumulators.row({placeText(state.place), std::to_string(state.type.bytes())});
  }
}

void InfoWriter::fillResults(FunctionKind kind, Table &table, llvm::StringMap<char> &seen) {
  const Function *function = module.function(kind);
  const Node *ret = function ? function->returnNode() : nullptr;
  if (!ret)
    return;
  const std::vector<std::string> &names = ret->get<ReturnAttributes>().names;
  for (unsigned i = 0; i < ret->operandCount(); ++i) {
    const Value *value = ret->operand(i);
    bool isGradient = llvm::StringRef(names[i]).starts_with(names::gradientPrefix);
    if (isGradient || !value->type().isTensor() || !seen.try_emplace(names[i]).second)
      continue;
    table.row({cppString(names[i]), cppDType(value->type().dtype()), shapeText(value->type().shape()),
               placeText(value->place)});
  }
}

void InfoWriter::fillCollectives() {
  for (const Node *node : program.collectives()) {
    const auto &attributes = node->get<CollectiveAttributes>();
    llvm::StringRef name = infoOf(*node).name.split('.').first;
    std::string unit = node->unit >= 0 ? module.units[node->unit].name : "";
    int64_t bytes = std::max(node->operand(0)->type().bytes(), node->result()->type().bytes());
    collectives.row({cppString(name), cppString(unit), cppString(std::to_string(attributes.id)), std::to_string(bytes),
                     std::to_string(program.axisOf(attributes.over.name)),
                     node->schedule.stream == Stream::reduce ? "Channel::reduce" : "Channel::comm",
                     predictedText(info.collectiveTimes, node, node)});
  }
}

/// matmul addmm_6, or, if the result has no name, matmul layers.0.fc|node_linear
std::string rangeName(const Node &node) {
  std::string text = infoOf(node).name.str();
  if (node.resultCount() > 0 && !node.result(0)->name().empty())
    return text + " " + node.result(0)->name().str();
  return node.source.empty() ? text : text + " " + node.source;
}

void InfoWriter::fillSections() {
  llvm::DenseMap<const Node *, int64_t> numbers;
  for (const std::unique_ptr<Function> &function : module.functions) {
    int64_t number = 0;
    for (const Node *node : *function)
      numbers[node] = number++;
  }
  for (const ProgramText::PrintedSection &printed : program.sections) {
    const Section &section = printed.first->section;
    sections.row({cppString(nameOf(printed.first->function()->kind())),
                  cppString(section.unit < 0 ? "" : module.units[section.unit].name),
                  cppString(section.phase == Phase::none ? "" : nameOf(section.phase)),
                  std::to_string(numbers.lookup(printed.first)),
                  predictedText(info.computeTimes, printed.first, printed.last)});
    for (const Node *node : printed.named)
      nodes.row({std::to_string(sections.size() - 1), cppString(rangeName(*node))});
  }
}

bool stashesGradients(const Module &module) {
  if (const Function *tap = module.function(FunctionKind::tapGradients))
    for (const Node *node : *tap)
      if (node->op() == Op::unstash)
        return true;
  return false;
}

std::string InfoWriter::programInfo() const {
  CppFields fields;
  fields.text("modelName", cppString(module.name))
      .text("planHash", cppString(info.planHash))
      .text("compileCommand", cppString(info.compileCommand))
      .text("settingsJson", cppString(info.settingsJson))
      .number("worldSize", module.worldSize())
      .number("microBatchSize", info.microBatchSize)
      .number("gradientAccumulationSteps", module.microSteps)
      .text("seed", std::to_string(info.seed) + "u")
      .text("optimizer", cppString(info.optimizer))
      .text("loss", cppString(info.loss))
      .text("lossIsMean", boolText(info.lossIsMean))
      .text("isClassification", boolText(info.isClassification))
      .number("ranksPerHost", info.ranksPerHost)
      .text("arenas", arenas.reference())
      .text("memoryClasses", memoryClasses.reference())
      .text("inputs", inputs.reference())
      .text("axes", axes.reference())
      .text("segments", segments.reference())
      .text("parameters", parameters.reference())
      .text("optimizerStates", optimizerStates.reference())
      .text("accumulators", accumulators.reference())
      .text("scalars", scalars.reference())
      .text("sections", sections.reference())
      .text("nodes", nodes.reference())
      .text("stepResults", stepResults.reference())
      .text("evalResults", evalResults.reference())
      .number("onnxDataBytes", info.onnxDataBytes)
      .text("onnxDataFile", cppString(info.onnxDataFile))
      .real("predictedStepMicroseconds", info.predictedStepMicroseconds)
      .real("predictedExposedMicroseconds", info.predictedExposedMicroseconds)
      .text("functions", "programFunctions")
      .number("threads", info.threads, 0)
      .text("streams", cppString(spelled(info.streams)))
      .text("stepReplay", cppString(spelled(info.stepReplay)))
      .real("peakStepMicroseconds", info.peakStepMicroseconds);
  if (info.allowRoundedOperands)
    fields.text("allowRoundedOperands", "true");
  if (info.tune)
    fields.text("tune", "true");
  if (info.nonFinite != NonFinite::error)
    fields.text("nonFinite", cppString(spelled(info.nonFinite)));
  if (!info.cpuLevel.empty())
    fields.text("cpuLevel", cppString(info.cpuLevel));
  if (stashesGradients(module))
    fields.text("stashesGradients", "true");
  if (module.function(FunctionKind::predict))
    fields.text("predictResults", predictResults.reference());
  if (otherNames.size() > 0)
    fields.text("otherNames", otherNames.reference());
  if (adapters.size() > 0)
    fields.text("adapters", adapters.reference());
  return fields.str();
}

std::string InfoWriter::write() {
  fillMemory();
  fillInputs();
  fillParameters();
  fillStates();
  fillCollectives();
  fillSections();
  for (const ProgramText::IndexNode &node : program.indexNodes())
    indexNodes.row({cppString(node.name), shapeText(node.axes)});
  llvm::StringMap<char> stepSeen, evalSeen, predictSeen;
  fillResults(FunctionKind::prologue, stepResults, stepSeen);
  fillResults(FunctionKind::microStep, stepResults, stepSeen);
  fillResults(FunctionKind::update, stepResults, stepSeen);
  fillResults(FunctionKind::evalStep, evalResults, evalSeen);
  fillResults(FunctionKind::predict, predictResults, predictSeen);
  std::string out = "// What the program tells the runtime about itself: names, shapes, addresses.\n"
                    "#include \"runtime/common/program.h\"\n\n#include <limits>\n\nnamespace fsdpc::rt {\n\n"
                    "extern const Functions programFunctions;\n\nnamespace {\n\n";
  for (const Table *table : {&arenas, &memoryClasses, &inputRanges, &inputs, &axes, &segments, &parameters, &otherNames,
                             &adapters, &optimizerStates, &accumulators, &scalars, &stepResults, &evalResults,
                             &predictResults, &collectives, &sections, &nodes, &indexNodes})
    out += table->declaration();
  out += "} // namespace\n\nconst ProgramInfo &programInfo() {\n  static const ProgramInfo info = " + programInfo() +
         ";\n  return info;\n}\n\nstd::span<const CollectiveInfo> programCollectives() { return " +
         collectives.reference() + "; }\n\nstd::span<const IndexNodeInfo> programIndexNodes() { return " +
         indexNodes.reference() + "; }\n\n} // namespace fsdpc::rt\n";
  return out;
}

} // namespace

std::string programInfoText(const ProgramText &program) { return InfoWriter(program).write(); }

} // namespace fsdpc
