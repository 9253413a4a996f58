#include "other_names.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace trireme {
namespace {

// Names of PyTorch's launchers, Megatron-LM, DeepSpeed and Hugging Face, in small letters with '_'.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"auto_find_batch_size", "batch.micro"},
    {"base_lr", "optim.lr"},
    {"batch_size", "batch.global"},
    {"bf16", "run.precision"},
    {"block_size", "model.context"},
    {"clip_grad", "optim.clip"},
    {"d_model", "model.width"},
    {"dp", "grid.data"},
    {"dtype", "run.precision"},
    {"epochs", "run.steps"},
    {"eval_interval", "eval.every"},
    {"eval_steps", "eval.every"},
    {"fp16", "run.precision"},
    {"fp8", "run.precision"},
    {"global_batch_size", "batch.global"},
    {"gpu", "cuda"},
    {"gpus", "cuda"},
    {"grad_clip", "optim.clip"},
    {"gradient_accumulation_steps", "batch.micro"},
    {"gradient_clipping", "optim.clip"},
    {"hidden_size", "model.width"},
    {"iterations", "run.steps"},
    {"learning_rate", "optim.lr"},
    {"load", "run.start_from"},
    {"log_interval", "log.every"},
    {"logging_steps", "log.every"},
    {"lr_decay_iters", "schedule.decay"},
    {"lr_decay_style", "schedule.name"},
    {"lr_scheduler", "schedule.name"},
    {"lr_scheduler_type", "schedule.name"},
    {"lr_warmup_iters", "schedule.warmup"},
    {"max_grad_norm", "optim.clip"},
    {"max_iters", "run.steps"},
    {"max_lr", "optim.lr"},
    {"max_position_embeddings", "model.context"},
    {"max_steps", "run.steps"},
    {"micro_batch_size", "batch.micro"},
    {"min_lr_rate", "schedule.least"},
    {"min_lr_ratio", "schedule.least"},
    {"n_embd", "model.width"},
    {"n_head", "model.heads"},
    {"n_layer", "model.layers"},
    {"n_layers", "model.layers"},
    {"num_attention_heads", "model.heads"},
    {"num_epochs", "run.steps"},
    {"num_hidden_layers", "model.layers"},
    {"num_layers", "model.layers"},
    {"num_steps", "run.steps"},
    {"num_train_epochs", "run.steps"},
    {"num_warmup_steps", "schedule.warmup"},
    {"num_workers", "data.threads"},
    {"optimizer", "optim.name"},
    {"output_dir", "run.folder"},
    {"per_device_train_batch_size", "batch.micro"},
    {"pipeline_model_parallel_size", "grid.pipeline"},
    {"pp", "grid.pipeline"},
    {"resume_from_checkpoint", "run.resume"},
    {"save", "run.folder"},
    {"save_interval", "checkpoint.every"},
    {"save_steps", "checkpoint.every"},
    {"save_total_limit", "checkpoint.keep"},
    {"scheduler", "schedule.name"},
    {"seq_len", "model.context"},
    {"seq_length", "model.context"},
    {"sequence_length", "model.context"},
    {"t_0", "schedule.period"},
    {"t_mult", "schedule.period_factor"},
    {"tensor_model_parallel_size", "grid.tensor"},
    {"tp", "grid.tensor"},
    {"train_batch_size", "batch.global"},
    {"train_iters", "run.steps"},
    {"train_micro_batch_size_per_gpu", "batch.micro"},
    {"vocab_size", "model.vocabulary"},
    {"warmup_iters", "schedule.warmup"},
    {"warmup_steps", "schedule.warmup"},
    {"zero_stage", "shard.stage"},
};

}  // namespace

std::optional<std::string> entry_of_other_name(std::string_view name,
                                               const std::vector<std::string>& known) {
  std::string plain(name.substr(name.rfind('.') + 1));  // all of it where there is no dot
  for (char& c : plain) {
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  for (const auto& [other, ours] : kOtherNames) {
    if (other == plain && std::ranges::find(known, ours) != known.end()) return std::string(ours);
  }
  return {};
}

}  // namespace trireme
