#include "frontend/options/option_schema.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <deque>

namespace fsdpc {

namespace {

constexpr OptionKind boolean = OptionKind::boolean, integer = OptionKind::integer, real = OptionKind::real,
                     text = OptionKind::text, choice = OptionKind::choice, list = OptionKind::list,
                     lines = OptionKind::lines;

constexpr llvm::StringLiteral unitGroup = "sharding";

constexpr OptionRow mattersIf(Matters matters, OptionRow row) {
  row.matters = matters;
  return row;
}

// Names are normative. Only what works is listed; what units choose comes from unitChoices(), each before the option
// that it names.
constexpr OptionRow rows[] = {
    {"world_size", integer, "1", "N", "job", "ranks the program is for"},
    {"micro_batch_size", integer, "1", "B", "job", "samples per rank and micro-step; binds dim 0 of the inputs"},
    {"gradient_accumulation_steps", integer, "1", "K", "job",
     "micro-steps of a step, whose gradients are summed: a global batch is world_size x B x K samples"},
    {"dim", list, "", "NAME=VALUE", "job", "binds another symbolic dimension"},
    {"target", choice, "", "cpu|cuda", "job",
     "what the program runs on; default: cuda where a GPU is present, else cpu"},
    {"seed", integer, "0", "S", "job", "of dropout, shuffling and initial values that are drawn"},
    {"train_mode", choice, "keep", "keep|train|eval", "job", "Dropout and batch norm as exported, or forced"},
    {"sync_batch_norm", boolean, "false", "", "job", "batch norm's statistics are those of the batch of all ranks"},

    {"loss", choice, "", "cross_entropy|nll|mse|l1|bce_with_logits|model", "loss",
     "default: model, if the graph computes a loss"},
    {"loss_output", text, "", "NAME", "loss", "graph output the loss reads; default: the first float output"},
    {"loss_reduction", choice, "mean", "mean|sum", "loss",
     "mean is over the elements that count in the whole global batch"},
    {"class_axis", integer, "", "A", "loss", "of the output; default: -1 up to rank 3, else 1"},
    {"ignore_index", integer, "-100", "I", "loss", "label that does not count"},
    {"label_smoothing", real, "0", "X", "loss", "of cross_entropy"},
    {"labels", text, "labels", "NAME", "loss", "name of the label input that the loss adds"},

    {"optimizer", choice, "adamw", "adamw|adam|sgd|adadelta|adagrad|rmsprop|lion", "optimizer",
     "torch semantics and defaults; lion: those of its paper"},
    {"lr", real, "", "X", "optimizer", "default: torch's for the optimizer"},
    {"betas", text, "0.9,0.999", "B1,B2", "optimizer", "adam, adamw; lion: 0.9,0.99"},
    {"eps", real, "", "X", "optimizer", "adam, adamw, adadelta, adagrad, rmsprop"},
    {"weight_decay", real, "", "X", "optimizer", "decoupled for adamw and lion, L2 otherwise"},
    {"momentum", real, "0", "X", "optimizer", "sgd, rmsprop; 0: no momentum buffer"},
    {"dampening", real, "0", "X", "optimizer", "sgd"},
    {"nesterov", boolean, "false", "", "optimizer", "sgd"},
    {"rho", real, "0.9", "X", "optimizer", "adadelta"},
    {"alpha", real, "0.99", "X", "optimizer", "rmsprop"},
    {"centered", boolean, "false", "", "optimizer", "rmsprop"},
    {"lr_decay", real, "0", "X", "optimizer", "adagrad"},
    {"initial_accumulator_value", real, "0", "X", "optimizer", "adagrad"},
    {"max_norm", real, "", "X", "optimizer", "clips the global norm of all gradients; default: it is not computed"},
    {"nonfinite", choice, "error", "error|skip|warn", "optimizer",
     "what follows a loss or gradient norm that is not finite: the run ends (exit 7), or the step changes nothing, "
     "which "
     "the log says, and with warn stderr too"},

    {"trainable", text, "", "REGEX", "parameters", "exactly those whose whole names match are trained"},
    {"frozen", text, "", "REGEX", "parameters", "those whose whole names match are not trained"},
    {"accept_changed", text, "", "REGEX", "parameters",
     "those whose whole names match and that the exporter changed beyond recovery train as they stand in the file"},
    {"tie", list, "", "A=B", "parameters", "two parameters are one"},
    {"no_tie", boolean, "false", "", "parameters", "shared and copied parameters of different modules become separate"},
    {"keep_shared", boolean, "false", "", "parameters", "initializers merged because they were equal stay one"},
    {"restore_biases", boolean, "false", "", "parameters", "zero biases that the exporter dropped come back"},

    {"init", choice, "file", "file|keep|default|random", "parameters",
     "how they start. file: with the file's values; where these are absent as the file's training info says, else by "
     "rules. keep: as file, but nothing may be absent. default: by training info, else by rules. random: by rules"},

    mattersIf(Matters::splitInReplica, {"data_parallel_shard_degree", integer, "-1", "N", "sharding",
                                        "hybrid: ranks of one replica; -1: what is left"}),
    mattersIf(Matters::splitInReplica,
              {"data_parallel_replicate_degree", integer, "1", "N", "sharding", "hybrid: replicas"}),
    {"auto_wrap_policy", choice, "auto", "auto|transformer_based_wrap|size_based_wrap|manual|no_wrap", "sharding",
     "what a unit is"},
    {"transformer_cls_to_wrap", list, "", "CLASS", "sharding", "transformer_based_wrap: modules of these classes"},
    {"min_num_params", integer, "100000000", "N", "sharding", "size_based_wrap: parameters of a unit"},
    {"wrap_pattern", text, "", "REGEX", "sharding", "manual: modules whose whole path matches, e.g. layers[.][0-9]+"},
    {"ignored_params", text, "", "REGEX", "sharding",
     "parameters whose whole names match: whole on every rank, gradients all-reduced"},
    {"unit", lines, "", "REGEX:KEY=VALUE,...", "sharding",
     "for units whose whole names match; the last one counts; keys: "},
    mattersIf(Matters::gatheredPerUse, {"max_inflight_all_gathers", integer, "2", "N", "sharding",
                                        "gathered units held at once, the one in use included"}),
    {"overlap_comm", boolean, "true", "", "sharding", "off: every collective is waited for where it starts"},
    mattersIf(Matters::split, {"allgather_bucket_size", text, "0", "BYTES", "sharding",
                               "what is gathered at once, at most; 0: a unit"}),
    mattersIf(Matters::whole, {"reduce_bucket_size", text, "0", "BYTES", "sharding",
                               "what whole units reduce at once, at most; 0: a unit"}),
    {"reduce_communicator", choice, "shared", "shared|own", "sharding",
     "own: reductions beside gathers, on a communicator and a stream of their own"},
    {"mixed_precision", choice, "no", "no|bf16|fp16", "sharding",
     "the param_dtype; gradients are summed, masters and optimizer state kept in fp32"},
    {"output_dtype", choice, "fp32", "fp32|bf16|fp16|float32=fp32|bfloat16=bf16|float16=fp16", "sharding",
     "of the model's float outputs, as predict writes them and the loss reads them"},
    {"buffer_dtype", choice, "", "fp32|bf16|fp16|float32=fp32|bfloat16=bf16|float16=fp16", "sharding",
     "what float tables of the model that nobody trains are rounded to: fp32: what reads one computes in fp32 and "
     "rounds "
     "its result; default: like other operands"},
    {"cast_forward_inputs", boolean, "true", "", "sharding",
     "round float inputs to the param_dtype at once; off: what reads no parameter computes with them in fp32, and they "
     "are rounded where they meet one (torch then refuses to mix types)"},
    {"keep_low_precision_grads", boolean, "false", "", "sharding",
     "norm and optimizer read gradients in the reduce_dtype, without an fp32 copy; the numbers are the same"},
    {"activation_memory_budget", real, "", "0..1", "sharding",
     "of activation_checkpointing budget: the share of activations that is kept; default: 0.5, or as much as "
     "memory_budget allows"},
    {"offload_optimizer", boolean, "false", "", "sharding",
     "optimizer state in the host's memory, copied to the device and back around each unit's step"},
    {"offload_share", real, "", "0..1", "sharding",
     "of what the three above name, what goes to the host: that of the first units, what is made first; default: all, "
     "or "
     "as little as memory_budget needs"},
    {"loss_scale", real, "0", "X", "sharding", "fp16: what the loss is multiplied by; 0: it is found while training"},
    {"initial_scale_power", integer, "16", "N", "sharding", "fp16: the loss scale that is to be found starts at 2^N"},
    {"loss_scale_window", integer, "1000", "N", "sharding", "fp16: steps without overflow after which it doubles"},
    {"hysteresis", integer, "2", "N", "sharding", "fp16: overflows until it halves; full again when it doubles"},
    {"min_loss_scale", real, "1", "X", "sharding", "fp16: an overflow at this one is not finite for good"},
    {"deterministic", choice, "off", "off|strategy|world|false=off|true=strategy", "sharding",
     "strategy (meant without a value): the same bits for every strategy, prefetch and bucket choice; world: for every "
     "number of ranks too, sample by sample, which costs time",
     false, "strategy"},
    {"memory_budget", text, "", "BYTES", "sharding",
     "of one rank, e.g. 16GiB; a plan over it is refused with what would help"},
    {"streams", choice, "auto", "auto|inline|threads", "sharding",
     "cpu: collectives on a thread of their own, or inline"},
    {"cuda_graph", choice, "auto", "on|off|auto", "sharding",
     "cuda: the program replays its step as one CUDA graph; auto: where it can be captured"},
    {"threads", integer, "0", "T", "sharding",
     "cpu: compute threads per rank that scratch is planned for; 0: cores / ranks"},
    {"allow_tf32", boolean, "false", "", "sharding",
     "cuda: products and convolutions of f32 may round their operands to tf32's 10 bits, which is faster"},
    {"attention", choice, "own", "own|cudnn", "sharding",
     "cuda: cudnn: bf16 attention without a mask by cuDNN, whose derivative takes scratch for every score"},
    {"tune", boolean, "false", "", "sharding",
     "cuda: the program's first run times the library's algorithms for each product and keeps the choice in "
     "OUT/tuning.json"},
    {"hardware", text, "auto", "auto|NAME|FILE", "sharding",
     "whose costs predictions read; default: what calibrate measured here, else cpu, or h100_8 for cuda; cpu, a100_8, "
     "h100_8, h200_8, b200_8; a table"},
    {"transport", choice, "shared", "shared|mpi", "sharding",
     "cpu: shared memory of one host, or MPI messages between hosts"},

    {"world_sizes", list, "", "N,...", "estimate", "plans for these; default: world_size if given, else 1,8,64", true},
    {"strategies", list, "", "all|NAME,...", "estimate", "and these; default: strategy if given, else all", true},

    {"compile_to", choice, "", "graph|train|sharded|async|planned", "looking inside", "stop there and write the stage",
     true},
    {"output", text, "", "OUT", "looking inside", "-o: output folder; with --compile_to a file, - for stdout", true},
    {"emit", choice, "program", "program|src", "looking inside", "src: no host compiler", true},
    {"test_build", choice, "off", "off|on|loopback|emulated_loopback|false=off|true=on", "looking inside",
     "on (meant without a value): cpu: guard pages, pattern fill, no allocation inside a step; cuda: on the emulated "
     "device. cuda only: loopback, ranks as threads on one device, or on the emulated one",
     true, "on"},
    {"node_ranges", boolean, "false", "", "looking inside",
     "cuda: NVIDIA's profilers show a range for every node, not for units only; with --cuda_graph off", true},
    {"dry_run", boolean, "false", "", "looking inside", "compile without writing", true},
    {"dump_dir", text, "", "D", "looking inside", "one numbered file per pass that changed something", true},
    {"print_ir_before", list, "", "PASS", "looking inside", "to stderr", true},
    {"print_ir_after", list, "", "PASS", "looking inside", "to stderr", true},
    {"print_ir_after_all", boolean, "false", "", "looking inside", "to stderr", true},
    {"passes", list, "", "A,B", "looking inside", "run exactly these", true},
    {"skip", list, "", "A,B", "looking inside", "leave these optional passes out"},
    {"list_passes", boolean, "false", "", "looking inside", "the pipeline", true},
    {"timing", boolean, "false", "", "looking inside", "milliseconds per pass", true},
    {"remarks", choice, "", "schedule|memory|units|all", "looking inside", "what was decided and why", true},
    {"opt_report", text, "", "F.json", "looking inside", "remarks, and of every collective what it costs and why",
     true},
    {"schedule_format", choice, "", "text|json|csv|chrome|html", "looking inside",
     "of simulate; when compiling, OUT/schedule.txt, .json, .csv or .trace.json beside schedule.html", true},
    {"profile", list, "", "F.json", "looking inside",
     "simulate --schedule_format html: traces of the program's --profile, drawn with the predicted step", true},
    {"config", text, "", "FILE", "looking inside", "options from JSON or YAML, e.g. OUT/options.json", true},
    {"help", boolean, "false", "", "looking inside", "this text", true},
    {"version", boolean, "false", "", "looking inside", "of fsdpc", true},
};

/// A choice of units as an option of all of them. Its texts stay.
OptionRow optionOf(const UnitChoice &choice, std::deque<std::string> &texts) {
  OptionRow row{choice.option, OptionKind::choice, choice.optionDefault, "", unitGroup, choice.help};
  row.matters = choice.matters;
  if (row.defaultValue.empty())
    row.defaultValue = texts.emplace_back(choice.print(UnitChoices()));
  row.kind = choice.isFlag ? OptionKind::boolean : choice.takesNumber ? OptionKind::text : OptionKind::choice;
  if (choice.isFlag)
    return row;
  llvm::SmallVector<llvm::StringRef, 6> values = choice.spellings();
  if (choice.takesNumber)
    values.push_back("N");
  if (!choice.synonyms.empty())
    values.push_back(choice.synonyms);
  row.values = texts.emplace_back(llvm::join(values, "|"));
  return row;
}

/// The row, behind the choices that say they come before it.
void add(const OptionRow &row, std::vector<OptionRow> &table, std::deque<std::string> &texts) {
  for (const UnitChoice &choice : unitChoices())
    if (choice.before == row.name)
      add(optionOf(choice, texts), table, texts);
  table.push_back(row);
}

} // namespace

llvm::ArrayRef<OptionRow> optionTable() {
  static std::deque<std::string> texts;
  static const std::vector<OptionRow> table = [] {
    std::vector<OptionRow> all;
    for (const OptionRow &row : rows)
      add(row, all, texts);
    assert(llvm::all_of(unitChoices(),
                        [&](const UnitChoice &choice) {
                          return llvm::any_of(all, [&](const OptionRow &row) { return row.name == choice.option; });
                        }) &&
           "every choice says which option it comes before");
    return all;
  }();
  return table;
}

} // namespace fsdpc
