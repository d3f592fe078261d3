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

// Names are normative. Only options that work are listed. Choices of units are from unitChoices(), each before the
// option that it names.
constexpr OptionRow rows[] = {
    {"world_size", integer, "1", "N", "job", "ranks the program is for"},
    {"micro_batch_size", integer, "1", "B", "job", "samples per rank and micro-step; binds dim 0 of the inputs"},
    {"gradient_accumulation_steps", integer, "1", "K", "job",
     "micro-steps of a step, whose gradients are summed: a global batch is world_size x B x K samples"},
    {"dim", list, "", "NAME=VALUE", "job", "binds another symbolic dimension"},
    {"target", choice, "", "cpu|cuda", "job", "where the program runs; default: cuda if a GPU is present, else cpu"},
    {"seed", integer, "0", "S", "job", "for dropout, shuffling and random initial values"},
    {"train_mode", choice, "keep", "keep|train|eval", "job", "Dropout and batch norm as exported, or forced"},
    {"sync_batch_norm", boolean, "false", "", "job", "compute batch norm statistics over the batch of all ranks"},

    {"loss", choice, "", "cross_entropy|nll|mse|l1|bce_with_logits|model", "loss",
     "default: model, if the graph computes a loss"},
    {"loss_output", text, "", "NAME", "loss", "graph output the loss reads; default: the first float output"},
    {"loss_reduction", choice, "mean", "mean|sum", "loss", "mean: over the elements of the global batch that count"},
    {"class_axis", integer, "", "A", "loss", "of the output; default: -1 up to rank 3, else 1"},
    {"ignore_index", integer, "-100", "I", "loss", "label that does not count"},
    {"label_smoothing", real, "0", "X", "loss", "of cross_entropy"},
    {"top_k", integer, "1", "K", "loss", "an evaluation also counts the labels among the K highest scores"},
    {"loss_chunk", text, "auto", "auto|N|off", "loss",
     "positions whose logits exist at once; auto: where there are many; off: all"},
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
    {"group", lines, "", "REGEX:KEY=VALUE,...", "optimizer",
     "other values for parameters whose full names match; keys: the optimizer's options, betas as 0.9,0.95; "
     "lr_scale=X: "
     "that multiple of lr; name=WORD"},
    {"no_decay", text, "", "REGEX|norms_biases", "optimizer",
     "no weight decay for parameters whose full names match; norms_biases: for those of one dim or called bias"},
    {"layer_decay", real, "", "X", "optimizer",
     "lr of the last unit, and for each unit before it X times that of the next; default: the same for all"},
    {"ema_decay", real, "", "X", "optimizer",
     "also keep a moving average of each trained parameter, sharded: X * average + (1 - X) * parameter after each "
     "step; default: none"},
    {"eval_ema", boolean, "false", "", "optimizer", "evaluation and predictions use the averages of --ema_decay"},
    {"max_norm", real, "", "X", "optimizer", "clip the global norm of all gradients; default: not computed"},
    {"nonfinite", choice, "error", "error|skip|warn", "optimizer",
     "after a loss or gradient norm that is not finite: error ends the run (exit 7), skip leaves out the step, "
     "which the log says, and with warn stderr too"},

    {"lora", text, "", "rank=R,alpha=A,dropout=X,targets=REGEX", "parameters",
     "train low-rank adapters beside the weights of linear layers whose full names match, all_linear: of all but the "
     "last; what --trainable does not name is frozen; rslora=on: scaled by alpha / sqrt(rank) [rank=8,alpha=8]"},
    {"trainable", text, "", "REGEX", "parameters", "train only parameters whose full names match"},
    {"frozen", text, "", "REGEX", "parameters", "do not train parameters whose full names match"},
    {"accept_changed", text, "", "REGEX", "parameters",
     "train parameters that the exporter changed beyond recovery as the file holds them, if their full names match"},
    {"tie", list, "", "A=B", "parameters", "two parameters are one"},
    {"no_tie", boolean, "false", "", "parameters", "separate shared and copied parameters of different modules"},
    {"keep_shared", boolean, "false", "", "parameters", "keep initializers merged that were merged for equal values"},
    {"restore_biases", boolean, "false", "", "parameters", "restore zero biases that the exporter dropped"},

    {"separate_documents", boolean, "false", "", "parameters",
     "documents packed in one sample do not see each other: adds inputs for their numbers and, with a table of "
     "positions, "
     "for positions"},

    {"init", choice, "file", "file|keep|default|random", "parameters",
     "initial values. file: the file's values; where absent, the file's training info, else "
     "rules. keep: as file, but nothing may be absent. default: by training info, else by rules. random: by rules"},

    mattersIf(Matters::splitInReplica, {"data_parallel_shard_degree", integer, "-1", "N", "sharding",
                                        "hybrid: ranks of one replica; -1: all that remain"}),
    mattersIf(Matters::splitInReplica,
              {"data_parallel_replicate_degree", integer, "1", "N", "sharding", "hybrid: replicas"}),
    {"auto_wrap_policy", choice, "auto", "auto|transformer_based_wrap|size_based_wrap|manual|no_wrap", "sharding",
     "how modules are grouped into units"},
    {"transformer_cls_to_wrap", list, "", "CLASS", "sharding", "transformer_based_wrap: modules of these classes"},
    {"min_num_params", integer, "100000000", "N", "sharding", "size_based_wrap: parameters of a unit"},
    {"wrap_pattern", text, "", "REGEX", "sharding", "manual: modules whose full path matches, e.g. layers[.][0-9]+"},
    {"ignored_params", text, "", "REGEX", "sharding",
     "do not shard parameters whose full names match; all-reduce their gradients"},
    {"unit", lines, "", "REGEX:KEY=VALUE,...", "sharding",
     "choices for units whose full names match; the last match wins; keys: "},
    mattersIf(Matters::gatheredPerUse, {"max_inflight_all_gathers", integer, "2", "N", "sharding",
                                        "maximum of units gathered at the same time, including the one in use"}),
    {"overlap_comm", boolean, "true", "", "sharding", "off: wait for every collective right after its start"},
    mattersIf(Matters::split, {"allgather_bucket_size", text, "0", "BYTES", "sharding",
                               "maximum size of one all_gather; 0: one per unit"}),
    mattersIf(Matters::unsharded, {"reduce_bucket_size", text, "0", "BYTES", "sharding",
                                   "maximum size of one all_reduce of unsharded units; 0: one per unit"}),
    {"reduce_communicator", choice, "shared", "shared|own", "sharding",
     "own: reductions on their own communicator and stream, concurrent with gathers"},
    {"mixed_precision", choice, "no", "no|bf16|fp16", "sharding",
     "the param_dtype; gradient sums, master parameters and optimizer state stay fp32"},
    {"frozen_dtype", choice, "fp32", "fp32|bf16|fp16|float32=fp32|bfloat16=bf16|float16=fp16", "sharding",
     "dtype in which parameters that do not train are stored, gathered and saved, without an fp32 copy"},
    {"output_dtype", choice, "fp32", "fp32|bf16|fp16|float32=fp32|bfloat16=bf16|float16=fp16", "sharding",
     "dtype of the model's float outputs, for predict and the loss"},
    {"buffer_dtype", choice, "", "fp32|bf16|fp16|float32=fp32|bfloat16=bf16|float16=fp16", "sharding",
     "dtype of float tables that do not train. fp32: ops that read one compute in fp32 and "
     "round the result; default: as other operands"},
    {"cast_forward_inputs", boolean, "true", "", "sharding",
     "round float inputs to the param_dtype first; off: ops without parameters compute in fp32, and inputs "
     "are rounded where they meet a parameter (torch then refuses to mix types)"},
    {"keep_low_precision_grads", boolean, "false", "", "sharding",
     "norm and optimizer read gradients in the reduce_dtype, without an fp32 copy; results are the same"},
    {"activation_memory_budget", real, "", "0..1", "sharding",
     "for activation_checkpointing budget: fraction of activations that is kept; default: 0.5, or as much as "
     "memory_budget allows"},
    {"offload_optimizer", boolean, "false", "", "sharding",
     "keep optimizer state in host memory; copy it to the device and back around each unit's step"},
    {"offload_share", real, "", "0..1", "sharding",
     "fraction of what the three options above offload, first units first; default: all, or "
     "as little as memory_budget needs"},
    {"loss_scale", real, "0", "X", "sharding", "fp16: factor of the loss; 0: dynamic"},
    {"initial_scale_power", integer, "16", "N", "sharding", "fp16: initial dynamic loss scale, 2^N"},
    {"loss_scale_window", integer, "1000", "N", "sharding", "fp16: steps without overflow before the scale doubles"},
    {"hysteresis", integer, "2", "N", "sharding", "fp16: overflows before the scale halves; reset when it doubles"},
    {"min_loss_scale", real, "1", "X", "sharding", "fp16: lower bound; an overflow at it counts as not finite"},
    {"deterministic", choice, "off", "off|strategy|world|false=off|true=strategy", "sharding",
     "strategy (if no value is given): bitwise identical for every strategy, prefetch and bucket choice; world: for "
     "every number of ranks too, sample by sample, which costs time",
     false, "strategy"},
    {"memory_budget", text, "", "BYTES", "sharding",
     "per rank, e.g. 16GiB; a larger plan is refused, with options that reduce it"},
    {"streams", choice, "auto", "auto|inline|threads", "sharding", "cpu: collectives on their own thread, or inline"},
    {"cuda_graph", choice, "auto", "on|off|auto", "sharding",
     "cuda: the program replays its step as one CUDA graph; auto: where it can be captured"},
    {"threads", integer, "0", "T", "sharding",
     "cpu: compute threads per rank that scratch is planned for; 0: cores / ranks"},
    {"allow_tf32", boolean, "false", "", "sharding",
     "cuda: f32 matmuls and convolutions may round operands to tf32 (10 bits), which is faster"},
    {"attention", choice, "own", "own|cudnn", "sharding",
     "cuda: cudnn: bf16 attention without a mask by cuDNN, whose derivative takes scratch for every score"},
    {"tune", boolean, "false", "", "sharding",
     "cuda: the program's first run times the library's algorithms for each matmul and saves the choice in "
     "OUT/tuning.json"},
    {"hardware", text, "auto", "auto|NAME|FILE", "sharding",
     "cost table for predictions; default: measured by calibrate, else cpu, or h100_8 for cuda; cpu, a100_8, "
     "h100_8, h200_8, b200_8; a table"},
    {"ranks_per_host", integer, "0", "N", "sharding",
     "for predictions: ranks on each host; 0: as the cost table says, all on one for cpu"},
    {"transport", choice, "shared", "shared|mpi", "sharding",
     "cpu: memory that the ranks of a host share and MPI between hosts, or MPI between all ranks"},

    {"world_sizes", list, "", "N,...", "estimate", "plans for these; default: world_size if given, else 1,8,64", true},
    {"strategies", list, "", "all|NAME,...", "estimate", "and these; default: strategy if given, else all", true},

    {"compile_to", choice, "", "graph|train|sharded|async|planned", "looking inside", "stop there and write the stage",
     true},
    {"output", text, "", "OUT", "looking inside", "-o: output folder; with --compile_to a file, - for stdout", true},
    {"emit", choice, "program", "program|src", "looking inside", "src: no host compiler", true},
    {"test_build", choice, "off", "off|on|loopback|emulated_loopback|false=off|true=on", "looking inside",
     "on (if no value is given): cpu: guard pages, pattern fill, no allocation inside a step; cuda: on the emulated "
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
    {"remarks", choice, "", "schedule|memory|units|all", "looking inside", "decisions and their reasons", true},
    {"opt_report", text, "", "F.json", "looking inside", "remarks, and the cost of every collective with its reason",
     true},
    {"schedule_format", choice, "", "text|json|csv|chrome|html", "looking inside",
     "for simulate; when compiling, also writes OUT/schedule.txt, .json, .csv or .trace.json", true},
    {"json", boolean, "false", "", "looking inside", "for inspect: everything, as JSON", true},
    {"profile", list, "", "F.json", "looking inside",
     "simulate --schedule_format html: traces of the program's --profile, drawn with the predicted step", true},
    {"config", text, "", "FILE", "looking inside",
     "options from JSON or YAML, e.g. OUT/options.json; or a file of Accelerate, Axolotl, DeepSpeed or torchtitan",
     true},
    {"help", boolean, "false", "", "looking inside", "this text", true},
    {"version", boolean, "false", "", "looking inside", "of fsdpc", true},
};

/// A choice of units as an option for all units. `texts` owns its strings.
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

/// Adds the row after the choices that precede it.
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
