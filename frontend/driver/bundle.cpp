#include "frontend/driver/bundle.h"

#include "codegen/emit.h"
#include "frontend/output/build_program.h"
#include "frontend/output/installation.h"
#include "frontend/report/plan_json.h"
#include "frontend/report/run_report.h"
#include "frontend/report/schedule_format.h"
#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "ir/ops/loss.h"
#include "ir/queries.h"
#include "passes/cost/peak.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"

namespace fsdpc {

namespace {

std::string sha256Of(llvm::StringRef text) {
  llvm::SHA256 hasher;
  hasher.update(text);
  return llvm::toHex(hasher.final(), true);
}

std::string planHash(const Compilation &compilation) { return sha256Of(compilation.stageText.at(Stage::planned)); }

/// Labels of a class loss index the classes of the scores. The graph may have its own losses, over other labels.
int64_t classCount(const Module &module) {
  const Function *step = module.function(FunctionKind::evalStep);
  const Value *labels = step->argument(module.facts.labels);
  for (Node *node : *step) {
    const bool isLinear = node->op() == Op::linearCrossEntropy;
    if (node->op() != Op::crossEntropy && node->op() != Op::nll && !isLinear)
      continue;
    if (aliasRoot(node->operand(isLinear ? 2 : 1)) == labels)
      return isLinear ? classesOf(*node) : node->operand(0)->type().dim(-1);
  }
  return 0;
}

/// Returns whether the option's effect is already in the stage that a recompile starts from.
bool isAboutImport(llvm::StringRef option) {
  constexpr llvm::StringLiteral names[] = {"dim",         "train_mode",     "trainable",      "frozen", "tie", "no_tie",
                                           "keep_shared", "restore_biases", "accept_changed", "init",   "lora"};
  return llvm::is_contained(names, option);
}

std::string shellQuoted(llvm::StringRef word) {
  if (llvm::all_of(word, [](char c) { return llvm::isAlnum(c) || llvm::StringRef("_-+=./:,@%").contains(c); }))
    return word.str();
  std::string quoted = "'";
  for (char c : word)
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

/// The options that shape the result and differ from their defaults.
std::string optionsForShell(const OptionValues &values) {
  std::vector<std::string> words;
  for (const OptionRow &row : optionTable()) {
    const bool isOfThisMachine = row.name == "threads"; // resolved from its cores
    if (row.isAboutThisRun || isOfThisMachine || isAboutImport(row.name))
      continue;
    const std::string option = "--" + row.name.str() + "=";
    if (row.kind == OptionKind::list || row.kind == OptionKind::lines)
      for (const std::string &item : values.list(row.name))
        words.push_back(shellQuoted(option + item));
    else if (values.text(row.name) != row.defaultValue)
      words.push_back(shellQuoted(option + values.text(row.name).str()));
  }
  return llvm::join(words, " ");
}

EmitInfo emitInfo(const Compilation &compilation, const OptionValues &values, const MemoryReport &memory,
                  const Timeline &timeline, const ExternalLayout &layout, llvm::StringRef resources) {
  const Module &module = *compilation.module;
  EmitInfo info;
  info.resources = resources.str();
  info.planHash = planHash(compilation);
  info.compileCommand = optionsForShell(values);
  info.settingsJson = values.toJson(false);
  info.microBatchSize = compilation.options.microBatchSize;
  info.seed = compilation.options.seed;
  const Facts &facts = module.facts;
  info.optimizer = facts.optimizer ? spelled(*facts.optimizer) : "";
  info.loss = facts.loss ? spelled(*facts.loss) : "";
  info.lossIsMean = facts.lossReduction == LossReduction::mean;
  info.ranksPerHost = values.text("transport") == "mpi" ? 1 : 0;
  if (compilation.options.splitSamples) // threads split some sums, and their number would follow the number of ranks
    info.threads = values.integer("threads");
  info.cpuLevel = compilation.target->workspaceLevel();
  info.streams = *choiceFrom<Streams>(values.text("streams"));
  info.allowRoundedOperands = values.flag("allow_tf32");
  info.tune = values.flag("tune");
  info.nonFinite = *choiceFrom<NonFinite>(values.text("nonfinite"));
  info.nodeRanges = values.flag("node_ranges");
  info.poisonsFreed = values.text("test_build") != "off";
  info.stepReplay = *choiceFrom<CudaGraph>(values.text("cuda_graph"));
  info.peakStepMicroseconds = peakStepMicroseconds(module, compilation.machine.predicting.hardware);
  info.labels = facts.labels;
  info.shiftedLabels = facts.shiftedLabels;
  info.isClassification = facts.loss == LossKind::crossEntropy || facts.loss == LossKind::nll;
  if (info.isClassification) {
    info.ignoreIndex = facts.ignoreIndex.value_or(0);
    info.classes = classCount(module);
  }
  for (Space space : allSpaces)
    if (int64_t bytes = facts.arenaBytes(space); bytes > 0 || space != Space::host)
      info.arenas.push_back(
          {space, bytes, facts.arena(space).usedBytes.value_or(0), facts.arena(space).predictBytes.value_or(0)});
  for (size_t i = 0; i < memoryClassCount; ++i)
    info.memoryClasses.push_back({nameOf(static_cast<MemoryClass>(i)).str(), memory.byClass[i]});
  for (const ExternalLayout::Entry &entry : layout.entries)
    info.onnxOffsets.push_back({entry.parameter, entry.offsetBytes});
  info.onnxDataBytes = layout.totalBytes;
  info.onnxDataFile = modelDataName.str();
  info.predictedStepMicroseconds = timeline.stepMicroseconds;
  info.predictedExposedMicroseconds = timeline.exposedMicroseconds;
  const StepTimes times(timeline);
  for (const auto &[node, span] : times.compute)
    info.computeTimes[node] = {span.begin, span.end};
  for (const auto &[start, span] : times.transfers)
    info.collectiveTimes[start] = {span.begin, span.end};
  return info;
}

/// A stage read from OUT/stages/ finds its weights and its model in OUT/. Without the model there is no layout, and the
/// program refuses --save_onnx.
llvm::Expected<ExternalLayout> copyBundleFiles(OutputFolder &folder, llvm::StringRef stagePath, const Module &module) {
  llvm::SmallString<128> bundle(llvm::sys::path::parent_path(stagePath));
  if (bundle.empty())
    bundle = ".";
  llvm::sys::path::append(bundle, "..");
  auto pathOf = [&](llvm::StringRef name) {
    llvm::SmallString<128> file(bundle);
    llvm::sys::path::append(file, name);
    return file.str().str();
  };
  const bool hasWeights =
      llvm::any_of(module.parameters, [](const Parameter &parameter) { return parameter.hasValue; });
  if (hasWeights && llvm::sys::fs::exists(pathOf("weights/model.safetensors")))
    if (llvm::Error error = folder.copyFrom(bundle, "weights/model.safetensors"))
      return error;
  if (!llvm::sys::fs::exists(pathOf("model.onnx")))
    return ExternalLayout();
  llvm::Expected<ExternalLayout> layout = readRepairedLayout(pathOf("model.onnx"), module.parameters, modelDataName);
  if (!layout) { // the model of another program
    llvm::consumeError(layout.takeError());
    return ExternalLayout();
  }
  if (llvm::Error error = folder.copyFrom(bundle, "model.onnx"))
    return error;
  return layout;
}

llvm::Expected<ExternalLayout> writeModelFiles(const Compilation &compilation, OutputFolder &folder,
                                               llvm::StringRef input) {
  if (!compilation.imported.model)
    return copyBundleFiles(folder, input, *compilation.module);
  if (llvm::any_of(compilation.imported.parameters, [](const Parameter &parameter) { return parameter.hasValue; })) {
    llvm::Expected<std::string> weights = folder.pathOf("weights/model.safetensors");
    if (!weights)
      return weights.takeError();
    if (llvm::Error error = writeWeights(compilation.imported, *weights))
      return error;
  }
  llvm::Expected<std::string> model = folder.pathOf("model.onnx");
  if (!model)
    return model.takeError();
  return writeRepairedModel(compilation.imported, *model, modelDataName);
}

std::string scheduleFileName(llvm::StringRef format) {
  llvm::StringRef extension = format == "text" ? "txt" : format == "chrome" ? "trace.json" : format;
  return "schedule." + extension.str();
}

llvm::Error writeStages(const Compilation &compilation, OutputFolder &folder) {
  for (const auto &[stage, text] : compilation.stageText)
    if (llvm::Error error = folder.write("stages/" + nameOf(stage).str() + ".fsir", text))
      return error;
  for (const auto &entry : compilation.constants.constants())
    if (llvm::Error error =
            folder.write(("stages/" + ConstantStore::folderName + "/" + entry.first()).str(), entry.second.asText()))
      return error;
  return llvm::Error::success();
}

/// Prints the notes of the import, and how many parameters are drawn, if any.
void printInitialValues(const Compilation &compilation, llvm::raw_ostream &out) {
  const Module &module = *compilation.module;
  for (const std::string &sentence : compilation.imported.notes)
    out << "note: " << sentence << '\n';
  const auto drawn = llvm::count_if(module.parameters, [](const Parameter &parameter) { return !parameter.hasValue; });
  if (drawn > 0)
    out << "initial values: " << module.parameters.size() - drawn << " parameters from the file, " << drawn
        << " drawn by the program from its seed (plan.json says how)\n";
}

/// The strategies of the units, each once.
std::string strategiesOf(const Module &module) {
  llvm::SmallVector<std::string, 4> strategies;
  for (const Unit &unit : module.units)
    if (std::string strategy = spelled(unit.choices.strategy); !llvm::is_contained(strategies, strategy))
      strategies.push_back(std::move(strategy));
  return llvm::join(strategies, ", ");
}

} // namespace

SchedulePageOptions schedulePageOptions(const Compilation &compilation, const OptionValues &values,
                                        llvm::StringRef resources) {
  SchedulePageOptions options;
  options.resources = resources.str();
  options.title = compilation.module->name;
  options.planHash = planHash(compilation);
  const Hardware &hardware = compilation.machine.predicting.hardware;
  options.facts = {{"strategy", strategiesOf(*compilation.module)},
                   {"ranks", std::to_string(compilation.module->worldSize())},
                   {"costs of", hardware.name},
                   {"collectives", compilation.machine.predicting.inlineStreams ? "inline" : "on a stream"}};
  if (compilation.imported.model) // a stage that was read has its batch already
    options.facts.push_back({"samples per rank", std::to_string(compilation.options.microBatchSize)});
  return options;
}

llvm::Error writeBundle(const Compilation &compilation, const OptionValues &values, llvm::StringRef input) {
  const Module &module = *compilation.module;
  MemoryReport memory = reportMemory(module, *compilation.target);
  Timeline timeline = simulate(module, compilation.machine.predicting);
  printMemoryReport(memory, llvm::outs());
  printInitialValues(compilation, llvm::outs());
  if (values.flag("dry_run"))
    return llvm::Error::success();
  llvm::Expected<const Installation &> own = installation();
  if (!own)
    return own.takeError();
  llvm::Expected<OutputFolder> folder = OutputFolder::create(values.text("output"), input);
  if (!folder)
    return folder.takeError();
  llvm::Expected<ExternalLayout> layout = writeModelFiles(compilation, *folder, input);
  if (!layout)
    return layout.takeError();
  llvm::Expected<std::vector<EmittedFile>> files =
      emitProgram(module, emitInfo(compilation, values, memory, timeline, *layout, own->resources),
                  dialectOf(compilation.target->name()));
  if (!files)
    return files.takeError();
  std::vector<std::string> sources;
  for (const EmittedFile &file : *files) {
    if (llvm::Error error = folder->write(file.name, file.text))
      return error;
    if (llvm::StringRef(file.name).ends_with(".cpp") || llvm::StringRef(file.name).ends_with(".cu"))
      sources.push_back(file.name);
  }
  for (const std::string &file : runtimeFiles(own->resources, compilation.target->name()))
    if (llvm::Error error = folder->copyFrom(own->resources, file))
      return error;
  if (llvm::Error error = folder->write("plan.json", planJson(module, memory, timeline)))
    return error;
  llvm::Expected<std::string> page =
      schedulePage(module, *compilation.target, timeline, schedulePageOptions(compilation, values, own->resources));
  if (!page)
    return page.takeError();
  if (llvm::Error error = folder->write("schedule.html", *page))
    return error;
  llvm::Expected<std::string> runPage = runReportFrame(own->resources);
  if (!runPage)
    return runPage.takeError();
  if (llvm::Error error = folder->write("run_page.html", *runPage))
    return error;
  if (llvm::StringRef format = values.text("schedule_format"); !format.empty() && format != "html")
    if (llvm::Error error = folder->write(scheduleFileName(format), scheduleText(module, timeline, format)))
      return error;
  if (llvm::Error error = folder->write("options.json", values.toJson(true) + "\n"))
    return error;
  if (llvm::Error error = writeStages(compilation, *folder))
    return error;
  if (values.text("emit") == "program")
    if (llvm::Error error =
            buildProgram(*folder, sources, {compilation.target->name().str(), values.text("test_build").str()}))
      return error;
  return folder->commit();
}

} // namespace fsdpc
