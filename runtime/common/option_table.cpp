#include "runtime/common/options.h"

namespace fsdpc::rt {

namespace {

std::span<const OptionRow> commonOptions() {
  using O = Options;
  static constexpr OptionRow rows[] = {
      {"train_data", "GLOB[:WEIGHT],...", &O::trainData,
       "training data: safetensors, llm.c tokens, IDX, tar, or x=A.npy,labels=B.npy; sources with weights are mixed"},
      {"val_data", "GLOB", &O::valData, "data for evaluation and prediction"},
      {"data_format", "auto|safetensors|tokens|idx|npy|tar", &O::dataFormat,
       "headerless uint16 tokens are only read as `tokens`"},
      {"normalize", "MEAN,STD", &O::normalize, "of IDX images, after the division by 255"},
      {"map", "INPUT=FIELD", &O::maps, "list: which field feeds an input"},
      {"fill", "INPUT=VALUE", &O::fills,
       "list: inputs that are 1, 0 or iota; mask, 0 where a sample is padded; positions or documents of a sample"},
      {"document_end", "TOKEN", &O::documentEnd, "the number of the token that ends a document, for --fill", 0},
      {"truncate", "", &O::truncate, "take the first elements of samples that are longer than an input"},
      {"sample_packing", "", &O::samplePacking,
       "of a program with --separate_documents: samples of unequal length share rows, each as a document"},
      {"batch", "FILE.safetensors", &O::batch, "one fixed global batch, used in every step"},
      {"steps", "N", &O::steps, "optimizer steps"},
      {"epochs", "N", &O::epochs, "passes over the training data; 1 if --steps is not given either"},
      {"lr_scheduler", "constant|cosine|linear|wsd|step", &O::lrScheduler, "learning rate schedule"},
      {"warmup_steps", "N", &O::warmupSteps, "steps of linear warm-up"},
      {"warmup_ratio", "X", &O::warmupRatio, "the same as a share of all steps, rounded up"},
      {"min_lr", "X", &O::minLr, "where cosine, linear and wsd end"},
      {"step_size", "N|Nepoch", &O::stepSize, "step: steps or epochs between two decays"},
      {"gamma", "X", &O::gamma, "step: factor of a decay"},
      {"shuffle", "", &O::shuffle, "a new global permutation in each epoch, the same for every world size"},
      {"shuffle_window", "N", &O::shuffleWindow,
       "shuffle files, then N samples at once; default: all up to 4194304, else 1048576", 1},
      {"seed", "N", &O::seed, "for shuffling, dropout and random initial values; default: the compiled one"},
      {"drop_last", "", &O::dropLast, "leave out the last partial batch; --no_drop_last pads it with weight 0"},
      {"eval_every", "N|Nepoch", &O::evalEvery, "evaluate on --val_data; default 1epoch", 1},
      {"eval_steps", "N", &O::evalSteps, "evaluate on that many global batches only", 1},
      {"early_stopping", "N", &O::earlyStopping,
       "end when N evaluations in a row were no better than the best before, by --save_best's metric or val_loss", 1},
      {"eval_only", "", &O::evalOnly, "evaluate once, train nothing"},
      {"predict", "F.safetensors", &O::predict,
       "write the model's outputs on --val_data, after training if there is any"},
      {"load_model", "PATH", &O::loadModel,
       "start from these weights, by name: a file, a folder as from_pretrained reads it, or its index"},
      {"load_partial", "REGEX", &O::loadPartial,
       "parameters that may be missing in --load_model, and tensors there that may be left out"},
      {"load_adapters", "F.safetensors or FOLDER", &O::loadAdapters,
       "of a program with --lora: adapters to start from, as the peft package or --save_model FOLDER/ writes them"},
      {"checkpoint_folder", "FOLDER", &O::checkpointFolder,
       "checkpoints, each a folder that any number of ranks can load; one is saved at the end and on a signal"},
      {"checkpoint_interval", "N or 10min", &O::checkpointInterval, "steps or time between checkpoints"},
      {"keep_latest_k", "K", &O::keepLatest, "older checkpoints are deleted; 0 keeps all"},
      {"save_best", "val_loss|val_accuracy|val_top_k_accuracy", &O::saveBest,
       "save after each evaluation that is the best so far, and keep the best checkpoint"},
      {"checkpoint_staging", "host|off", &O::checkpointStaging,
       "host: copy the state and write it while the training goes on; off: write it at once, without a copy"},
      {"resume", "auto or PATH", &O::resume,
       "go on from a checkpoint: auto is the newest intact one of --checkpoint_folder, if there is one"},
      {"max_runtime", "3h59m", &O::maxRuntime, "save and end with exit code 75 before that time has passed"},
      {"log", "FILE.jsonl", &O::log,
       "settings, then one JSON object per logged step; started anew, or continued by --resume"},
      {"report", "F.html", &O::report,
       "a page of curves of --log, kept up to date: as fsdpc report writes it, and it reloads while the run goes on"},
      {"tensorboard", "FOLDER", &O::tensorboard, "the figures of the log as event files that TensorBoard opens"},
      {"log_freq", "N", &O::logFreq, "steps between two lines", 1},
      {"progress", "auto|bar|plain|none", &O::progress, "on stderr; auto: a bar on a terminal, else plain lines"},
      {"save_model", "F.safetensors or FOLDER/", &O::saveModel,
       "full weights at the end; a folder gets the names and the other files of the folder of --load_model; of a "
       "program with --lora a folder gets the adapters alone, as the peft package reads them"},
      {"save_ema", "F.safetensors or FOLDER/", &O::saveEma,
       "of a program with --ema_decay: as --save_model, with the moving averages of the weights"},
      {"merge_adapters", "", &O::mergeAdapters,
       "--save_model and --save_ema write the weights with the adapters merged into them (--save_onnx always does)"},
      {"save_onnx", "F.onnx", &O::saveOnnx, "full weights at the end, as an ONNX model with its data file next to it"},
      {"save_gradients", "F.safetensors", &O::saveGradients, "full gradients of the first step, grad.<parameter>"},
      {"profile", "F.json", &O::profile,
       "Chrome/Perfetto trace of the last 20 steps, predicted and measured; rank r > 0 writes F.rank<r>.json"},
      {"memory_report", "", &O::memoryReport, "planned bytes per class, and mapped bytes"},
      {"time_matmuls", "", &O::timeMatmuls, "after each step, run its matmuls again, alone (matmul_ms)"},
      {"threads", "T", &O::threads, "compute threads per rank; default: cores / ranks of this machine", 1},
      {"streams", "auto|inline|threads", &O::streams, "where collectives run; default: as compiled"},
      {"init_timeout_seconds", "N", &O::initTimeoutSeconds,
       "the run ends if no rank progresses for so long in start-up and saving", 1},
      {"train_timeout_seconds", "N", &O::trainTimeoutSeconds, "the same in data, steps and evaluation", 1},
      {"debug_collectives", "off|sequence|detail", &O::debugCollectives,
       "sequence: ranks compare their collectives; detail: also hashes of all operands and results"},
      {"replica_check", "N", &O::replicaCheck,
       "every N steps, ranks compare hashes of the state that more than one of them holds", 1},
      {"rerun_check", "", &O::rerunCheck,
       "compute each step twice and compare the bits, a third time if they differ; takes a copy of the state in host "
       "memory"},
      {"slow_link_microseconds", "A", &O::slowLinkMicroseconds,
       "testing: every collective takes A + moved bytes / B longer; fsdpc's hardware table has the same figures"},
      {"slow_link_bytes_per_microsecond", "B", &O::slowLinkBytesPerMicrosecond, "testing: 0: no bound"},
      {"help", "", &O::help, "this text"},
      {"version", "", &O::version, "the model, and the fsdpc version that compiled it"},
  };
  return rows;
}

} // namespace

__attribute__((weak)) std::span<const OptionRow> targetOptions() { return {}; }

std::span<const OptionRow> optionTable() {
  static const std::vector<OptionRow> rows = [] {
    std::vector<OptionRow> all(commonOptions().begin(), commonOptions().end());
    all.insert(all.end(), targetOptions().begin(), targetOptions().end());
    return all;
  }();
  return rows;
}

} // namespace fsdpc::rt
