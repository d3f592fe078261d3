// The keys of Axolotl: src/axolotl/utils/schemas/*.py.
#include "frontend/configs/axolotl_keys.h"
#include "frontend/configs/fsdp_section.h"

namespace fsdpc {

namespace {

constexpr llvm::StringLiteral data = "data is given to the program by --train_data; fsdpc.prepare makes token files",
                              full = fullPrecisionReason, quantized = quantizedReason,
                              oneLoss = "the loss is that of the labels";

constexpr KeyRow rows[] = {
    unread("base_model", "the model is MODEL.onnx; out/train --load_model FOLDER starts from its weights"),
    maps("micro_batch_size", "micro_batch_size", "", "", "1"),
    maps("gradient_accumulation_steps", "gradient_accumulation_steps"),
    combines("batch_size", "--gradient_accumulation_steps, with micro_batch_size"),
    combines("num_epochs", "--epochs, if there is no max_steps; an integer"),
    trains("max_steps", "steps", "-1=|0=|*"),
    trains("logging_steps", "log_freq"),
    maps("seed", "seed"),
    maps("reinit_weights", "init", "true=default|false="),

    maps("learning_rate", "lr"),
    maps("optimizer", "optimizer",
         "adamw|adamw_torch=adamw|adamw_torch_fused=adamw|adamw_hf=adamw|adamw_apex_fused=adamw|adamw_torch_npu_fused="
         "adamw|"
         "adamw_torch_xla=adamw|sgd|adagrad|rmsprop|lion|lion_32bit=lion|adam",
         "fsdpc has AdamW, SGD, Adagrad, RMSprop and Lion, with their state in fp32", "adamw_torch_fused"),
    maps("weight_decay", "weight_decay", "", "", "0"),
    maps("max_grad_norm", "max_norm", "0=|0.0=|*", "", "1.0"),
    combines("adam_beta1", "--betas"),
    combines("adam_beta2", "--betas"),
    maps("adam_epsilon", "eps"),
    combines("lr_scheduler", "--lr_scheduler: cosine, linear, constant, constant_with_warmup"),
    combines("warmup_steps", "--warmup_steps"),
    combines("warmup_ratio", "--warmup_ratio, or with max_steps --warmup_steps"),
    combines("cosine_min_lr_ratio", "--min_lr, with learning_rate"),
    needs("cosine_constant_lr_ratio", "0|0.0", "a cosine reaches its end with the last step"),
    combines("curriculum_sampling", "--shuffle, which is on without it"),
    combines("sample_packing", "--separate_documents, and --sample_packing of the program"),
    unread("group_by_length", "every row has the compiled length, which --sample_packing fills"),
    trains("dataloader_drop_last", "drop_last", "true|false"),
    trains("early_stopping_patience", "early_stopping"),
    combines("output_dir", "--save_model, and with save_steps --checkpoint_folder"),
    combines("save_steps", "--checkpoint_interval"),
    combines("save_total_limit", "--keep_latest_k"),

    combines("bf16", "--mixed_precision bf16, and with FSDP --reduce_dtype"),
    combines("fp16", "--mixed_precision fp16, and with FSDP --reduce_dtype"),
    maps("tf32", "allow_tf32", "true|false=|auto="),
    needs("fp8", "false", "programs compute in fp32, bf16 or fp16", "mixed_precision"),
    needs("bfloat16", "false", full, "mixed_precision"),
    needs("float16", "false", full, "mixed_precision"),
    combines("gradient_checkpointing", "--activation_checkpointing full; offload: --offload_activations too"),
    maps("activation_offloading", "offload_activations", "true|false="),
    unread("gradient_checkpointing_kwargs", "backward recomputes what its program says"),

    combines("adapter", "--lora"),
    combines("lora_r", "--lora rank"),
    combines("lora_alpha", "--lora alpha"),
    combines("lora_dropout", "--lora dropout"),
    combines("lora_target_modules", "--lora targets"),
    combines("lora_target_linear", "--lora targets=all_linear"),
    combines("lora_modules_to_save", "--trainable, of the parameters below the modules"),
    combines("lora_model_dir", "--load_adapters"),
    combines("peft_use_rslora", "--lora rslora=on"),
    unread("lora_fan_in_fan_out", "the layout of a weight is that of the model"),
    combines("unfrozen_parameters", "--trainable, of names that begin so"),

    combines("fsdp", "--strategy: full_shard, shard_grad_op, ..., offload"),
    combines("fsdp_version", "as in fsdp_config"),
    combines("deepspeed", "the options of DeepSpeed's file, or of keys and values"),
    combines("dp_replicate_size", "--data_parallel_replicate_degree"),
    combines("dp_shard_size", "--data_parallel_shard_degree"),
    unread("fsdp_final_state_dict_type", "--save_model writes full weights"),
    unread("fsdp_config.limit_all_gathers", "--max_inflight_all_gathers limits them"),
    maps("fsdp_config.cpu_offload_params", "offload_params", "true|false="),
};

constexpr KeyGroup groups[] = {
    {needs("", "false", quantized),
     "load_in_8bit load_in_4bit gptq qat quantization quantize_moe_experts model_quantization_config use_onebitllms "
     "bnb_config_kwargs"},
    {needs("", "false", "only lora adapters are trained in that way"),
     "peft_use_dora relora loraplus_lr_ratio loraplus_lr_embedding peft_layers_to_transform peft_layers_pattern "
     "lora_target_parameters lora_rank_pattern lora_alpha_pattern peft_layer_replication peft_trainable_token_indices "
     "peft_init_lora_weights peft"},
    {needs("", "false", oneLoss),
     "rl reward_model process_reward_model use_eaft use_dynamic_finetuning neftune_noise_alpha noisy_embedding_alpha "
     "orpo_alpha trl kto_desirable_weight ebft num_labels scaling_softmax"},
    {needs("", "1", "ranks split the batch alone; there is no tensor or sequence parallelism"),
     "tensor_parallel_size context_parallel_size sequence_parallel_degree"},
    {needs("", "false", "one learning rate schedule is for all; --group gives parameters their own learning rate"),
     "lr_scheduler_kwargs lr_quadratic_warmup lr_groups embedding_lr embedding_lr_scale lr_div_factor "
     "jagged_restart_steps jagged_restart_warmup_steps jagged_restart_anneal_steps lisa_n_layers lisa_step_interval "
     "optim_args optim_target_modules adam_beta3 adam_epsilon2"},
    {needs("", "false", "the batch is compiled in"), "auto_find_batch_size"},
    {needs("", "false", "the model is trained as it is exported"),
     "use_pose freeze_mm_modules fix_untrained_tokens shrink_embeddings layer_offloading llama4_linearized_experts "
     "overrides_of_model_config"},

    {unread("", data),
     "datasets test_datasets pretraining_dataset val_set_size dataset_prepared_path dataset_processes dataset_num_proc "
     "dataset_shard_num dataset_shard_idx dataset_exact_deduplication dataset_keep_in_memory skip_prepare_dataset "
     "num_dataset_shards_to_save push_dataset_to_hub shuffle_merged_datasets shuffle_before_merging_datasets "
     "train_on_inputs sequence_len eval_sequence_len excess_length_strategy min_sample_len "
     "max_prompt_len max_packed_sequence_len sample_packing_group_size sample_packing_bin_size "
     "sample_packing_sequentially sample_packing_mp_start_method sample_packing_eff_est eval_sample_packing "
     "pad_to_sequence_len pad_to_multiple_of multipack_real_batches batch_flattening pretrain_multipack_buffer_size "
     "pretrain_multipack_attn pretraining_sample_concatenation streaming streaming_multipack_buffer_size "
     "dataloader_pin_memory dataloader_num_workers dataloader_prefetch_factor remove_unused_columns chat_template "
     "chat_template_jinja chat_template_kwargs eot_tokens default_system_message preprocess_iterable role_boundaries "
     "image_size image_resize_algorithm is_preprocess"},
    {unread("", "text becomes tokens before it is --train_data"),
     "tokenizer_type tokenizer_config tokenizer_use_fast tokenizer_legacy tokenizer_use_mistral_common "
     "tokenizer_save_jinja_files special_tokens tokens added_tokens_overrides processor_type processor_kwargs"},
    {unread("", "the exported model says what it is"),
     "model_type type_of_model base_model_config cls_model_config revision_of_model trust_remote_code trainer_cls "
     "overrides_of_model_kwargs is_falcon_derived_model is_llama_derived_model is_mistral_derived_model "
     "is_qwen_derived_model resize_token_embeddings_to_32x mean_resizing_embeddings rope_scaling "
     "embeddings_skip_upcast do_causal_lm_eval use_kernels experts_implementation"},
    {unread("", "kernels are chosen by the compiler"),
     "xformers_attention sdp_attention flex_attention flex_attn_compile_kwargs flash_attention "
     "flash_attn_cross_entropy "
     "flash_attn_fuse_mlp flash_attn_fuse_qkv flash_attn_rms_norm flash_optimum sage_attention eager_attention "
     "attn_implementation s2_attention lora_mlp_kernel lora_qkv_kernel lora_o_kernel lora_embedding_kernel "
     "chunked_cross_entropy chunked_cross_entropy_num_chunks tiled_mlp tiled_mlp_num_shards "
     "tiled_mlp_use_original_mlp torch_compile torch_compile_backend torch_compile_mode torch_compile_options "
     "deepcompile plugins liger_rope liger_rms_norm liger_glu_activation liger_swiglu liger_layer_norm "
     "liger_cross_entropy liger_fused_linear_cross_entropy cut_cross_entropy selective_checkpointing fp32_norms "
     "fp32_norm_classes fp8_config fp8_enable_fsdp_float8_all_gather float32 sdpa_varlen fused_attn_kernel"},
    {unread("", "out/train evaluates --val_data as --eval_every says"),
     "eval_batch_size eval_steps evals_per_epoch eval_strategy evaluation_strategy eval_table_size eval_max_new_tokens "
     "eval_table_max_new_tokens eval_causal_lm_metrics do_bench_eval bench_dataset bench_split metric_for_best_model "
     "greater_is_better load_best_model_at_end generate_samples num_generation_samples generation_max_new_tokens "
     "generation_temperature generation_top_p generation_top_k generation_prompt_ratio generation_do_sample"},
    {unread(
         "",
         "out/train saves with --checkpoint_folder, --checkpoint_interval and --save_model, and goes on with --resume"),
     "saves_per_epoch save_strategy save_first_step save_only_model save_safetensors dynamic_checkpoint "
     "resume_from_checkpoint auto_resume_from_checkpoints"},
    {unread("", "out/train has --log and --tensorboard"),
     "wandb_project wandb_entity wandb_watch wandb_name wandb_run_id wandb_mode wandb_log_model use_wandb use_mlflow "
     "mlflow_tracking_uri mlflow_experiment_name mlflow_run_name hf_mlflow_log_artifacts use_comet comet_api_key "
     "comet_workspace comet_project_name comet_experiment_key comet_mode comet_online comet_experiment_config "
     "use_trackio trackio_project_name trackio_run_name trackio_space_id use_otel_metrics otel_metrics_host "
     "otel_metrics_port use_tensorboard include_tokens_per_second include_tkps profiler_steps profiler_steps_start "
     "gradio_title gradio_share gradio_server_name gradio_server_port gradio_max_new_tokens gradio_temperature"},
    {unread("", "fsdpc talks to no hub"), "hub_model_id hub_strategy hub_revision hf_use_auth_token"},
    {unread("", "mpirun, srun and the plan know the machine"),
     "device device_map world_size local_rank ddp ddp_timeout ddp_bucket_cap_mb ddp_broadcast_buffers "
     "ddp_find_unused_parameters max_memory gpu_memory_limit low_cpu_mem_usage gc_steps gc_collect_steps "
     "torch_empty_cache_steps lora_on_cpu qlora_sharded_model_loading use_ray ray_run_name ray_num_workers "
     "resources_per_worker accelerator_config experimental_skip_move_to_device strict debug "
     "peft_autocast_adapter_dtype peft_ensure_weight_tying axolotl_config_path total_num_tokens "
     "total_supervised_tokens"},
    {unread("", "out/train has --nonfinite"), "loss_watchdog_threshold loss_watchdog_patience"},
    {unread("", "no optimizer or adapter here reads it"),
     "torchdistx_path dion_lr dion_momentum dion_rank_fraction dion_rank_multiple_of gptq_groupsize gptq_model_v1 "
     "merge_lora merge_method lisa_layers_attribute relora_prune_ratio relora_prune_method relora_cpu_offload vllm"},
};

} // namespace

llvm::ArrayRef<KeyRow> axolotlRows() {
  static const KeyTable table({rows, fsdpRows()}, groups);
  return table.rows();
}

} // namespace fsdpc
