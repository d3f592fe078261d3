// Axolotl's YAML: src/axolotl/utils/schemas/*.py. Its trainer is that of transformers, whose defaults apply.
#include "frontend/configs/axolotl_keys.h"
#include "frontend/configs/fsdp_section.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace fsdpc {

namespace {

constexpr llvm::StringLiteral adapterOnly = "no adapter is asked for";

bool recognizes(const Setting &root) {
  // fsdpc has a micro_batch_size too, and no base_model.
  return root.find("base_model") || (root.find("datasets") && root.find("sequence_len"));
}

std::string unreadSection(const Setting &, llvm::StringRef) { return ""; }

/// The parameters of modules that are called so, wherever they are.
std::string below(const Setting &modules) { return "(.*[.])?(" + llvm::join(modules.texts(), "|") + ")"; }

void useLora(Translation &translation) {
  const llvm::StringRef key = "adapter", modules = "lora_target_modules", saved = "lora_modules_to_save";
  const std::string adapter = translation.text(key);
  if (adapter.empty() || adapter == "false") {
    for (llvm::StringRef unused : {"lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "lora_target_linear",
                                   "lora_modules_to_save", "lora_model_dir", "peft_use_rslora"})
      if (translation.find(unused))
        translation.note(unused, adapterOnly);
    return;
  }
  if (adapter != "lora")
    return translation.refuse(key, adapter == "qlora" ? llvm::StringRef(quantizedReason) : "lora is the one adapter");
  const Setting *targets = translation.find(modules);
  const bool isLinear = translation.isOn("lora_target_linear") || (targets && targets->text == "all-linear");
  if (!targets && !isLinear)
    return translation.refuse(key, "lora_target_modules or lora_target_linear says what it is for");
  const auto valueOf = [&](llvm::StringRef key, llvm::StringRef byDefault) {
    return translation.find(key) ? translation.text(key) : byDefault.str();
  };
  std::string lora = "rank=" + valueOf("lora_r", "8") + ",alpha=" + valueOf("lora_alpha", "8");
  if (translation.real("lora_dropout").value_or(0) != 0)
    lora += ",dropout=" + translation.text("lora_dropout");
  if (translation.isOn("peft_use_rslora"))
    lora += ",rslora=on";
  lora += ",targets=" + (isLinear ? "all_linear" : targets->isScalar() ? targets->text : below(*targets));
  translation.compile(key, "lora", lora);
  if (translation.find(saved))
    translation.compile(saved, "trainable", below(*translation.find(saved)) + "[.].*");
  if (translation.find("lora_model_dir"))
    translation.useValue("lora_model_dir", "load_adapters", Receiver::program);
}

/// A pattern names parameters that begin so; ranges of rows, as in `weight[:100]`, are not parameters.
void useUnfrozen(Translation &translation) {
  const llvm::StringRef key = "unfrozen_parameters";
  const Setting *names = translation.find(key);
  if (!names)
    return;
  std::vector<std::string> patterns;
  for (llvm::StringRef name : names->texts()) {
    if (name.contains('['))
      return translation.refuse(key, "a part of a parameter is not trained alone");
    std::string pattern;
    for (char c : name)
      pattern += c == '.' ? "[.]" : std::string(1, c);
    patterns.push_back(pattern);
  }
  translation.compile(key, "trainable", "(" + llvm::join(patterns, "|") + ").*");
}

/// Axolotl gives attention the lengths of the samples in a row, so they do not see each other; of a corpus only if it
/// is not told otherwise.
void usePacking(Translation &translation) {
  const llvm::StringRef key = "sample_packing", corpus = "pretraining_dataset", apart = "pretrain_multipack_attn";
  if (!translation.isOn(key))
    return;
  if (translation.find(corpus) && translation.text(apart) == "false")
    return translation.note(key,
                            "rows of a token file are full, and with pretrain_multipack_attn: false not kept apart");
  translation.compile(key, "separate_documents", "true");
  translation.use(key, Receiver::program, "sample_packing", "true");
}

void useLength(Translation &translation) {
  const llvm::StringRef epochs = "num_epochs", batch = "batch_size", micro = "micro_batch_size";
  const std::string steps = translation.text("max_steps");
  const bool hasSteps = !steps.empty() && steps != "-1" && steps != "0";
  if (translation.find(epochs) && hasSteps)
    translation.note(epochs, "max_steps decides");
  else if (std::optional<int64_t> count = translation.integer(epochs))
    translation.use(epochs, Receiver::program, "epochs", std::to_string(*count));
  else if (!translation.find(epochs) && !hasSteps)
    translation.useDefault(epochs, "1", Receiver::program, "epochs", "1");
  if (!translation.find(batch))
    return;
  const std::optional<int64_t> all = translation.integer(batch), part = translation.integer(micro);
  if (translation.find("gradient_accumulation_steps"))
    translation.note(batch, "gradient_accumulation_steps decides");
  else if (all && part && *part > 0 && *all >= *part)
    translation.compile(batch, "gradient_accumulation_steps", std::to_string(*all / *part));
  else
    translation.refuse(batch, "is no multiple of micro_batch_size");
}

/// Axolotl rounds a share of the steps down. Without max_steps the program computes it, and rounds it up. Without a key
/// it is 3 %, and 100 steps at most.
void useWarmup(Translation &translation) {
  const llvm::StringRef steps = "warmup_steps", ratio = "warmup_ratio", length = "max_steps";
  if (translation.find(steps) && translation.find(ratio))
    translation.note(ratio, "warmup_steps decides");
  if (translation.find(steps))
    return translation.useValue(steps, "warmup_steps", Receiver::program);
  const int64_t all = translation.integer(length).value_or(0);
  const auto shareOfAll = [&](double share) { return static_cast<int64_t>(share * static_cast<double>(all)); };
  if (const std::optional<double> share = translation.real(ratio); share && (*share < 0 || *share >= 1))
    translation.refuse(ratio, "a share of the steps is expected, from 0 to below 1");
  else if (share && all >= 1)
    translation.use(ratio, Receiver::program, "warmup_steps", std::to_string(shareOfAll(*share)));
  else if (share)
    translation.use(ratio, Receiver::program, "warmup_ratio", numberText(*share));
  else if (!translation.find(ratio) && all >= 1)
    translation.useDefault(steps, "3 % of max_steps", Receiver::program, "warmup_steps",
                           std::to_string(std::min<int64_t>(shareOfAll(0.03), 100)));
  else if (!translation.find(ratio))
    translation.refuse("base_model", "without warmup_steps, Axolotl warms up in 3 % of the steps, and in 100 at most; "
                                     "give warmup_steps, warmup_ratio or max_steps");
}

void useSchedule(Translation &translation) {
  const llvm::StringRef key = "lr_scheduler", ratio = "cosine_min_lr_ratio", rate = "learning_rate";
  const std::string name = translation.find(key) ? translation.text(key) : "cosine";
  const std::string kind = llvm::StringSwitch<std::string>(name)
                               .Cases("cosine", "linear", "constant", name)
                               .Case("constant_with_warmup", "constant")
                               .Default("");
  if (kind.empty())
    return translation.refuse(key, "there are cosine, linear, constant and constant_with_warmup");
  if (translation.find(key))
    translation.use(key, Receiver::program, "lr_scheduler", kind);
  else
    translation.useDefault(key, "cosine", Receiver::program, "lr_scheduler", kind);
  if (name != "constant")
    useWarmup(translation);
  else
    for (llvm::StringRef warmup : {"warmup_steps", "warmup_ratio"})
      if (translation.find(warmup))
        translation.note(warmup, "constant has no warm-up, constant_with_warmup has one");
  if (!translation.find(ratio))
    return;
  const std::optional<double> least = translation.real(ratio), most = translation.real(rate);
  if (kind != "cosine")
    translation.note(ratio, "only cosine reads it");
  else if (least && most)
    translation.use(ratio, Receiver::program, "min_lr", numberText(*least * *most));
}

void useOptimizer(Translation &translation) {
  const llvm::StringRef first = "adam_beta1", second = "adam_beta2";
  if (!translation.find(first) && !translation.find(second))
    return;
  const auto beta = [&](llvm::StringRef key, llvm::StringRef byDefault) {
    return translation.find(key) ? translation.text(key) : byDefault.str();
  };
  translation.compile(translation.find(first) ? first : second, "betas",
                      beta(first, "0.9") + "," + beta(second, "0.999"));
}

void useSaving(Translation &translation) {
  const llvm::StringRef folder = "output_dir", interval = "save_steps", limit = "save_total_limit";
  const Setting *output = translation.find(folder);
  const std::optional<double> steps = translation.real(interval);
  const bool saves = output && steps && *steps >= 1;
  const std::string path = output ? llvm::StringRef(output->text).rtrim('/').str() : "";
  if (output)
    translation.use(folder, Receiver::program, "save_model", path + "/");
  if (saves) {
    translation.use(folder, Receiver::program, "checkpoint_folder", path + "/checkpoints");
    translation.useValue(interval, "checkpoint_interval", Receiver::program);
  } else if (translation.find(interval)) {
    translation.note(interval, "a share of the steps, or no output_dir; --checkpoint_interval counts steps");
  }
  if (translation.find(limit) && saves)
    translation.useValue(limit, "keep_latest_k", Receiver::program);
  else if (translation.find(limit))
    translation.note(limit, "checkpoints are saved with save_steps and output_dir");
}

/// As Accelerate does it: FSDP sums gradients in the type that it computes in.
void usePrecision(Translation &translation, bool isSharded) {
  const std::string wide = translation.text("bf16"), narrow = translation.text("fp16");
  if (wide == "full")
    return translation.refuse("bf16", fullPrecisionReason, "mixed_precision");
  for (const auto &[key, value] : {std::pair("bf16", wide), std::pair("fp16", narrow)}) {
    const bool isOn = value == "true" || value == "auto";
    if (!value.empty() && value != "false" && !isOn)
      translation.refuse(key, "true, false or auto is expected", "mixed_precision");
    if (!isOn)
      continue;
    translation.compile(key, "mixed_precision", key);
    if (isSharded)
      translation.compile(key, "reduce_dtype", key);
    if (llvm::StringRef(key) == "fp16")
      useTorchGradScaler(translation, key);
  }
}

void useCheckpointing(Translation &translation) {
  const llvm::StringRef key = "gradient_checkpointing";
  const std::string value = translation.text(key);
  if (value.empty() || value == "false")
    return;
  if (value != "true" && value != "offload" && value != "unsloth")
    return translation.refuse(key, "true, false or offload is expected", "activation_checkpointing");
  translation.compile(key, "activation_checkpointing", "full");
  if (value == "offload")
    translation.compile(key, "offload_activations", "true");
}

/// `fsdp: [full_shard, auto_wrap, offload]`, as transformers spells it. Returns the strategy, which that of fsdp_config
/// replaces.
std::string useFsdpList(Translation &translation) {
  const Setting *list = translation.find("fsdp");
  std::string strategy;
  for (const std::string &item : list ? list->texts() : std::vector<std::string>()) {
    const std::string word = canonicalValue(item);
    if (word == "offload")
      translation.compile("fsdp", "offload_params", "true");
    else if (word == "full_shard" || word == "shard_grad_op" || word == "no_shard")
      strategy = word;
    else if (word != "auto_wrap" && word != "true")
      translation.refuse("fsdp", "there are full_shard, shard_grad_op, no_shard, offload and auto_wrap; "
                                 "fsdp_config.fsdp_sharding_strategy has the hybrid ones");
  }
  return strategy;
}

llvm::Error useSharding(Translation &translation, bool isSharded) {
  const Setting *deepspeed = translation.find("deepspeed");
  if (deepspeed && deepspeed->isMapping())
    return translation.include("deepspeed", deepSpeed, *deepspeed);
  if (deepspeed) {
    llvm::Expected<Setting> root = readSettings(translation.besides(deepspeed->text));
    return root ? translation.include("deepspeed", deepSpeed, *root) : root.takeError();
  }
  if (!isSharded) {
    translation.useDefault("fsdp", "none", Receiver::compiler, "strategy", "no_shard");
    return llvm::Error::success();
  }
  RanksOfFile ranks;
  ranks.replicateKey = "dp_replicate_size";
  ranks.shardKey = "dp_shard_size";
  ranks.replicateDegree = translation.integer(ranks.replicateKey).value_or(1);
  ranks.shardDegree = translation.integer(ranks.shardKey).value_or(1);
  ranks.listedStrategy = useFsdpList(translation);
  combineFsdp(translation, ranks);
  return llvm::Error::success();
}

bool hasFsdpConfig(const Translation &translation) {
  return llvm::any_of(axolotlRows(), [&](const KeyRow &row) {
    return row.key.starts_with("fsdp_config.") && translation.find(row.key);
  });
}

llvm::Error combine(Translation &translation) {
  const bool isSharded = translation.find("fsdp") || hasFsdpConfig(translation);
  usePacking(translation);
  useLength(translation);
  useOptimizer(translation);
  useSchedule(translation);
  useLora(translation);
  useUnfrozen(translation);
  usePrecision(translation, isSharded);
  useCheckpointing(translation);
  useSaving(translation);
  if (!translation.isOn("curriculum_sampling"))
    translation.useDefault("curriculum_sampling", "false", Receiver::program, "shuffle", "true");
  return useSharding(translation, isSharded);
}

} // namespace

const Trainer axolotl = {"Axolotl", recognizes, axolotlRows, canonicalFsdpKey, unreadSection, combine};

} // namespace fsdpc
