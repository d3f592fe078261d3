// Names that other trainers have for options of the compiler and of the program.
#pragma once

#include <string>
#include <string_view>

namespace fsdpc::rt {

/// `compiled`: what to give to fsdpc; `started`: what to give to the program. "" where there is no such option.
struct FamiliarOption {
  std::string_view name, compiled, started;
};

/// As Accelerate, transformers, Axolotl, torchtitan, DeepSpeed and llm.c spell them; and the own options that people
/// give to the other of both.
inline constexpr FamiliarOption familiarOptions[] = {
    {"learning_rate", "--lr X", "--lr X"},
    {"batch", "--micro_batch_size B", ""},
    {"batch_size", "--micro_batch_size B, per rank and micro-step", ""},
    {"per_device_train_batch_size", "--micro_batch_size B", ""},
    {"train_micro_batch_size_per_gpu", "--micro_batch_size B", ""},
    {"local_batch_size", "--micro_batch_size B", ""},
    {"global_batch_size", "--micro_batch_size times --gradient_accumulation_steps times --world_size", ""},
    {"train_batch_size", "--micro_batch_size times --gradient_accumulation_steps times --world_size", ""},
    {"grad_accum_steps", "--gradient_accumulation_steps K", ""},
    {"bf16", "--mixed_precision bf16", ""},
    {"fp16", "--mixed_precision fp16", ""},
    {"dtype", "--param_dtype bf16, or --mixed_precision bf16", ""},
    {"gradient_clipping", "--max_norm X", ""},
    {"max_grad_norm", "--max_norm X", ""},
    {"grad_clip", "--max_norm X", ""},
    {"num_processes", "--world_size N", "mpirun -n N"},
    {"nproc_per_node", "--world_size N", "mpirun -n N"},
    {"num_gpus", "--world_size N", "mpirun -n N"},
    {"gradient_checkpointing", "--activation_checkpointing full", ""},
    {"recompute", "--activation_checkpointing full", ""},
    {"zero_stage", "--strategy full_shard (zero3), shard_grad_op (zero2) or shard_optimizer (zero1)", ""},
    {"cpu_offload", "--offload_params", ""},
    {"lora_r", "--lora 'rank=N,alpha=X,targets=REGEX'", ""},
    {"lora_rank", "--lora 'rank=N,alpha=X,targets=REGEX'", ""},
    {"lora_alpha", "--lora 'rank=N,alpha=X,targets=REGEX'", ""},
    {"ema", "--ema_decay X", ""},
    {"loss_fn", "--loss cross_entropy|nll|mse|l1|bce_with_logits", ""},
    {"output_dir", "-o OUT", "--save_model or --checkpoint_folder"},
    {"num_train_epochs", "", "--epochs N"},
    {"num_epochs", "", "--epochs N"},
    {"max_steps", "", "--steps N"},
    {"train_steps", "", "--steps N"},
    {"lr_scheduler_type", "", "--lr_scheduler cosine"},
    {"warmup_ratio", "", "--warmup_ratio X"},
    {"logging_steps", "", "--log_freq N"},
    {"eval_interval", "", "--eval_every N"},
    {"eval_steps_interval", "", "--eval_every N"},
    {"save_steps", "", "--checkpoint_interval N"},
    {"save_interval", "", "--checkpoint_interval N"},
    {"checkpoint_every", "", "--checkpoint_interval N"},
    {"checkpoint_dir", "", "--checkpoint_folder FOLDER"},
    {"save_total_limit", "", "--keep_latest_k K"},
    {"resume_from_checkpoint", "", "--resume PATH"},
    {"early_stopping_patience", "", "--early_stopping N"},
    {"patience", "", "--early_stopping N"},
    {"sample_packing", "--separate_documents", ""},
    {"packing", "--separate_documents", "--sample_packing"},
    {"group_by_length", "--separate_documents", "--sample_packing"},
    {"report_to", "", "--tensorboard FOLDER"},
    {"logging_dir", "", "--tensorboard FOLDER"},
    {"dataset", "", "--train_data GLOB"},
    {"model_name_or_path", "MODEL.onnx, the first word", "--load_model FOLDER"},
    {"pretrained", "", "--load_model FOLDER"},
    {"steps", "", "--steps N"},
    {"epochs", "", "--epochs N"},
    {"train_data", "", "--train_data GLOB"},
    {"val_data", "", "--val_data GLOB"},
    {"load_model", "", "--load_model PATH"},
    {"save_model", "", "--save_model PATH"},
    {"lr_scheduler", "", "--lr_scheduler cosine"},
    {"warmup_steps", "", "--warmup_steps N"},
    {"checkpoint_folder", "", "--checkpoint_folder FOLDER"},
    {"resume", "", "--resume auto"},
    {"log", "", "--log FILE.jsonl"},
    {"report", "", "--report F.html"},
    {"tensorboard", "", "--tensorboard FOLDER"},
    {"world_size", "--world_size N", ""},
    {"micro_batch_size", "--micro_batch_size B", ""},
    {"gradient_accumulation_steps", "--gradient_accumulation_steps K", ""},
    {"strategy", "--strategy full_shard", ""},
    {"optimizer", "--optimizer adamw", ""},
    {"loss", "--loss cross_entropy", ""},
    {"max_norm", "--max_norm X", ""},
    {"mixed_precision", "--mixed_precision bf16", ""},
    {"activation_checkpointing", "--activation_checkpointing full", ""},
};

/// What to say of an unknown option, for the compiler or for a program: "; that is --lr X here", "; that is for the
/// program: out/train --steps N", or "" for a name that is not familiar. `name`: in lower case with `_`.
inline std::string familiarOption(std::string_view name, bool isCompiler) {
  for (const FamiliarOption &option : familiarOptions) {
    if (option.name != name)
      continue;
    const std::string own(isCompiler ? option.compiled : option.started);
    if (!own.empty())
      return "; that is " + own + " here";
    return isCompiler ? "; that is for the program: OUT/train " + std::string(option.started)
                      : "; that is chosen when compiling: fsdpc MODEL.onnx " + std::string(option.compiled);
  }
  return "";
}

} // namespace fsdpc::rt
