// `accelerate config` and `accelerate launch --config_file`: src/accelerate/commands/config/config_args.py and
// launch.py.
#include "frontend/configs/fsdp_section.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace fsdpc {

namespace {

constexpr llvm::StringLiteral hosts = "mpirun and srun know the hosts and connect the ranks",
                              tpu = "there are no programs for TPUs",
                              sageMaker = "fsdpc starts no job of SageMaker; fsdpc run launches by mpirun or srun",
                              deepSpeedHosts = "give hosts to mpirun or srun", nvme = "there is no offload to NVMe";

constexpr KeyRow rows[] = {
    needs("compute_environment", "local_machine|0", sageMaker),
    combines("distributed_type", "--strategy: FSDP and DEEPSPEED by their sections, MULTI_GPU and MULTI_CPU no_shard"),
    combines("num_processes", "--world_size"),
    combines("num_machines", "--ranks_per_host, with num_processes"),
    combines("mixed_precision", "--mixed_precision, and with FSDP --reduce_dtype of the same type"),
    maps("fp16", "mixed_precision", "true=fp16|false="),
    maps("use_cpu", "target", "true=cpu|false="),
    needs("downcast_bf16", "false", tpu),
    maps("gradient_accumulation_steps", "gradient_accumulation_steps"),
    unread("machine_rank", hosts),
    unread("main_process_ip", hosts),
    unread("main_process_port", hosts),
    unread("main_training_function", "a program has one"),
    unread("rdzv_backend", hosts),
    unread("same_network", hosts),
    unread("gpu_ids", "CUDA_VISIBLE_DEVICES selects GPUs"),
    unread("debug", "the program's --debug_collectives compares collectives"),
    unread("enable_cpu_affinity", "mpirun and srun bind ranks to cores"),
    unread("use_mps_device", "use_cpu, or a machine with an NVIDIA GPU, decides"),
    unread("ipex_config", "fsdpc calls oneDNN itself"),
    unread("dynamo_config", "the whole step is compiled"),
    unread("dynamo_backend", "the whole step is compiled"),
    launches("mpirun_config.mpirun_hostfile", "--hostfile"),
    unread("mpirun_config.mpirun_ccl", "gradients are sent by MPI"),
    unread("tpu_name", tpu),
    unread("tpu_zone", tpu),
    unread("tpu_use_cluster", tpu),
    unread("tpu_use_sudo", tpu),
    unread("tpu_vm", tpu),
    unread("tpu_env", tpu),
    unread("commands", tpu),
    unread("command_file", tpu),
    unread("fp8_config", "only mixed_precision fp8 reads it"),
    unread("megatron_lm_config", "only distributed_type MEGATRON_LM reads it"),
    combines("parallelism_config.dp_replicate_size", "--data_parallel_replicate_degree"),
    combines("parallelism_config.dp_shard_size", "--data_parallel_shard_degree"),
    needs("parallelism_config.tp_size", "1", "there is no tensor parallelism; ranks split the batch alone"),
    needs("parallelism_config.cp_size", "1", "there is no context parallelism; ranks split the batch alone"),
    needs("parallelism_config.sp_size", "1", "there is no sequence parallelism; ranks split the batch alone"),
    unread("parallelism_config.cp_backend", "only context parallelism reads it"),
    unread("parallelism_config.cp_comm_strategy", "only context parallelism reads it"),
    unread("parallelism_config.sp_backend", "only sequence parallelism reads it"),
    unread("parallelism_config.sp_seq_length", "only sequence parallelism reads it"),
    unread("parallelism_config.sp_seq_length_is_variable", "only sequence parallelism reads it"),
    unread("parallelism_config.sp_attn_implementation", "only sequence parallelism reads it"),
    combines("deepspeed_config.zero_stage", "--strategy: 0 no_shard, 1 shard_optimizer, 2 shard_grad_op, 3 full_shard"),
    maps("deepspeed_config.gradient_accumulation_steps", "gradient_accumulation_steps"),
    combines("deepspeed_config.deepspeed_config_file", "the options of DeepSpeed's file"),
    maps("deepspeed_config.gradient_clipping", "max_norm", "0=|0.0=|*"),
    maps("deepspeed_config.offload_optimizer_device", "offload_optimizer", "cpu=true|none=|false=", nvme),
    maps("deepspeed_config.offload_param_device", "offload_params", "cpu=true|none=|false=", nvme),
    unread("deepspeed_config.offload_optimizer_nvme_path", nvme),
    unread("deepspeed_config.offload_param_nvme_path", nvme),
    unread("deepspeed_config.zero3_init_flag", "a rank reads its own slice of every weight"),
    unread("deepspeed_config.zero3_save_16bit_model", "--save_model writes full weights"),
    unread("deepspeed_config.deepspeed_multinode_launcher", deepSpeedHosts),
    launches("deepspeed_config.deepspeed_hostfile", "--hostfile"),
    unread("deepspeed_config.deepspeed_inclusion_filter", deepSpeedHosts),
    unread("deepspeed_config.deepspeed_exclusion_filter", deepSpeedHosts),
    unread("deepspeed_config.deepspeed_moe_layer_cls_names", "units are the blocks that the model repeats"),
    unread("ec2_instance_type", sageMaker),
    unread("iam_role_name", sageMaker),
    unread("image_uri", sageMaker),
    unread("profile", sageMaker),
    unread("region", sageMaker),
    unread("base_job_name", sageMaker),
    unread("pytorch_version", sageMaker),
    unread("transformers_version", sageMaker),
    unread("py_version", sageMaker),
    unread("sagemaker_inputs_file", sageMaker),
    unread("sagemaker_metrics_file", sageMaker),
    unread("additional_args", sageMaker),
};

bool recognizes(const Setting &root) {
  return root.find("distributed_type") || root.find("compute_environment") ||
         (root.find("fsdp_config") && root.find("num_processes"));
}

std::string canonicalKey(llvm::StringRef key) {
  llvm::StringRef leaf = key;
  if (leaf.consume_front("parallelism_config."))
    return "parallelism_config." + (leaf.consume_front("parallelism_config_") ? leaf : leaf).str();
  return canonicalFsdpKey(key);
}

std::string typeOf(const Setting &root) {
  const Setting *type = root.find("distributed_type");
  return type ? canonicalValue(type->text) : root.find("fsdp_config") ? "fsdp" : "false";
}

std::string unreadSection(const Setting &root, llvm::StringRef section) {
  const std::string type = typeOf(root);
  if ((section == "fsdp_config" && type != "fsdp") || (section == "deepspeed_config" && type != "deepspeed"))
    return "distributed_type is another";
  return "";
}

RanksOfFile ranksOf(Translation &translation) {
  RanksOfFile ranks;
  const int64_t machines = std::max<int64_t>(translation.integer("num_machines").value_or(1), 1);
  ranks.all = translation.integer("num_processes");
  if (ranks.all && *ranks.all < 1)
    ranks.all = std::nullopt; // -1: as many as the launcher starts
  if (ranks.all)
    translation.compile("num_processes", "world_size", std::to_string(*ranks.all));
  else if (translation.find("num_processes"))
    translation.leaveOpen("num_processes", "world_size");
  if (ranks.all && *ranks.all % machines == 0)
    ranks.perMachine = *ranks.all / machines;
  if (machines > 1 && ranks.perMachine)
    translation.compile("num_machines", "ranks_per_host", std::to_string(*ranks.perMachine));
  else if (machines > 1)
    translation.leaveOpen("num_machines", "ranks_per_host");
  ranks.replicateKey = "parallelism_config.dp_replicate_size";
  ranks.shardKey = "parallelism_config.dp_shard_size";
  ranks.replicateDegree = translation.integer(ranks.replicateKey).value_or(1);
  ranks.shardDegree = translation.integer(ranks.shardKey).value_or(1);
  return ranks;
}

void useStage(Translation &translation) {
  const llvm::StringRef key = "deepspeed_config.zero_stage";
  const std::string strategy = zeroStrategy(translation.text(key));
  if (!translation.find(key))
    translation.useDefault(key, "2", Receiver::compiler, "strategy", "shard_grad_op");
  else if (strategy.empty())
    translation.refuse(key, "is none of the stages 0, 1, 2, 3");
  else
    translation.compile(key, "strategy", strategy);
}

/// DeepSpeed's own file has the rest.
llvm::Error useDeepSpeed(Translation &translation) {
  const llvm::StringRef key = "deepspeed_config.deepspeed_config_file";
  const Setting *file = translation.find(key);
  if (!file || translation.text(key) == "none") {
    useStage(translation);
    return llvm::Error::success();
  }
  llvm::Expected<Setting> root = readSettings(translation.besides(file->text));
  return root ? translation.include(key, deepSpeed, *root) : root.takeError();
}

llvm::Error useType(Translation &translation, const RanksOfFile &ranks) {
  const llvm::StringRef key = "distributed_type";
  const std::string type = translation.find(key) ? translation.text(key) : "fsdp";
  if (type == "fsdp")
    combineFsdp(translation, ranks);
  else if (type == "deepspeed")
    return useDeepSpeed(translation);
  else if (type == "multi_gpu" || type == "multi_cpu")
    translation.compile(key, "strategy", "no_shard");
  else if (type == "megatron_lm")
    translation.refuse(key, "there is no tensor or pipeline parallelism; ranks split the batch alone");
  else if (type != "false")
    translation.refuse(key, "programs are for CPUs and NVIDIA GPUs");
  return llvm::Error::success();
}

/// FSDP of Accelerate sums gradients in the type that it computes in.
void usePrecision(Translation &translation) {
  const llvm::StringRef key = "mixed_precision";
  const std::string type = translation.text(key);
  if (type.empty() || type == "false")
    return;
  if (type != "bf16" && type != "fp16")
    return translation.refuse(
        key, type == "fp8" ? "programs compute in fp32, bf16 or fp16" : "is none of no, fp16, bf16", "mixed_precision");
  const std::string distributed = translation.text("distributed_type");
  translation.compile(key, "mixed_precision", type);
  if (distributed == "fsdp" || distributed == "deepspeed")
    translation.compile(key, "reduce_dtype", type);
  if (type == "fp16" && distributed != "deepspeed")
    useTorchGradScaler(translation, key);
}

llvm::Error combine(Translation &translation) {
  const RanksOfFile ranks = ranksOf(translation);
  if (llvm::Error error = useType(translation, ranks))
    return error;
  usePrecision(translation);
  return llvm::Error::success();
}

llvm::ArrayRef<KeyRow> allRows() {
  static const KeyTable table({rows, fsdpRows()}, {});
  return table.rows();
}

} // namespace

const Trainer accelerate = {"Accelerate", recognizes, allRows, canonicalKey, unreadSection, combine};

} // namespace fsdpc
