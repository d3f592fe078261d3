// DeepSpeed's JSON: deepspeed/runtime/config.py, zero/config.py, lr_schedules.py.
#include "frontend/configs/translation.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace fsdpc {

namespace {

constexpr llvm::StringLiteral byProduct = "the batch is ranks x micro_batch_size x gradient_accumulation_steps",
                              buckets = "units are sent as they are; --allgather_bucket_size and --reduce_bucket_size "
                                        "split them, in bytes",
                              planned =
                                  "the plan decides when parameters are held, and --max_inflight_all_gathers how many",
                              monitor = "out/train has --log and --tensorboard",
                              timers = "out/train has --profile and --memory_report",
                              master = "master weights, their optimizer state and sums over micro-steps are fp32",
                              fullWeights = "--save_model writes full weights",
                              checkpoints = "checkpoints are sharded and load on any number of ranks",
                              nvme = "there is no offload to NVMe",
                              pinned = "memory that the device reads is always pinned",
                              quantized = "nothing is quantized", noSection = "fsdpc does not have it";

constexpr KeyRow rows[] = {
    combines("train_batch_size", "--world_size, with the next two"),
    maps("train_micro_batch_size_per_gpu", "micro_batch_size"),
    maps("gradient_accumulation_steps", "gradient_accumulation_steps"),
    unread("managed_gradient_accumulation", byProduct),
    maps("gradient_clipping", "max_norm", "0=|0.0=|*"),
    trains("steps_per_print", "log_freq"),
    trains("dataloader_drop_last", "drop_last"),

    combines("optimizer.type", "--optimizer; Adam is adamw unless adam_w_mode is false"),
    unread("optimizer.legacy_fusion", "the optimizer runs unit by unit"),
    combines("optimizer.params.lr", "--lr"),
    combines("optimizer.params.betas", "--betas"),
    maps("optimizer.params.eps", "eps"),
    combines("optimizer.params.weight_decay", "--weight_decay, which is 0 by default in DeepSpeed"),
    maps("optimizer.params.momentum", "momentum"),
    maps("optimizer.params.dampening", "dampening"),
    maps("optimizer.params.nesterov", "nesterov", "true|false"),
    maps("optimizer.params.alpha", "alpha"),
    maps("optimizer.params.rho", "rho"),
    maps("optimizer.params.lr_decay", "lr_decay"),
    combines("optimizer.params.adam_w_mode", "--optimizer"),
    combines("optimizer.params.torch_adam", "--weight_decay, which is 0.01 by default in torch"),
    needs("optimizer.params.bias_correction", "true", "the moments of adam are always corrected"),
    needs("optimizer.params.amsgrad", "false", "there is no amsgrad"),
    unread("optimizer.params.fused", "kernels are chosen by the compiler"),
    unread("zero_allow_untested_optimizer", "every optimizer works with every strategy"),
    unread("zero_force_ds_cpu_optimizer", "--offload_params runs the optimizer on the host"),

    combines("scheduler.type", "--lr_scheduler: WarmupLR constant, WarmupDecayLR linear, WarmupCosineLR cosine"),
    needs("scheduler.params.warmup_min_lr", "0|0.0|auto", "warm-up starts at 0"),
    needs("scheduler.params.warmup_min_ratio", "0|0.0|auto", "warm-up starts at 0"),
    combines("scheduler.params.warmup_max_lr", "--lr"),
    combines("scheduler.params.warmup_num_steps", "--warmup_steps"),
    combines("scheduler.params.warmup_type", "linear; log is refused"),
    combines("scheduler.params.total_num_steps", "--steps"),
    combines("scheduler.params.cos_min_ratio", "--min_lr, with the lr"),
    needs("scheduler.params.last_batch_iteration", "-1", "out/train --resume goes on"),

    combines("bf16.enabled", "--mixed_precision bf16, and --reduce_dtype"),
    unread("bf16.immediate_grad_update", "gradients of a step are summed, then used"),
    unread("bf16.check_grad_overflow", "--nonfinite decides"),
    needs("bf16.bf16_master_weights_and_grads", "false", master),
    needs("bf16.bf16_optimizer_states", "false", master),
    combines("fp16.enabled", "--mixed_precision fp16, and --reduce_dtype"),
    unread("fp16.auto_cast", "--cast_forward_inputs is on"),
    combines("fp16.loss_scale", "--loss_scale, if fp16 is enabled"),
    combines("fp16.initial_scale_power", "--initial_scale_power, if fp16 is enabled"),
    combines("fp16.loss_scale_window", "--loss_scale_window, if fp16 is enabled"),
    combines("fp16.hysteresis", "--hysteresis, if fp16 is enabled"),
    combines("fp16.min_loss_scale", "--min_loss_scale, if fp16 is enabled"),
    needs("fp16.consecutive_hysteresis", "false", "hysteresis is filled when the scale grows"),
    needs("fp16.fp16_master_weights_and_grads", "false", master),
    needs("amp", "false", "give bf16 or fp16"),
    combines("torch_autocast.enabled", "--mixed_precision"),
    combines("torch_autocast.dtype", "--mixed_precision"),
    unread("torch_autocast.lower_precision_safe_modules", "ops compute in the type of --param_dtype; see PRECISION.md"),
    needs("data_types.grad_accum_dtype", "fp32", master),
    combines("communication_data_type", "--reduce_dtype"),
    unread("seq_parallel_communication_data_type", "only sequence parallelism reads it"),
    unread("prescale_gradients", "sums are divided once"),
    unread("gradient_predivide_factor", "sums are divided once"),
    needs("gradient_allreduce_op", "mean", "gradients are those of the mean; --loss_reduction sum is that of the sum"),
    unread("sparse_gradients", "--rows exchanges rows of tables"),
    needs("disable_allgather", "false", noSection),

    combines("zero_optimization.stage", "--strategy: 0 no_shard, 1 shard_optimizer, 2 shard_grad_op, 3 full_shard"),
    maps("zero_optimization.overlap_comm", "overlap_comm", "true|false"),
    maps("zero_optimization.offload_optimizer.device", "offload_optimizer", "cpu=true|none=|false=", nvme),
    unread("zero_optimization.offload_optimizer.pin_memory", pinned),
    unread("zero_optimization.offload_optimizer.nvme_path", nvme),
    unread("zero_optimization.offload_optimizer.buffer_count", planned),
    unread("zero_optimization.offload_optimizer.pipeline_read", nvme),
    unread("zero_optimization.offload_optimizer.pipeline_write", nvme),
    unread("zero_optimization.offload_optimizer.fast_init", planned),
    needs("zero_optimization.offload_optimizer.ratio", "1|1.0", "--offload_share offloads a part"),
    unread("zero_optimization.offload_optimizer.super_offload", planned),
    unread("zero_optimization.offload_optimizer.cpuadam_cores_perc", "out/train has --threads"),
    maps("zero_optimization.offload_param.device", "offload_params", "cpu=true|none=|false=", nvme),
    unread("zero_optimization.offload_param.pin_memory", pinned),
    unread("zero_optimization.offload_param.nvme_path", nvme),
    unread("zero_optimization.offload_param.buffer_count", planned),
    unread("zero_optimization.offload_param.buffer_size", planned),
    unread("zero_optimization.offload_param.max_in_cpu", planned),
    maps("zero_optimization.cpu_offload", "offload_optimizer", "true|false="),
    maps("zero_optimization.cpu_offload_param", "offload_params", "true|false="),
    unread("zero_optimization.cpu_offload_use_pin_memory", pinned),
    combines("zero_optimization.zero_hpz_partition_size", "--reshard_after_forward, groups of so many ranks"),
    combines("zero_optimization.mics_shard_size", "hybrid_shard with --data_parallel_shard_degree"),
    unread("zero_optimization.mics_hierarchical_params_gather", planned),
    needs("zero_optimization.zero_quantized_weights", "false", quantized),
    needs("zero_optimization.zero_quantized_nontrainable_weights", "false", quantized),
    needs("zero_optimization.zero_quantized_gradients", "false", quantized),
    needs("zero_optimization.zenflow", "false", "the optimizer waits for all gradients of a step"),
    unread("zero_optimization.contiguous_gradients", planned),
    unread("zero_optimization.reduce_scatter", "the strategy decides"),
    unread("zero_optimization.reduce_bucket_size", buckets),
    unread("zero_optimization.use_multi_rank_bucket_allreduce", buckets),
    unread("zero_optimization.allgather_partitions", buckets),
    unread("zero_optimization.allgather_bucket_size", buckets),
    unread("zero_optimization.allgather_sequential", buckets),
    unread("zero_optimization.compute_grad_norm", "--max_norm decides"),
    unread("zero_optimization.load_from_fp32_weights", checkpoints),
    unread("zero_optimization.elastic_checkpoint", checkpoints),
    unread("zero_optimization.pipeline_loading_checkpoint", checkpoints),
    unread("zero_optimization.sub_group_size", "the optimizer runs unit by unit"),
    unread("zero_optimization.prefetch_bucket_size", planned),
    unread("zero_optimization.param_persistence_threshold", planned),
    unread("zero_optimization.model_persistence_threshold", planned),
    unread("zero_optimization.max_live_parameters", planned),
    unread("zero_optimization.max_reuse_distance", planned),
    unread("zero_optimization.module_granularity_threshold", planned),
    unread("zero_optimization.leaf_module", "units are the blocks that the model repeats; --wrap_pattern names others"),
    unread("zero_optimization.use_all_reduce_for_fetch_params", planned),
    unread("zero_optimization.gather_16bit_weights_on_model_save", fullWeights),
    unread("zero_optimization.gather_fp16_weights_on_model_save", fullWeights),
    unread("zero_optimization.ignore_unused_parameters", "a parameter without a gradient is not updated"),
    unread("zero_optimization.legacy_stage1", planned),
    unread("zero_optimization.round_robin_gradients", planned),
    unread("zero_optimization.parameter_alignment", planned),
    unread("zero_optimization.memory_efficient_linear", planned),
    unread("zero_optimization.override_module_apply", "parameters are initialized by slices"),
    unread("zero_optimization.log_trace_cache_warnings", "there is no trace"),
    unread("zero_optimization.enable_sanity_checks", "every schedule is checked before it is emitted"),
    unread("zero_optimization.save_muon_momentum_buffer_in_memory", planned),

    unread("activation_checkpointing", "--activation_checkpointing decides what is recomputed; here it only sets how"),
    needs("tensor_parallel.autotp_size", "0|1", "there is no tensor parallelism; ranks split the batch alone"),
    unread("tensor_parallel.tp", "only tensor parallelism reads it"),
    needs("sequence_parallel_size", "1", "there is no sequence parallelism; ranks split the batch alone"),
    needs("expert_parallel", "false", "there is no expert parallelism; ranks split the batch alone"),
    needs("pipeline", "false", "there is no pipeline parallelism; ranks split the batch alone"),
    needs("use_data_before_expert_parallelism", "false", "there is no expert parallelism"),
    needs("elasticity", "false", "the number of ranks is fixed by --world_size; a checkpoint loads on another"),
    needs("compression_training", "false", quantized),
    needs("quantize_training", "false", quantized),
    needs("weight_quantization", "false", quantized),
    needs("sparse_attention", "false", "attention is that of the model"),
    needs("progressive_layer_drop", "false", "the model is trained as it is"),
    needs("curriculum_learning", "false", "data comes as it is in --train_data"),
    needs("data_efficiency", "false", "data comes as it is in --train_data"),
    needs("eigenvalue", "false", noSection),
    needs("hybrid_engine", "false", "programs train; they do not generate"),
    unread("compile", "the whole step is compiled"),
    unread("autotuning", "fsdpc estimate and --strategy auto search"),
    unread("aio", nvme),
    unread("checkpoint", checkpoints),
    unread("load_universal_checkpoint", checkpoints),
    unread("nebula", checkpoints),
    unread("datastates_ckpt", checkpoints),
    unread("tensorboard", monitor),
    unread("wandb", monitor),
    unread("csv_monitor", monitor),
    unread("comet", monitor),
    unread("comms_logger", timers),
    unread("flops_profiler", timers),
    unread("timers", timers),
    unread("wall_clock_breakdown", timers),
    unread("memory_breakdown", timers),
    unread("dump_state", "out/ holds the plan and every option"),
    unread("log_level", "out/train has --progress"),
    unread("disable_python_gc", "programs have no Python"),
};

/// People write sizes of a batch in DeepSpeed's words into a configuration of fsdpc, too, which then says what is
/// right.
bool recognizes(const Setting &root) {
  const bool hasSize = root.find("train_micro_batch_size_per_gpu") || root.find("train_batch_size");
  bool hasSection = false;
  for (llvm::StringRef key : {"optimizer", "scheduler", "fp16", "bf16"})
    if (const Setting *section = root.find(key))
      hasSection |= section->isMapping();
  return root.find("zero_optimization") || (hasSize && hasSection);
}

std::string canonicalKey(llvm::StringRef key) {
  llvm::StringRef leaf = key;
  if (leaf.consume_front("zero_optimization.stage3_"))
    return ("zero_optimization." + leaf).str();
  return llvm::StringSwitch<std::string>(key)
      .Case("bfloat16.enabled", "bf16.enabled")
      .Case("bfloat16", "bf16")
      .Default(key.str());
}

std::string unreadSection(const Setting &, llvm::StringRef) { return ""; }

void useStage(Translation &translation) {
  const llvm::StringRef key = "zero_optimization.stage", mics = "zero_optimization.mics_shard_size",
                        groups = "zero_optimization.zero_hpz_partition_size";
  const std::string strategy = zeroStrategy(translation.text(key));
  const int64_t shards = translation.integer(mics).value_or(-1);
  if (translation.find(key) && strategy.empty())
    translation.refuse(key, "is none of the stages 0, 1, 2, 3");
  else if (!translation.find(key))
    translation.useDefault(key, "0", Receiver::compiler, "strategy", "no_shard");
  else if (shards < 1)
    translation.compile(key, "strategy", strategy);
  if (shards >= 1) {
    translation.compile(mics, "strategy", "hybrid_shard");
    translation.compile(mics, "data_parallel_shard_degree", std::to_string(shards));
  }
  if (std::optional<int64_t> ranks = translation.integer(groups); ranks && *ranks > 1)
    translation.compile(groups, "reshard_after_forward", std::to_string(*ranks));
}

/// With all three sizes the file says for how many ranks it is.
void useBatch(Translation &translation) {
  const llvm::StringRef key = "train_batch_size", microKey = "train_micro_batch_size_per_gpu",
                        stepsKey = "gradient_accumulation_steps";
  if (translation.text(key) == "auto")
    return translation.note(key, byProduct);
  const std::optional<int64_t> all = translation.integer(key);
  if (!all)
    return;
  const auto sizeOf = [&](llvm::StringRef key) {
    return translation.text(key) == "auto" ? std::nullopt : translation.integer(key);
  };
  const std::optional<int64_t> micro = sizeOf(microKey), steps = sizeOf(stepsKey);
  if (!micro || !steps)
    return translation.refuse(key, "the batch is ranks x train_micro_batch_size_per_gpu x "
                                   "gradient_accumulation_steps; give those two, in place of it or with it");
  if (*micro < 1 || *steps < 1 || *all % *micro != 0 || *all / *micro % *steps != 0)
    return translation.refuse(key, "is no multiple of train_micro_batch_size_per_gpu x gradient_accumulation_steps");
  translation.compile(key, "world_size", std::to_string(*all / *micro / *steps));
}

std::string optimizerOf(Translation &translation) {
  const std::string type = translation.text("optimizer.type");
  const bool isDecoupled = translation.text("optimizer.params.adam_w_mode") != "false";
  if (type == "adam")
    return isDecoupled ? "adamw" : "adam";
  return llvm::StringSwitch<std::string>(type)
      .Cases("adamw", "sgd", "adadelta", "adagrad", "rmsprop", "lion", type)
      .Default("");
}

void useOptimizer(Translation &translation) {
  const llvm::StringRef key = "optimizer.type", betas = "optimizer.params.betas",
                        decay = "optimizer.params.weight_decay";
  if (!translation.find(key))
    return;
  const std::string optimizer = optimizerOf(translation);
  if (optimizer.empty())
    return translation.refuse(key, "there are Adam, AdamW, SGD, Adadelta, Adagrad, RMSprop and Lion", "optimizer");
  translation.compile(key, "optimizer", optimizer);
  translation.useList(betas, "betas");
  if (translation.find(decay))
    translation.useValue(decay, "weight_decay");
  else if (optimizer == "adamw" && !translation.isOn("optimizer.params.torch_adam"))
    translation.useDefault(decay, "0", Receiver::compiler, "weight_decay", "0");
}

/// The scheduler sets the learning rate, whatever the optimizer has. Returns it if the file says it.
std::optional<double> useRate(Translation &translation) {
  const llvm::StringRef optimizers = "optimizer.params.lr", schedulers = "scheduler.params.warmup_max_lr";
  const bool isScheduled = translation.find(schedulers) && translation.text(schedulers) != "auto";
  const llvm::StringRef key = isScheduled ? schedulers : optimizers;
  if (isScheduled && translation.find(optimizers))
    translation.note(optimizers, "warmup_max_lr decides");
  if (!translation.find(key))
    return std::nullopt;
  translation.useValue(key, "lr");
  return translation.text(key) == "auto" ? std::nullopt : translation.real(key);
}

void useSchedule(Translation &translation) {
  const llvm::StringRef key = "scheduler.type", warmup = "scheduler.params.warmup_num_steps",
                        shape = "scheduler.params.warmup_type", steps = "scheduler.params.total_num_steps",
                        ratio = "scheduler.params.cos_min_ratio";
  const std::optional<double> rate = useRate(translation);
  if (!translation.find(key))
    return;
  const std::string scheduler = llvm::StringSwitch<std::string>(translation.text(key))
                                    .Case("warmuplr", "constant")
                                    .Case("warmupdecaylr", "linear")
                                    .Case("warmupcosinelr", "cosine")
                                    .Default("");
  if (scheduler.empty())
    return translation.refuse(key, "there are WarmupLR, WarmupDecayLR and WarmupCosineLR");
  translation.use(key, Receiver::program, "lr_scheduler", scheduler);
  const bool isLinear = translation.text(shape) == "linear" || translation.text(warmup) == "auto";
  if (!isLinear && translation.text(warmup) != "0")
    translation.refuse(translation.find(shape) ? shape : key,
                       "DeepSpeed warms up along a logarithm unless \"warmup_type\" is \"linear\"; here it is linear");
  else if (translation.find(warmup))
    translation.useValue(warmup, "warmup_steps", Receiver::program);
  else
    translation.useDefault(warmup, "1000", Receiver::program, "warmup_steps", "1000");
  if (translation.find(steps))
    translation.useValue(steps, "steps", Receiver::program);
  if (scheduler != "cosine")
    return;
  const double least = translation.find(ratio) ? translation.real(ratio).value_or(0) : 0.0001;
  if (!rate)
    return translation.refuse(key, "its cos_min_ratio is a share of the lr, which has to be in the file");
  translation.useDefault(ratio, numberText(least), Receiver::program, "min_lr", numberText(least * *rate));
}

void usePrecision(Translation &translation) {
  for (llvm::StringRef type : {"bf16", "fp16"}) {
    const std::string key = (type + ".enabled").str();
    if (translation.text(key) == "auto")
      translation.leaveOpen(key, "mixed_precision");
    if (!translation.isOn(key))
      continue;
    translation.compile(key, "mixed_precision", type);
    if (!translation.find("communication_data_type"))
      translation.compile(key, "reduce_dtype", type);
  }
  if (translation.isOn("torch_autocast.enabled")) {
    const llvm::StringRef key = "torch_autocast.dtype";
    const std::string type = translation.text(key);
    if (translation.find(key))
      translation.compile(key, "mixed_precision", llvm::StringRef(type).contains("bf") ? "bf16" : "fp16");
    else
      translation.useDefault(key, "bfloat16", Receiver::compiler, "mixed_precision", "bf16");
  }
  if (translation.find("communication_data_type"))
    translation.useValue("communication_data_type", "reduce_dtype");
  for (llvm::StringRef name :
       {"loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis", "min_loss_scale"})
    if (const std::string key = ("fp16." + name).str(); translation.find(key)) {
      if (translation.isOn("fp16.enabled"))
        translation.useValue(key, name);
      else
        translation.note(key, "fp16 is not enabled");
    }
}

llvm::Error combine(Translation &translation) {
  useStage(translation);
  useBatch(translation);
  useOptimizer(translation);
  useSchedule(translation);
  usePrecision(translation);
  return llvm::Error::success();
}

llvm::ArrayRef<KeyRow> allRows() { return rows; }

} // namespace

const Trainer deepSpeed = {"DeepSpeed", recognizes, allRows, canonicalKey, unreadSection, combine};

std::string zeroStrategy(llvm::StringRef stage) {
  return llvm::StringSwitch<std::string>(stage)
      .Case("0", "no_shard")
      .Case("1", "shard_optimizer")
      .Case("2", "shard_grad_op")
      .Case("3", "full_shard")
      .Default("");
}

} // namespace fsdpc
