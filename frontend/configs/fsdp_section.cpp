#include "frontend/configs/fsdp_section.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace fsdpc {

namespace {

constexpr llvm::StringLiteral storage = "a rank reads its own slice of every weight";

constexpr KeyRow rows[] = {
    combines("fsdp_config.version", "in 2, reshard_after_forward decides, in 1 sharding_strategy"),
    combines("fsdp_config.sharding_strategy", "--strategy"),
    combines("fsdp_config.reshard_after_forward", "--strategy: true full_shard, false shard_grad_op, or its name"),
    maps("fsdp_config.offload_params", "offload_params", "true|false="),
    unread("fsdp_config.cpu_offload_pin_memory", "memory that the device reads is always pinned"),
    combines("fsdp_config.auto_wrap_policy", "--auto_wrap_policy; without a class to wrap: auto"),
    combines("fsdp_config.transformer_layer_cls_to_wrap", "--transformer_cls_to_wrap"),
    combines("fsdp_config.min_num_params", "--min_num_params of size_based_wrap"),
    combines("fsdp_config.backward_prefetch", "--backward_prefetch, where parameters are gathered for each use"),
    combines("fsdp_config.forward_prefetch", "--forward_prefetch, where parameters are gathered"),
    maps("fsdp_config.activation_checkpointing", "activation_checkpointing", "true=full|false="),
    maps("fsdp_config.activation_checkpointing_offload", "offload_activations", "true|false="),
    combines("fsdp_config.ignored_modules", "--ignored_params, of all parameters below the modules"),
    maps("fsdp_config.mixed_precision_policy", "mixed_precision", "bf16|fp16|fp32=no|bfloat16=bf16|float16=fp16",
         "one dtype is expected: fp32, bf16 or fp16; --param_dtype, --reduce_dtype and --output_dtype set them apart"),
    unread("fsdp_config.state_dict_type", "checkpoints are sharded and load on any number of ranks; --save_model "
                                          "writes full weights"),
    unread("fsdp_config.final_state_dict_type", "--save_model writes full weights"),
    unread("fsdp_config.sync_module_states", storage),
    unread("fsdp_config.cpu_ram_efficient_loading", storage),
    unread("fsdp_config.use_orig_params", "parameters always keep their names"),
};

constexpr llvm::StringLiteral strategyKey = "fsdp_config.sharding_strategy",
                              reshardKey = "fsdp_config.reshard_after_forward";

/// The strategy of a name or number of torch, or "".
std::string strategyNamed(llvm::StringRef name) {
  return llvm::StringSwitch<std::string>(name)
      .Cases("1", "full_shard", "full_shard")
      .Cases("2", "shard_grad_op", "shard_grad_op")
      .Cases("3", "no_shard", "no_shard")
      .Cases("4", "hybrid_shard", "hybrid_shard")
      .Cases("5", "hybrid_shard_zero2", "_hybrid_shard_zero2", "hybrid_shard_zero2")
      .Default("");
}

bool isHybrid(llvm::StringRef strategy) { return strategy.starts_with("hybrid"); }

/// FSDP 1 prefers sharding_strategy, and has its names in reshard_after_forward too; FSDP 2 has true and false there.
std::string strategyOf(Translation &translation, llvm::StringRef key) {
  const std::string value = translation.text(key);
  if (value == "true" || value == "false")
    return value == "true" ? "full_shard" : "shard_grad_op";
  const std::string strategy = strategyNamed(value);
  if (strategy.empty())
    translation.refuse(key, "is no strategy: full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_zero2");
  return strategy;
}

/// Sets --strategy, with the degrees if it is hybrid. Returns it, or "" if it was refused.
std::string useStrategy(Translation &translation, const RanksOfFile &ranks) {
  const bool isSecond = translation.text("fsdp_config.version") == "2";
  const bool hasStrategy = translation.find(strategyKey) && !(isSecond && translation.find(reshardKey));
  const llvm::StringRef key = hasStrategy ? strategyKey : reshardKey;
  if (!translation.find(key) && !ranks.listedStrategy.empty()) {
    translation.compile("fsdp", "strategy", ranks.listedStrategy);
    return ranks.listedStrategy;
  }
  if (!translation.find(key)) {
    if (ranks.replicateDegree == 1)
      translation.useDefault(strategyKey, "FULL_SHARD", Receiver::compiler, "strategy", "full_shard");
    return "full_shard";
  }
  std::string strategy = strategyOf(translation, key);
  const bool isInReplicas = ranks.replicateDegree > 1 && !isHybrid(strategy);
  if (!strategy.empty() && !isInReplicas)
    translation.compile(key, "strategy", strategy);
  if (const llvm::StringRef other = hasStrategy ? reshardKey : strategyKey; translation.find(other))
    translation.note(other, hasStrategy ? "sharding_strategy decides" : "reshard_after_forward decides in FSDP 2");
  if (isHybrid(strategy) && ranks.replicateDegree == 1) {
    if (ranks.perMachine)
      translation.compile(key, "data_parallel_shard_degree", std::to_string(*ranks.perMachine));
    else
      translation.leaveOpen(key, "data_parallel_shard_degree");
  }
  return strategy;
}

/// Parallel dimensions that the file gives by degrees: sharded within replicas.
void useDegrees(Translation &translation, const RanksOfFile &ranks, llvm::StringRef strategy) {
  if (ranks.replicateDegree == 1)
    return;
  const bool keeps = strategy == "shard_grad_op" || strategy == "hybrid_shard_zero2";
  translation.compile(ranks.replicateKey, "strategy",
                      ranks.shardDegree == 1 ? "no_shard"
                      : keeps                ? "hybrid_shard_zero2"
                                             : "hybrid_shard");
  if (ranks.shardDegree == 1)
    return;
  translation.compile(ranks.replicateKey, "data_parallel_replicate_degree", std::to_string(ranks.replicateDegree));
  if (translation.find(ranks.shardKey))
    translation.compile(ranks.shardKey, "data_parallel_shard_degree", std::to_string(ranks.shardDegree));
}

void useUnits(Translation &translation) {
  const llvm::StringRef key = "fsdp_config.auto_wrap_policy", classKey = "fsdp_config.transformer_layer_cls_to_wrap",
                        sizeKey = "fsdp_config.min_num_params";
  const std::string policy = translation.text(key);
  const Setting *classes = translation.find(classKey);
  const bool bySize = policy == "size_based_wrap";
  const bool byClass = classes && (policy.empty() || policy == "transformer_based_wrap");
  if (byClass) {
    translation.compile(translation.find(key) ? key : classKey, "auto_wrap_policy", "transformer_based_wrap");
    translation.compile(classKey, "transformer_cls_to_wrap", llvm::join(classes->texts(), ","));
  } else if (policy == "transformer_based_wrap") {
    translation.compile(key, "auto_wrap_policy", "auto");
  } else if (bySize || policy == "no_wrap") {
    translation.compile(key, "auto_wrap_policy", policy);
  } else if (!policy.empty()) {
    translation.refuse(key, "is none of TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP, NO_WRAP");
  }
  if (classes && !byClass)
    translation.note(classKey, "only TRANSFORMER_BASED_WRAP reads it");
  if (translation.find(sizeKey) && !bySize)
    translation.note(sizeKey, "only SIZE_BASED_WRAP reads it");
  else if (std::optional<int64_t> size = translation.integer(sizeKey))
    translation.compile(sizeKey, "min_num_params", std::to_string(*size));
}

void usePrefetch(Translation &translation, llvm::StringRef strategy) {
  const llvm::StringRef backward = "fsdp_config.backward_prefetch", forward = "fsdp_config.forward_prefetch";
  const std::string policy = llvm::StringSwitch<std::string>(translation.text(backward))
                                 .Cases("1", "backward_pre", "backward_pre")
                                 .Cases("2", "backward_post", "backward_post")
                                 .Cases("no_prefetch", "none", "false", "no_prefetch")
                                 .Default("");
  const bool gathersInBackward = strategy == "full_shard" || strategy == "hybrid_shard";
  if (translation.find(backward) && policy.empty())
    translation.refuse(backward, "is none of BACKWARD_PRE, BACKWARD_POST, NO_PREFETCH");
  else if (translation.find(backward) && !gathersInBackward)
    translation.note(backward, "backward gathers nothing with this strategy");
  else if (translation.find(backward))
    translation.compile(backward, "backward_prefetch", policy);
  const std::string depth = translation.text(forward);
  if (translation.find(forward) && depth != "true" && depth != "false")
    translation.refuse(forward, "true or false is expected");
  else if (translation.find(forward) && strategy == "no_shard")
    translation.note(forward, "forward gathers nothing with this strategy");
  else if (translation.find(forward))
    translation.compile(forward, "forward_prefetch", depth);
}

/// Modules are named by a regular expression of their whole names, or one by one.
void useIgnoredModules(Translation &translation) {
  const llvm::StringRef key = "fsdp_config.ignored_modules";
  if (const Setting *modules = translation.find(key))
    translation.compile(key, "ignored_params", "(" + llvm::join(modules->texts(), "|") + ")([.].*)?");
}

} // namespace

