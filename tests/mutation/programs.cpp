#include "tests/mutation/programs.h"

#include "frontend/driver/compile.h"
#include "ir/text/text.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

namespace fsdpc::mutation {

namespace {

struct Fixture {
  const char *name;
  const char *options;
  bool isSmall;
};

constexpr Fixture mlp = {"mlp", "--loss cross_entropy --class_axis -1 --optimizer adam", true};
constexpr Fixture mlpSgd = {"mlp", "--loss cross_entropy --class_axis -1 --optimizer sgd --lr 0.1 --momentum 0.9",
                            true};
constexpr Fixture cnn = {"mnist_cnn_nodropout",
                         "--loss nll --loss_reduction sum --class_axis -1 --optimizer sgd --lr 0.1 --weight_decay 0.01",
                         false};
constexpr Fixture dropout = {"mnist_cnn", "--loss nll --class_axis -1 --optimizer sgd --lr 0.1", false};
constexpr Fixture gpt2 = {"gpt2_tiny", "--loss cross_entropy --class_axis -1 --optimizer adamw", false};
constexpr Fixture dlrm = {"dlrm_tiny", "--loss bce_with_logits --optimizer adagrad --lr 0.02", true};
constexpr Fixture transformer = {"bigmodel_tiny", "--loss cross_entropy --class_axis -1 --optimizer rmsprop", false};

struct Row {
  Fixture fixture;
  int ranks;
  const char *options;
};

constexpr Row rows[] = {
    {mlp, 2, "--strategy full_shard"},
    {mlpSgd, 4, "--strategy full_shard --backward_prefetch backward_post --reduce_communicator own"},
    {mlp, 4, "--strategy full_shard --backward_prefetch no_prefetch --no_forward_prefetch"},
    {mlp, 4, "--strategy full_shard --reshard_after_forward 2 --max_inflight_all_gathers 1"},
    {mlpSgd, 2, "--strategy shard_grad_op --deterministic strategy --target cuda"},
    {mlp, 2, "--strategy shard_optimizer --reduce_communicator own"},
    {mlpSgd, 4, "--strategy shard_optimizer"},
    {mlp, 4, "--strategy no_shard --reduce_communicator own"},
    {mlpSgd, 4, "--strategy hybrid_shard --data_parallel_shard_degree 2"},
    {mlp, 4, "--strategy hybrid_shard_zero2 --data_parallel_shard_degree 2 --reduce_communicator own"},
    {mlp, 2, "--strategy full_shard --gradient_accumulation_steps 3"},
    {mlpSgd, 4,
     "--strategy hybrid_shard --data_parallel_shard_degree 2 --gradient_accumulation_steps 2 --accumulation "
     "keep_gradients"},
    {cnn, 2, "--strategy full_shard --reduce_communicator own"},
    {cnn, 4, "--strategy hybrid_shard --data_parallel_replicate_degree 2 --deterministic strategy --target cuda"},
    {gpt2, 2, "--strategy full_shard"},
    {mlp, 2, "--strategy full_shard --mixed_precision bf16"},
    {mlp, 2, "--strategy full_shard --mixed_precision bf16 --reduce_dtype bf16"},
    {mlp, 4,
     "--strategy hybrid_shard --data_parallel_shard_degree 2 --reduce_dtype bf16 --gradient_accumulation_steps 2"},
    {mlpSgd, 2,
     "--strategy no_shard --mixed_precision bf16 --reduce_dtype bf16 --keep_low_precision_grads --max_norm 1"},
    {mlpSgd, 4, "--strategy full_shard --max_norm 1"},
    {gpt2, 2, "--strategy full_shard --activation_checkpointing full"},
    {gpt2, 4,
     "--strategy shard_grad_op --activation_checkpointing budget --activation_memory_budget 0.3 --reduce_communicator "
     "own"},
    {dropout, 2, "--strategy full_shard --activation_checkpointing full"},
    {mlp, 2, "--strategy full_shard --mixed_precision fp16"},
    {mlpSgd, 4, "--strategy no_shard --mixed_precision fp16 --max_norm 1 --nonfinite skip"},
    {transformer, 2, "--strategy full_shard --activation_checkpointing selective"},
    {mlp, 2, "--strategy full_shard --offload_params"},
    {mlpSgd, 4, "--strategy shard_optimizer --offload_optimizer"},
    {transformer, 2, "--strategy full_shard --offload_activations"},
    {transformer, 4, "--strategy hybrid_shard --data_parallel_shard_degree 2 --reduce_communicator own"},
    {mlp, 2, "--strategy full_shard --target cuda"},
    {mlpSgd, 4, "--strategy hybrid_shard --data_parallel_shard_degree 2 --reduce_communicator own --target cuda"},
    {mlp, 2,
     "--strategy no_shard --offload_params --offload_activations --gradient_accumulation_steps 2 --no_overlap_comm "
     "--target cuda"},
    {mlp, 2, "--strategy full_shard --offload_optimizer --reduce_communicator own --max_norm 1 --target cuda"},
    {mlp, 4, "--strategy full_shard --mixed_precision bf16 --max_inflight_all_gathers 4 --target cuda"},
    {gpt2, 2, "--strategy shard_grad_op --unit .*1.*:offload_activations=true --target cuda"},
    {gpt2, 2, "--strategy full_shard --activation_checkpointing full --target cuda"},
    {mlp, 4, "--strategy hybrid_shard_zero2 --data_parallel_shard_degree 2 --mixed_precision fp16 --target cuda"},
    {dropout, 2, "--strategy shard_optimizer --target cuda"},
    {gpt2, 2, "--strategy full_shard --loss_chunk 24"},
    {dlrm, 2, "--strategy full_shard --rows on"},
    {gpt2, 2, "--strategy full_shard --rows on"},
    {dlrm, 4,
     "--strategy hybrid_shard --data_parallel_shard_degree 2 --gradient_accumulation_steps 2 --rows on --target cuda"},
    {gpt2, 2, "--strategy shard_grad_op --mixed_precision bf16 --loss_chunk 40 --target cuda"},
};

Program compile(const Row &row) {
  const std::string model = llvm::formatv("{0}/tests/fixtures/{1}/model.onnx", FSDPC_SOURCE_DIR, row.fixture.name);
  std::vector<std::string> words = {model, "--world_size", std::to_string(row.ranks), "--micro_batch_size", "1"};
  for (const char *options : {row.fixture.options, row.options})
    for (llvm::StringRef word : llvm::split(options, ' '))
      words.push_back(word.str());
  Program program;
  program.name = std::string(row.fixture.name) + " N=" + std::to_string(row.ranks) + " " + row.options;
  program.isSmall = row.fixture.isSmall;
  llvm::ExitOnError orExit(program.name + ": ");
  OptionValues values = orExit(OptionValues::parse(words));
  Compilation compilation = orExit(compileModule(words[0], values));
  program.hasEvents = compilation.module->facts.isOrderedByEvents;
  program.text = toText(*compilation.module);
  program.planned = orExit(parse(llvm::MemoryBufferRef(program.text, "planned")));
  program.train = orExit(parse(llvm::MemoryBufferRef(compilation.stageText[Stage::train], "train")));
  return program;
}

} // namespace

std::vector<Program> compilePrograms() {
  std::vector<Program> programs;
  for (const Row &row : rows)
    programs.push_back(compile(row));
  return programs;
}

} // namespace fsdpc::mutation
