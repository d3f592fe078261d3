#include "frontend/driver/driver.h"

#include "frontend/compilation/program_target.h"
#include "frontend/driver/bundle.h"
#include "frontend/driver/compile.h"
#include "frontend/driver/init.h"
#include "frontend/driver/inspect.h"
#include "frontend/driver/next_steps.h"
#include "frontend/driver/report_runs.h"
#include "frontend/options/help.h"
#include "frontend/output/installation.h"
#include "frontend/output/output_folder.h"
#include "frontend/report/schedule_format.h"
#include "frontend/search/estimate.h"
#include "frontend/search/memory_budget.h"
#include "frontend/tools/calibrate.h"
#include "frontend/tools/checkpoint.h"
#include "frontend/tools/reduce.h"
#include "frontend/tools/run.h"
#include "ir/text/text.h"
#include "ir/verify.h"
#include "passes/check/check_schedule.h"
#include "passes/pipeline.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

namespace fsdpc {

namespace {

/// runtime/common/version.h has the same version for programs.
constexpr llvm::StringLiteral version = "0.1";

llvm::Error usage(const llvm::Twine &message) { return llvm::make_error<UsageError>(message.str()); }

/// The model. Requires that it is the only word in addition to options and the `first` words of a subcommand.
llvm::Expected<std::string> onlyInput(const OptionValues &values, size_t first) {
  llvm::ArrayRef<std::string> words = values.positional();
  if (words.size() == first + 1)
    return words[first];
  if (words.size() > first + 1 && !llvm::sys::fs::exists(words[0]) && first == 0)
    return usage(words[0] + ": is neither a model nor one of " + llvm::join(subcommands(), ", ") +
                 didYouMean(words[0], subcommands()));
  if (words.size() > first + 1)
    return usage("one model at a time: " + words[first + 1] + " is one too many");
  return usage(first == 0
                   ? "a model is missing: fsdpc MODEL.onnx [options] -o OUT (--help lists them)"
                   : "a file is missing: fsdpc " + words[0] + (words[0] == "verify" ? " STAGE.fsir" : " MODEL.onnx"));
}

/// inspect and init.
llvm::Error inspectModel(const OptionValues &values) {
  const bool isInit = values.positional()[0] == "init";
  if (isInit && values.positional().size() == 1 && values.hasConfigOfOthers())
    return initFromConfig(values);
  llvm::Expected<std::string> input = onlyInput(values, 1);
  if (!input)
    return input.takeError();
  if (isInit)
    return initConfig(*input, values);
  return inspect(*input, values);
}

/// The train stage of OUT/stages/planned.fsir is in the same folder.
llvm::Error checkAgainstNeighbour(const Module &planned, llvm::StringRef path) {
  llvm::SmallString<128> train(llvm::sys::path::parent_path(path));
  llvm::sys::path::append(train, "train.fsir");
  if (!llvm::sys::fs::exists(train)) {
    llvm::outs() << "no train.fsir next to it: order and memory were checked, values were not\n";
    return llvm::Error::success();
  }
  llvm::Expected<std::unique_ptr<Module>> module = readStage(train);
  return module ? checkAgainstTrain(**module, planned) : module.takeError();
}

llvm::Error verifyStage(const OptionValues &values) {
  llvm::Expected<std::string> input = onlyInput(values, 1);
  if (!input)
    return input.takeError();
  if (!llvm::StringRef(*input).ends_with(".fsir") && llvm::sys::fs::exists(*input))
    return usage("verify " + *input + ": is no stage; it takes one of OUT/stages/*.fsir");
  llvm::Expected<std::unique_ptr<Module>> module = readStage(*input);
  if (!module)
    return module.takeError();
  if (llvm::Error error = verify(**module))
    return error;
  if ((*module)->stage == Stage::planned) {
    if (llvm::Error error = checkPlanned(**module))
      return error;
    if (llvm::Error error = checkAgainstNeighbour(**module, *input))
      return error;
  }
  llvm::outs() << *input << ": ok, stage " << nameOf((*module)->stage) << '\n';
  return llvm::Error::success();
}

/// Prints the requested reports about the schedule. Does nothing before it is planned.
llvm::Error reportSchedule(const Compilation &compilation, const OptionValues &values) {
  if (compilation.module->stage != Stage::planned)
    return llvm::Error::success();
  const Module &module = *compilation.module;
  Timeline timeline = simulate(module, compilation.machine.predicting);
  if (values.text("remarks") == "all" || values.text("remarks") == "schedule")
    for (const std::string &remark : scheduleRemarks(timeline))
      llvm::errs() << "remark: " << remark << '\n';
  if (!values.text("opt_report").empty())
    return writeText(values.text("opt_report"), optReport(module, timeline, compilation.remarks));
  return llvm::Error::success();
}

void printRemarks(const Compilation &compilation, const OptionValues &values) {
  bool all = values.text("remarks") == "all" || values.text("remarks") == "units";
  for (const std::string &remark : compilation.remarks)
    if (all)
      llvm::errs() << "remark: " << remark << '\n';
  if (values.flag("timing"))
    for (const PassTime &time : compilation.times)
      llvm::errs() << llvm::format("%10.3f ms  ", time.milliseconds) << time.pass << '\n';
}

llvm::Error readProfiles(const OptionValues &values, SchedulePageOptions &options) {
  for (const std::string &path : values.list("profile")) {
    auto buffer = llvm::MemoryBuffer::getFile(path);
    if (!buffer)
      return llvm::createStringError(path + ": " + llvm::Twine(buffer.getError().message()));
    options.profiles.emplace_back(path, (*buffer)->getBuffer().str());
  }
  return llvm::Error::success();
}

/// Writes only the predicted timeline, to `--output` or stdout.
llvm::Error simulateModel(OptionValues &values) {
  llvm::Expected<std::string> input = onlyInput(values, 1);
  if (!input)
    return input.takeError();
  llvm::Expected<Compilation> compilation = compileModule(*input, values);
  if (!compilation)
    return compilation.takeError();
  if (compilation->module->stage != Stage::planned)
    return usage("simulate: needs the full pipeline; leave out --compile_to and --passes");
  printRemarks(*compilation, values);
  if (llvm::Error error = reportSchedule(*compilation, values))
    return error;
  Timeline timeline = simulate(*compilation->module, compilation->machine.predicting);
  llvm::StringRef format = values.text("schedule_format").empty() ? "text" : values.text("schedule_format");
  if (format != "html")
    return writeText(values.text("output"), scheduleText(*compilation->module, timeline, format));
  llvm::Expected<const Installation &> own = installation();
  if (!own)
    return own.takeError();
  SchedulePageOptions options = schedulePageOptions(*compilation, values, own->resources);
  if (llvm::Error error = readProfiles(values, options))
    return error;
  llvm::Expected<std::string> page = schedulePage(*compilation->module, *compilation->target, timeline, options);
  return page ? writeText(values.text("output"), *page) : page.takeError();
}

/// A device program that calls cuDNN's frontend links only if its headers were present when fsdpc was built.
llvm::Error checkFrontend(const OptionValues &values) {
#if !defined(FSDPC_HAS_CUDNN_FRONTEND)
  llvm::StringRef testBuild = values.text("test_build");
  const bool isForDevice = testBuild == "off" || testBuild == "loopback";
  if (values.text("attention") == "cudnn" && values.text("emit") == "program" && isForDevice)
    return usage("--attention cudnn: this fsdpc was built without the headers of cuDNN's frontend: "
                 "runtime/cuda/toolkit.sh --install gets them, then configure and build it again; or --emit src, and "
                 "build the source where "
                 "they are");
#endif
  return llvm::Error::success();
}

llvm::Error compile(OptionValues &values) {
  llvm::Expected<std::string> input = onlyInput(values, 0);
  if (!input)
    return input.takeError();
  for (llvm::StringRef name : {"world_sizes", "strategies"})
    if (values.given(name))
      return usage("--" + name + ": is for fsdpc estimate");
  bool textOnly = !values.text("compile_to").empty() || !values.list("passes").empty();
  for (llvm::StringRef name : {"output", "opt_report"})
    if (bool isSame = false; !llvm::sys::fs::equivalent(values.text(name), *input, isSame) && isSame)
      return usage("--" + name + " " + values.text(name) + ": is the input and would be overwritten");
  if (!textOnly && values.text("output").empty() && !values.flag("dry_run"))
    return usage("-o OUT: the output folder is missing");
  if (!textOnly && !values.flag("dry_run")) {
    if (llvm::Error error = checkFrontend(values))
      return error;
    if (llvm::Error error = OutputFolder::check(values.text("output"), *input))
      return error;
  }
  llvm::Expected<Compilation> compilation = compileModule(*input, values);
  if (!compilation)
    return compilation.takeError();
  printRemarks(*compilation, values);
  if (llvm::Error error = reportSchedule(*compilation, values))
    return error;
  if (llvm::Error error = checkMemoryBudget(*compilation, values, *input))
    return error;
  if (textOnly)
    return writeText(values.text("output"), *compilation->module);
  if (llvm::Error error = writeBundle(*compilation, values, *input))
    return error;
  if (!values.flag("dry_run"))
    llvm::outs() << nextSteps(*compilation, values);
  return llvm::Error::success();
}

/// A file may have the name of a command.
bool asksFor(const OptionValues &values, llvm::StringRef command) {
  return !values.positional().empty() && values.positional()[0] == command && !llvm::sys::fs::exists(command);
}

/// help, man and completion.
llvm::Error explain(const OptionValues &values) {
  const llvm::ArrayRef<std::string> words = values.positional();
  const llvm::StringRef topic = words.size() > 1 ? llvm::StringRef(words[1]) : "";
  if (words.size() > 2)
    return usage(words[0] + ": one topic at a time");
  llvm::Expected<std::string> text = asksFor(values, "man")                      ? manPage()
                                     : asksFor(values, "completion")             ? completionScript(topic)
                                     : asksFor(values, "help") && !topic.empty() ? helpText(topic)
                                                                                 : helpText();
  if (!text)
    return text.takeError();
  llvm::outs() << *text;
  return llvm::Error::success();
}

llvm::Error dispatch(OptionValues &values) {
  if (values.flag("help") || asksFor(values, "help") || asksFor(values, "man") || asksFor(values, "completion"))
    return explain(values);
  if (values.flag("version")) {
    llvm::outs() << "fsdpc " << version << '\n';
    return llvm::Error::success();
  }
  // What init writes may be for another machine.
  if (!asksFor(values, "init") || values.given("target"))
    chooseTarget(values);
  printConfigLines(values);
  if (values.flag("list_passes")) {
    for (const Pass *pass : pipeline())
      llvm::outs() << pass->name << (pass->optional ? "  (optional)" : "") << '\n';
    return llvm::Error::success();
  }
  const bool isSimulation = !values.positional().empty() && values.positional()[0] == "simulate";
  if (!values.list("profile").empty() && !(isSimulation && values.text("schedule_format") == "html"))
    return usage("--profile: changes nothing but the page of simulate --schedule_format html");
  if (!values.positional().empty() && (values.positional()[0] == "inspect" || values.positional()[0] == "init"))
    return inspectModel(values);
  if (values.flag("json"))
    return usage("--json: is for inspect; a compile writes OUT/plan.json");
  if (!values.positional().empty() && values.positional()[0] == "verify")
    return verifyStage(values);
  if (isSimulation)
    return simulateModel(values);
  if (!values.positional().empty() && values.positional()[0] == "calibrate")
    return values.positional().size() == 1 ? calibrate(values) : usage("calibrate takes no model");
  if (!values.positional().empty() && values.positional()[0] == "report")
    return reportRuns(values);
  if (!values.positional().empty() && values.positional()[0] == "estimate")
    return runEstimate(values);
  return compile(values);
}

llvm::Error compileArguments(llvm::ArrayRef<std::string> arguments) {
  llvm::Expected<OptionValues> values = OptionValues::parse(arguments);
  return values ? compile(*values) : values.takeError();
}

/// Arguments after `--` belong to CHECK, whatever they look like.
llvm::Error reduce(llvm::ArrayRef<std::string> arguments) {
  const std::string *dashes = llvm::find(arguments, "--");
  llvm::ArrayRef<std::string> check(dashes, arguments.end());
  if (check.size() < 2)
    return usage("reduce: fsdpc reduce STAGE.fsir [-o FILE] -- CHECK [arguments]: exit 0 of CHECK says that the module "
                 "whose file is its last argument still shows the fault");
  llvm::Expected<OptionValues> values = OptionValues::parse(llvm::ArrayRef(arguments.begin(), dashes));
  if (!values)
    return values.takeError();
  llvm::Expected<std::string> input = onlyInput(*values, 1);
  return input ? reduceFile(*input, check.drop_front(), values->text("output")) : input.takeError();
}

int report(llvm::Error error) {
  int code = 1;
  if (error.isA<UsageError>())
    code = 2;
  else if (error.isA<InternalError>())
    code = 70;
  llvm::errs() << "fsdpc: " << toString(std::move(error)) << '\n';
  return code;
}

} // namespace

int runCompiler(llvm::ArrayRef<std::string> arguments) {
  if (!arguments.empty() && arguments[0] == "reduce")
    if (llvm::is_contained(arguments, "--") || !llvm::is_contained(arguments, "--help")) {
      llvm::Error error = reduce(arguments);
      return error ? report(std::move(error)) : 0;
    }
  // Its options are its own. A model may have the name too.
  if (!arguments.empty() && arguments[0] == "checkpoint" && !llvm::sys::fs::is_regular_file("checkpoint")) {
    llvm::Expected<int> code = runCheckpointTool(arguments.drop_front());
    return code ? *code : report(code.takeError());
  }
  if (!arguments.empty() && arguments[0] == "run" && !llvm::sys::fs::is_regular_file("run")) {
    llvm::Expected<int> code = runModel(arguments.drop_front(), compileArguments);
    return code ? *code : report(code.takeError());
  }
  llvm::Expected<OptionValues> values = OptionValues::parse(arguments);
  if (!values)
    return report(values.takeError());
  if (llvm::Error error = dispatch(*values))
    return report(std::move(error));
  return 0;
}

} // namespace fsdpc
