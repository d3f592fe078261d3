// torchtitan's TOML, until it had none: torchtitan/config/job_config.py. Its own defaults decide what is trained, too.
#include "frontend/configs/translation.h"
#include "llvm/ADT/StringSwitch.h"
#include <cmath>

namespace fsdpc {

namespace {

constexpr llvm::StringLiteral monitor = "out/train has --log, --profile and --memory_report",
                              splitsBatch = "ranks split the batch alone; there is no tensor, pipeline, context or "
                                            "expert parallelism",
                              otherParallelism = "only other kinds of parallelism read it",
                              data = "data is given to the program by --train_data and --val_data",
                              model = "the model is MODEL.onnx", compiled = "the whole step is compiled",
                              float8 = "only a converter reads it",
                              checkpoints = "checkpoints are sharded and load on any number of ranks; --save_model "
                                            "writes full weights",
                              dtypes = "float32|bfloat16|float16";

constexpr KeyRow rows[] = {
    combines("job.dump_folder", "the folder before those of tensorboard and checkpoints"),
    needs("experimental.custom_import", "", "fsdpc reads no Python"),
    needs("experimental.custom_args_module", "", "fsdpc reads no Python"),
    needs("model.converters", "", "programs compute in fp32, bf16 or fp16; nothing is converted"),

    maps("optimizer.name", "optimizer", "adamw|adam", "there are AdamW and Adam", "adamw"),
    maps("optimizer.lr", "lr", "", "", "8e-4"),
    combines("optimizer.beta1", "--betas, by default 0.9,0.95"),
    combines("optimizer.beta2", "--betas, by default 0.9,0.95"),
    maps("optimizer.eps", "eps", "", "", "1e-8"),
    maps("optimizer.weight_decay", "weight_decay", "", "", "0.1"),
    unread("optimizer.implementation", "kernels are chosen by the compiler"),
    unread("optimizer.early_step_in_backward", "the optimizer runs where the plan has it"),

    trains("lr_scheduler.warmup_steps", "warmup_steps", "", "", "200"),
    combines("lr_scheduler.decay_ratio", "--lr_scheduler: the share of the steps after the warm-up, or more"),
    combines("lr_scheduler.decay_type", "--lr_scheduler: linear, cosine"),
    combines("lr_scheduler.min_lr_factor", "--min_lr, with lr"),

    maps("training.local_batch_size", "micro_batch_size", "", "", "8"),
    combines("training.global_batch_size", "--gradient_accumulation_steps, with the degrees of parallelism"),
    maps("training.max_norm", "max_norm", "0=|0.0=|*", "", "1.0"),
    trains("training.steps", "steps", "", "", "10000"),
    maps("training.enable_cpu_offload", "offload_params", "true|false="),
    maps("training.mixed_precision_param", "param_dtype", dtypes, "", "bfloat16"),
    maps("training.mixed_precision_reduce", "reduce_dtype", dtypes, "", "float32"),
    needs("training.dtype", "float32", "there is no copy of the weights in fp32 then; mixed_precision_param has one"),
    maps("training.seed", "seed"),
    maps("training.deterministic", "deterministic", "true=strategy|false="),
    maps("debug.seed", "seed"),
    maps("debug.deterministic", "deterministic", "true=strategy|false="),

    combines("parallelism.data_parallel_replicate_degree", "--strategy and the option of that name"),
    combines("parallelism.data_parallel_shard_degree", "--strategy, --world_size and the option of that name"),
    combines("parallelism.fsdp_reshard_after_forward", "--reshard_after_forward"),
    needs("parallelism.tensor_parallel_degree", "1", splitsBatch),
    needs("parallelism.pipeline_parallel_degree", "1", splitsBatch),
    needs("parallelism.context_parallel_degree", "1", splitsBatch),
    needs("parallelism.expert_parallel_degree", "1", splitsBatch),
    needs("parallelism.expert_tensor_parallel_degree", "1", splitsBatch),

    maps("activation_checkpoint.mode", "activation_checkpointing", "none|full|selective|memory_budget=budget", "",
         "selective"),
    combines("activation_checkpoint.memory_budget", "--activation_memory_budget of budget"),

    combines("checkpoint.enable_checkpoint", "--checkpoint_folder"),
    combines("checkpoint.folder", "--checkpoint_folder"),
    combines("checkpoint.interval", "--checkpoint_interval"),
    combines("checkpoint.keep_latest_k", "--keep_latest_k"),
    combines("checkpoint.async_mode", "--checkpoint_staging: disabled off, else host"),
    combines("checkpoint.initial_load_path", "--load_model, of a folder of Hugging Face"),
    combines("checkpoint.initial_load_in_hf", "--load_model"),
    needs("checkpoint.load_step", "-1", "out/train --resume goes on"),
    needs("checkpoint.exclude_from_loading", "", "out/train --resume loads all"),

    trains("metrics.log_freq", "log_freq"),
    combines("metrics.enable_tensorboard", "--tensorboard"),
    combines("metrics.save_tb_folder", "--tensorboard"),
    trains("comm.init_timeout_seconds", "init_timeout_seconds"),
    trains("comm.train_timeout_seconds", "train_timeout_seconds"),
    needs("fault_tolerance.enable", "false", "the number of ranks is fixed; a checkpoint loads on another"),
};

constexpr KeyGroup groups[] = {
    {unread("job", "a program has --help and --version"),
     "config_file description use_for_integration_test print_args"},
    {unread("profiling", monitor),
     "enable_profiling save_traces_folder profile_freq enable_memory_snapshot save_memory_snapshot_folder"},
    {unread("metrics", monitor), "disable_color_printing save_for_all_ranks enable_wandb"},
    {unread("comm", monitor), "trace_buf_size save_traces_folder"},
    {unread("memory_estimation", "fsdpc estimate says what fits"), "enabled enable disable_fake_mode"},
    {unread("model", model), "name flavor tokenizer_path hf_assets_path print_after_conversion"},
    {unread("training", data), "dataset dataset_path seq_len gc_freq gc_debug"},
    {unread("validation", data), "enabled enable dataset dataset_path local_batch_size seq_len freq steps"},
    {unread("training", compiled), "compile"},
    {unread("compile", compiled), "enable components backend"},
    {unread("parallelism", compiled), "enable_compiled_autograd"},
    {unread("parallelism", otherParallelism),
     "disable_loss_parallel enable_async_tensor_parallel pipeline_parallel_split_points "
     "pipeline_parallel_layers_per_stage pipeline_parallel_schedule pipeline_parallel_schedule_csv "
     "pipeline_parallel_microbatch_size pipeline_parallel_first_stage_less_layers "
     "pipeline_parallel_last_stage_less_layers module_fqns_per_model_part context_parallel_rotate_method"},
    {unread("activation_checkpoint", "selective recomputes all but the results of matmuls, attention and convolutions"),
     "selective_ac_option per_op_sac_force_recompute_mm_shapes_by_fqns early_stop visualize_memory_budget_pareto "
     "preserve_rng_state determinism_check debug"},
    {unread("checkpoint", checkpoints),
     "model_weights_only last_save_model_only export_dtype create_seed_checkpoint enable_first_step_checkpoint "
     "last_save_in_hf initial_load_model_only"},
    {unread("", float8), "quantize"},
    {unread("float8", float8),
     "enable_fsdp_float8_all_gather precompute_float8_dynamic_scale_for_fsdp force_recompute_fp8_weight_in_bwd "
     "recipe_name filter_fqns emulate moe_fqns_prototype moe_fqns"},
    {unread("mx", float8), "mxfp8_dim1_cast_kernel_choice recipe_name filter_fqns moe_fqns"},
    {unread("fault_tolerance", "ranks that fail end the run; --resume goes on"),
     "process_group process_group_timeout_ms replica_id group_size min_replica_size semi_sync_method sync_steps "
     "should_quantize fragment_sync_delay fragment_update_alpha"},
};

llvm::ArrayRef<KeyRow> allRows() {
  static const KeyTable table({rows}, groups);
  return table.rows();
}

bool recognizes(const Setting &root) {
  const Setting *training = root.find("training");
  for (llvm::StringRef key : {"model", "parallelism", "job"})
    if (const Setting *section = root.find(key); training && training->isMapping() && section && section->isMapping())
      return true;
  return false;
}

/// Names of earlier versions.
std::string canonicalKey(llvm::StringRef key) {
  return llvm::StringSwitch<std::string>(key)
      .Case("training.batch_size", "training.local_batch_size")
      .Case("lr_scheduler.lr_min", "lr_scheduler.min_lr_factor")
      .Case("checkpoint.enable", "checkpoint.enable_checkpoint")
      .Case("experimental.enable_async_tensor_parallel", "parallelism.enable_async_tensor_parallel")
      .Default(key.str());
}

std::string unreadSection(const Setting &, llvm::StringRef) { return ""; }

constexpr llvm::StringLiteral replicateKey = "parallelism.data_parallel_replicate_degree",
                              shardKey = "parallelism.data_parallel_shard_degree";

/// The ranks, if the file says so: -1 is what remains of those that the launcher starts.
std::optional<int64_t> useDegrees(Translation &translation) {
  const int64_t replicas = translation.integer(replicateKey).value_or(1),
                shards = translation.integer(shardKey).value_or(-1);
  const llvm::StringRef reshard = "parallelism.fsdp_reshard_after_forward";
  const bool isReplicated = replicas > 1 && shards == 1, isHybrid = replicas > 1 && shards != 1;
  const llvm::StringRef strategy = isReplicated ? "no_shard" : isHybrid ? "hybrid_shard" : "full_shard";
  if (translation.find(replicas > 1 ? replicateKey : shardKey))
    translation.compile(replicas > 1 ? replicateKey : shardKey, "strategy", strategy);
  else
    translation.useDefault(shardKey, "-1", Receiver::compiler, "strategy", strategy);
  if (isHybrid)
    translation.compile(replicateKey, "data_parallel_replicate_degree", std::to_string(replicas));
  if (translation.find(reshard) && isReplicated)
    translation.note(reshard, "nothing is sharded");
  else if (translation.find(reshard))
    translation.useValue(reshard, "reshard_after_forward");
  if (shards < 1)
    return std::nullopt;
  if (isHybrid)
    translation.compile(shardKey, "data_parallel_shard_degree", std::to_string(shards));
  translation.compile(shardKey, "world_size", std::to_string(replicas * shards));
  return replicas * shards;
}

void useGlobalBatch(Translation &translation, std::optional<int64_t> ranks) {
  const llvm::StringRef key = "training.global_batch_size", local = "training.local_batch_size";
  const std::optional<int64_t> all = translation.integer(key);
  if (!all || *all < 1)
    return;
  const int64_t part = translation.integer(local).value_or(8) * ranks.value_or(0);
  if (!ranks)
    translation.refuse(key, "of how many ranks is known with data_parallel_shard_degree",
                       "gradient_accumulation_steps");
  else if (part < 1 || *all % part != 0)
    translation.refuse(key, "is no multiple of ranks x local_batch_size", "gradient_accumulation_steps");
  else
    translation.compile(key, "gradient_accumulation_steps", std::to_string(*all / part));
}

/// The rate falls after the warm-up, or in the last share of the steps, which then has to begin there.
void useSchedule(Translation &translation) {
  const llvm::StringRef type = "lr_scheduler.decay_type", ratio = "lr_scheduler.decay_ratio",
                        least = "lr_scheduler.min_lr_factor", rate = "optimizer.lr";
  const double steps = static_cast<double>(translation.integer("training.steps").value_or(10000)),
               warmUp = static_cast<double>(translation.integer("lr_scheduler.warmup_steps").value_or(200));
  const std::string shape = translation.find(type) ? translation.text(type) : "linear";
  if (translation.find(ratio) && warmUp + std::round(steps * translation.real(ratio).value_or(1)) < steps)
    translation.refuse(ratio, "the rate stays for a time after the warm-up; wsd here falls along a root in the last "
                              "20 % of the steps");
  if (shape != "linear" && shape != "cosine")
    translation.refuse(type, "there are linear and cosine");
  else if (translation.find(type))
    translation.use(type, Receiver::program, "lr_scheduler", shape);
  else
    translation.useDefault(type, "linear", Receiver::program, "lr_scheduler", shape);
  if (const double factor = translation.real(least).value_or(0); factor > 0)
    translation.use(least, Receiver::program, "min_lr", numberText(factor * translation.real(rate).value_or(8e-4)));
}

void useBetas(Translation &translation) {
  const llvm::StringRef first = "optimizer.beta1", second = "optimizer.beta2";
  const std::string betas = (translation.find(first) ? translation.text(first) : "0.9") + "," +
                            (translation.find(second) ? translation.text(second) : "0.95");
  if (translation.find(first) || translation.find(second))
    translation.compile(translation.find(first) ? first : second, "betas", betas);
  else
    translation.useDefault(second, "0.95", Receiver::compiler, "betas", betas);
}

/// A folder below that of the job.
std::string folderOf(const Translation &translation, llvm::StringRef key, llvm::StringRef byDefault) {
  const Setting *job = translation.find("job.dump_folder"), *folder = translation.find(key);
  return (job ? llvm::StringRef(job->text).rtrim('/') : "./torchtitan/outputs").str() + "/" +
         (folder ? folder->text : byDefault.str());
}

void useFolders(Translation &translation) {
  const llvm::StringRef saves = "checkpoint.enable_checkpoint", staging = "checkpoint.async_mode",
                        board = "metrics.enable_tensorboard", load = "checkpoint.initial_load_path";
  if (translation.isOn(board))
    translation.use(board, Receiver::program, "tensorboard", folderOf(translation, "metrics.save_tb_folder", "tb"));
  if (translation.find(load) && translation.isOn("checkpoint.initial_load_in_hf"))
    translation.useValue(load, "load_model", Receiver::program);
  else if (translation.find(load))
    translation.refuse(load, "is a checkpoint of torch; out/train --load_model reads folders of Hugging Face");
  if (!translation.isOn(saves))
    return;
  translation.use(saves, Receiver::program, "checkpoint_folder",
                  folderOf(translation, "checkpoint.folder", "checkpoint"));
  for (llvm::StringRef name : {"interval", "keep_latest_k"})
    if (const std::string key = ("checkpoint." + name).str(); translation.find(key))
      translation.useValue(key, name == "interval" ? "checkpoint_interval" : name, Receiver::program);
  if (translation.find(staging))
    translation.use(staging, Receiver::program, "checkpoint_staging",
                    translation.text(staging) == "disabled" ? "off" : "host");
}

llvm::Error combine(Translation &translation) {
  useGlobalBatch(translation, useDegrees(translation));
  useBetas(translation);
  useSchedule(translation);
  useFolders(translation);
  const llvm::StringRef budget = "activation_checkpoint.memory_budget";
  if (translation.find(budget) && translation.text("activation_checkpoint.mode") == "memory_budget")
    translation.useValue(budget, "activation_memory_budget");
  else if (translation.find(budget))
    translation.note(budget, "only mode memory_budget reads it");
  return llvm::Error::success();
}

} // namespace

const Trainer torchTitan = {"torchtitan", recognizes, allRows, canonicalKey, unreadSection, combine};

} // namespace fsdpc