llvm::ArrayRef<KeyRow> fsdpRows() { return rows; }

std::string canonicalFsdpKey(llvm::StringRef key) {
  llvm::StringRef leaf = key;
  if (!leaf.consume_front("fsdp_config."))
    return key.str();
  leaf.consume_front("fsdp_");
  leaf = llvm::StringSwitch<llvm::StringRef>(leaf)
             .Cases("transformer_cls_to_wrap", "transformer_cls_names_to_wrap", "transformer_layer_cls_to_wrap")
             .Case("backward_prefetch_policy", "backward_prefetch")
             .Case("cpu_offload", "offload_params")
             .Default(leaf);
  return ("fsdp_config." + leaf).str();
}

void combineFsdp(Translation &translation, const RanksOfFile &ranks) {
  if (const std::string version = translation.text("fsdp_config.version");
      !version.empty() && version != "1" && version != "2")
    translation.refuse("fsdp_config.version", "is neither 1 nor 2");
  const std::string strategy = useStrategy(translation, ranks);
  useDegrees(translation, ranks, strategy);
  useUnits(translation);
  usePrefetch(translation, ranks.replicateDegree > 1 && ranks.shardDegree == 1 ? "no_shard" : strategy);
  useIgnoredModules(translation);
}

void useTorchGradScaler(Translation &translation, llvm::StringRef key) {
  for (const auto &[option, value] :
       {std::pair("loss_scale_window", "2000"), std::pair("hysteresis", "1"), std::pair("min_loss_scale", "0")})
    translation.useDefault(key, "fp16", Receiver::compiler, option, value);
}

} // namespace fsdpc
