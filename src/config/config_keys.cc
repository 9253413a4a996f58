// The table of all keys but those of model families. Each key says what a change of it means for a
// run that continues.
#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/limits.h"
#include "trireme/config/config.h"
#include "trireme/config/weighted_paths.h"
#include "trireme/optim/schedule.h"
#include "trireme/optim/update_rule.h"

namespace trireme {
namespace {

void add_run_keys(Options& options, Config::Run& run) {
  options.add("run.folder", run.folder, "path",
              "folder for configuration, metrics, checkpoints and report", not_empty(),
              OnChange::kNothing);
  options.add(
      "run.steps", run.steps, "steps",
      "optimizer steps to train in total; here and in other keys of steps also epochs, as in 10ep: "
      "passes over the training data",
      between(1, limits::kSteps), OnChange::kResults);
  options.add("run.seed", run.seed, "", "seed of initial values, data order and dropout",
              at_least(0), OnChange::kOtherRun);
  options.add("run.threads", run.threads, "threads per rank",
              "computing threads; auto: the cores that this rank was granted",
              between(1, limits::kThreads), OnChange::kCompared);
  options.add("run.resume", run.resume, "",
              "auto: go on from the newest good checkpoint of the run folder, if any; never: start "
              "anew; or the path of a checkpoint; what is no ancestor moves to superseded/",
              not_empty(), OnChange::kOfStart);
  options.add(
      "run.start_from", run.start_from, "",
      "a run without a checkpoint of its own takes the weights and states of this checkpoint, or "
      "of "
      "the newest in this run folder; the optimizer starts anew, and so does everything else; does "
      "nothing once there is a checkpoint, or where run.resume names one",
      not_empty(), OnChange::kNothing);
  options.add("run.fresh", run.fresh, "",
              "run.start_from: what begins with initial values of its own all the same; head: what "
              "tells classes apart, so that their number may be another",
              one_of({"none", "head"}), OnChange::kNothing);
  options.add("run.accept_changes", run.accept_changes, "",
              "go on from a checkpoint although its data, batch.global, run.seed or model.* were "
              "others, which makes another run of it",
              {}, OnChange::kOfStart);
  options.add("run.device", run.device, "",
              "where to compute; cuda: each rank on a GPU; auto: cuda where every rank sees a GPU, "
              "else cpu",
              one_of({"auto", "cpu", "cuda"}), OnChange::kCompared);
  options.add(
      "run.precision", run.precision, "",
      "type of activations and matrix products (weights and sums stay in fp32); tf32: fp32, "
      "but products on a GPU round their operands to TF32 (on a CPU the same as fp32); fp16: "
      "with loss scaling; fp8: bf16, but linear layers of blocks multiply in e4m3 in training, "
      "with scales of 1 x 128 and 128 x 128 elements (on GPUs of compute capability 9.0 alone)",
      one_of({"fp32", "tf32", "bf16", "fp16", "fp8"}), OnChange::kResults);
  options.add("run.same_bits", run.same_bits, "",
              "data replicas, stages, schedules, sharding and recomputation change no bit of the "
              "weights, with equal batches, tensor ranks and threads; sets batch.runs to the "
              "largest power of two up to 16 that divides the micro-batches, which the data "
              "replicas must divide; costs memory for up to 4 more gradients on few replicas, and "
              "a tied matrix's gradient twice; GPUs then communicate by mpi",
              {}, OnChange::kRounding);
  options.paths({"run.folder", "run.resume", "run.start_from"});
  options.alias("threads", "run.threads");
  options.alias("resume", "run.resume");
  options.alias("device", "run.device");
}

void add_data_keys(Options& options, Config::Data& data) {
  options.add(
      "data.train", data.train, "HDF5 shards",
      "what to train on: files or folders, mixed by weight; \\ before , or = keeps it in a path",
      {}, OnChange::kCompared);
  options.add("data.validation", data.validation, "HDF5 shards",
              "held-out data to evaluate on: files or folders, as data.train", {},
              OnChange::kCompared);
  options.add("data.mask_documents", data.mask_documents, "",
              "text: attention does not cross the borders of documents; a sample of a masked "
              "language model ends with its document",
              {}, OnChange::kOtherRun);
  options.add("data.mask_share", data.mask_share, "share of tokens",
              "masked language models: the tokens of a sample that are hidden and predicted",
              between(1e-3, 1), OnChange::kOtherRun);
  options.add(
      "data.crop", data.crop, "",
      "pictures: the part that a model of smaller ones trains on; centre: the middle, which "
      "evaluations always take; random: any, after data.padding black pixels were added on "
      "each side; resized: a part of random area and shape, made as large as the model's",
      one_of({"centre", "random", "resized"}), OnChange::kResults);
  options.add("data.padding", data.padding, "pixels",
              "pictures: added on each side before a random crop", between(0, 4096),
              OnChange::kResults);
  options.add("data.flip", data.flip, "",
              "pictures: left and right change places in half of the training samples", {},
              OnChange::kResults);
  options.add("data.least_area", data.least_area, "share of the picture",
              "data.crop resized: the smallest part that is taken; the largest is all of it",
              between(1e-6, 1), OnChange::kResults);
  options.add("data.most_ratio", data.most_ratio, "",
              "data.crop resized: a part is at most so many times as wide as high, or as high as "
              "wide",
              between(1, 1000), OnChange::kResults);
  options.add("data.threads", data.threads, "threads per rank",
              "pictures: how many read, crop and normalise them ahead of their use",
              between(1, limits::kThreads), OnChange::kNothing);
  options.paths({"data.train", "data.validation"}, PathForm::kWeightedList);
}

void add_batch_keys(Options& options, Config::Batch& batch) {
  options.add("batch.global", batch.global, "samples",
              "samples (sequences of text, pictures) per optimizer step, all ranks",
              between(1, limits::kSequences), OnChange::kOtherRun);
  options.add("batch.micro", batch.micro, "samples",
              "samples per micro-batch: what one replica computes at a time; auto: the largest "
              "divisor of a replica's share of batch.global that leaves a fifth of the memory and "
              "is not beyond what was measured to help, which a run then keeps; with run.same_bits "
              "or batch norms results depend on it: there it is 4, or a number that is given",
              between(1, limits::kSequences), OnChange::kRounding);
  options.add(
      "batch.runs", batch.runs, "runs",
      "a step's micro-batches are so many equal runs, whose gradients add up along a tree. With "
      "equal runs the sum does not depend on the number of data replicas, which divides them. "
      "auto: as many as data replicas, or from shard.stage 2 on as many as micro-batches where "
      "that takes less memory. With a number, the two uses of a tied matrix on one stage add up "
      "apart, so the number that auto comes to gives other last bits there than auto",
      between(1, limits::kSequences), OnChange::kRounding);
  options.add(
      "batch.balance", batch.balance, "",
      "shares of a step's micro-batches, where data replicas differ in speed: even; a speed for "
      "each replica, as in 1,0.5,0.5; auto: by the times of log.stragglers on CPUs, anew at "
      "checkpoints where steps would be 5 % shorter, and at most twice the even share",
      {}, OnChange::kRounding);
}

// "auto: 0.001; lion 0.0001": what a key has that is not given, by rule, where rules that read it
// differ. Without `key` all read it.
template <class Default>
std::string auto_text(const Default& of, std::string_view key = {}) {
  std::string text = fmt::format("auto: {}", of(optim::rule_kind("adamw")));
  for (const optim::RuleKind& kind : optim::rule_kinds()) {
    const bool reads = key.empty() || kind.has(key);
    if (reads && of(kind) != of(optim::rule_kind("adamw"))) {
      text += fmt::format("; {} {}", kind.name, of(kind));
    }
  }
  return text;
}

// What every optimizer has, or several of them.
void add_update_keys(Options& options, Config::Optim& optim) {
  using optim::RuleKind;
  options.add("optim.name", optim.name, "", "optimizer", one_of(optim::rule_names()),
              OnChange::kResults);
  options.add("optim.lr", optim.lr, "per step",
              "peak learning rate; " +
                  auto_text([](const RuleKind& kind) { return kind.learning_rate; }) +
                  "; 0.02 with optim.muon_scale original; 2e-5 for adamw where gpt begins with an "
                  "import or run.start_from",
              between(limits::kLeastReal, limits::kReal), OnChange::kResults);
  options.add("optim.weight_decay", optim.weight_decay, "per unit of learning rate",
              "decay of weights (of norms and biases with optim.decay_norms alone); " +
                  auto_text([](const RuleKind& kind) { return kind.defaults.weight_decay; }),
              between(0, limits::kReal), OnChange::kResults);
  options.add(
      "optim.decay", optim.decay, "",
      "decoupled: weights shrink by themselves; coupled: optim.weight_decay of a weight is "
      "added to its gradient; auto: adam and lars have the coupled one, the others the other",
      one_of({"coupled", "decoupled"}), OnChange::kResults);
  options.add("optim.decay_norms", optim.decay_norms, "",
              "norms and biases decay as other weights do", {}, OnChange::kResults);
  options.add("optim.beta1", optim.beta1, "",
              "Adam, AdamW, LAMB, Lion: decay of the gradient's average; " +
                  auto_text([](const RuleKind& kind) { return kind.defaults.beta1; }, "beta1"),
              at_least_and_below(0, 1), OnChange::kResults);
  options.add(
      "optim.beta2", optim.beta2, "",
      "Adam, AdamW, LAMB: decay of the squared gradient's average; Lion: of the average that is "
      "kept; " +
          auto_text([](const RuleKind& kind) { return kind.defaults.beta2; }, "beta2"),
      at_least_and_below(0, 1), OnChange::kResults);
  options.add("optim.eps", optim.eps, "",
              "Adam, AdamW, LAMB: added to the denominator; Adafactor: the least denominator; " +
                  auto_text([](const RuleKind& kind) { return kind.defaults.epsilon; }, "eps"),
              between(limits::kLeastReal, limits::kReal), OnChange::kResults);
  options.add("optim.clip", optim.clip, "global norm",
              "longer gradients are scaled down to this; 0: never", between(0, limits::kReal),
              OnChange::kResults);
  options.add("optim.clip_each", optim.clip_each, "norm",
              "the same of each parameter by itself, before that; 0: never",
              between(0, limits::kReal), OnChange::kResults);
  options.add("optim.clip_value", optim.clip_value, "",
              "each element of the gradients is limited to this and its negative, before both; 0: "
              "never",
              between(0, limits::kReal), OnChange::kResults);
  options.add(
      "optim.momentum", optim.momentum, "",
      "SGD, LARS, Muon: momentum; " +
          auto_text([](const RuleKind& kind) { return kind.defaults.momentum; }, "momentum"),
      at_least_and_below(0, 1), OnChange::kResults);
  options.add(
      "optim.nesterov", optim.nesterov, "",
      "SGD, LARS, Muon: Nesterov's momentum: a step goes by the gradient and the momentum that "
      "follows it; auto: true with Muon",
      {}, OnChange::kResults);
  options.add(
      "optim.groups", optim.groups, "",
      "other rules for some parameters, as in 'embedding.*,positions.*: decay=0; *.down.weight: "
      "lion lr=0.1': patterns of names, an optimizer, factors on the learning rate that "
      "they have without it and on the decay; of several groups that a name matches the "
      "last optimizer counts, and all factors",
      not_empty(), OnChange::kResults);
}

// What one optimizer alone has.
void add_rule_keys(Options& options, Config::Optim& optim) {
  options.add("optim.muon_scale", optim.muon_scale, "",
              "Muon: how long a step of a matrix is; match_adamw: 0.2 sqrt(max(rows, columns)) "
              "times the learning rate; original: sqrt(max(1, rows / columns)) times, which "
              "optim.lr 0.02 suits",
              one_of({"match_adamw", "original"}), OnChange::kResults);
  options.add("optim.muon_precision", optim.muon_precision, "",
              "Muon: the type in which matrices are made orthogonal and sent to the rank that does "
              "it; auto: fp32 with run.precision fp32, otherwise bf16",
              one_of({"fp32", "bf16"}), OnChange::kResults);
  options.add("optim.muon_heads", optim.muon_heads, "",
              "Muon: query, key and value are so many matrices as they have heads", {},
              OnChange::kResults);
  options.add(
      "optim.adamw_lr", optim.adamw_lr, "per step",
      "Muon: peak learning rate of what AdamW updates: tables, a projection of patches, the "
      "last product, depthwise kernels, norms, biases; auto: optim.lr; with optim.muon_scale "
      "original 0.001",
      between(limits::kLeastReal, limits::kReal), OnChange::kResults);
  options.add("optim.lamb_clip", optim.lamb_clip, "",
              "LAMB: the most that |weights| / |step| of a parameter counts; 0: no limit",
              between(0, limits::kReal), OnChange::kResults);
  options.add(
      "optim.lars_coefficient", optim.lars_coefficient, "",
      "LARS: length of a parameter's step over the length of its weights, times the learning "
      "rate",
      between(limits::kLeastReal, limits::kReal), OnChange::kResults);
  options.add("optim.adafactor_clip", optim.adafactor_clip, "",
              "Adafactor: the largest root mean square of a parameter's step, before the learning "
              "rate",
              between(limits::kLeastReal, limits::kReal), OnChange::kResults);
  options.add("optim.adafactor_decay", optim.adafactor_decay, "",
              "Adafactor: a new square's share in the averages is t to this power at update t",
              between(-1, 0), OnChange::kResults);
}

void add_average_keys(Options& options, Config::Optim& optim) {
  options.add("optim.average", optim.average, "",
              "an average of the weights over steps, which evaluations and exports can use; ema: a "
              "step's share is 1 - optim.average_decay, in the first ones equal; swa: all equal",
              one_of({"none", "ema", "swa"}), OnChange::kResults);
  options.add("optim.average_decay", optim.average_decay, "", "ema: share of the weights before",
              at_least_and_below(0, 1), OnChange::kResults);
  options.add("optim.average_from", optim.average_from, "steps",
              "steps up to this one are not in the average", between(0, limits::kSteps),
              OnChange::kResults);
  options.add(
      "optim.recompute_norms", optim.recompute_norms, "micro-batches",
      "batch norms: running statistics for averaged weights are computed anew, from so many "
      "micro-batches of the training data, before evaluations and checkpoints; 0: they are "
      "averaged as the weights are; auto: 64 with schedule_free, otherwise 0",
      between(0, limits::kSequences), OnChange::kResults);
}

void add_gradient_keys(Options& options, Config::Optim& optim) {
  options.add(
      "optim.freeze", optim.freeze, "",
      "parameters that stay as they are: patterns of their names between commas, as in "
      "embedding.*,blocks.[0-5].*; they have no gradient and no optimizer state, and the backward "
      "stops where nothing before it trains; none: all train",
      not_empty(), OnChange::kResults);
  options.add(
      "optim.loss_scale", optim.loss_scale, "",
      "fp16: factor on the gradient of each target's loss, against underflow; dynamic: "
      "searched for, halved where gradients overflow (that step is skipped) and doubled after "
      "optim.loss_scale_interval steps; or a number",
      not_empty(), OnChange::kResults);
  options.add("optim.loss_scale_interval", optim.loss_scale_interval, "steps",
              "steps without overflow after which a dynamic loss scale is doubled",
              between(1, limits::kCount), OnChange::kResults);
  options.add("optim.masters", optim.masters, "",
              "bf16: the fp32 values that the optimizer changes; fp32: beside the weights; split: "
              "weights and 16 bits more, which are 2 bytes a parameter less and as exact; weights "
              "that are ties between two values of bf16 go away from zero then, not to even",
              one_of({"fp32", "split"}), OnChange::kResults);
}

void add_schedule_keys(Options& options, Config::Schedule& schedule) {
  options.add("schedule.name", schedule.name, "",
              "curve of the learning rate after warm-up; table: all of it",
              one_of(optim::learning_rate_curve_names()), OnChange::kResults);
  options.add(
      "schedule.warmup", schedule.warmup, "steps",
      "linear warm-up; auto: a tenth of the run, at most 100; 3 % of it for adamw where gpt "
      "begins with an import or run.start_from",
      between(0, limits::kSteps), OnChange::kResults);
  options.add("schedule.decay", schedule.decay, "steps",
              "linear, cosine: length of the decay; step: between drops; wsd: length of the last "
              "part; auto: the rest of the run, a third, a fifth of it",
              between(1, limits::kSteps), OnChange::kResults);
  options.add("schedule.factor", schedule.factor, "",
              "step: what a drop multiplies the learning rate by", between(limits::kLeastReal, 1),
              OnChange::kResults);
  options.add("schedule.least", schedule.least, "of optim.lr",
              "linear, cosine, cosine_restarts, wsd: the part of optim.lr that the decay goes down "
              "to; step, inverse_sqrt: no less than that; auto: 0.1 with cosine, otherwise 0",
              between(0, 1), OnChange::kResults);
  options.add("schedule.period", schedule.period, "steps",
              "cosine_restarts: from the end of the warm-up to the first restart",
              between(1, limits::kSteps), OnChange::kResults);
  options.add("schedule.period_factor", schedule.period_factor, "",
              "cosine_restarts: each period is so many times as long as the one before",
              between(1, limits::kCount), OnChange::kResults);
  options.add("schedule.file", schedule.file, "",
              "table: a file with a line for each point, a step (the first is 1) and the part of "
              "optim.lr there, as in 100 0.5; linear between points, # begins a comment",
              not_empty(), OnChange::kCompared);
  options.paths({"schedule.file"});
}

void add_grid_keys(Options& options, Config::Grid& grid) {
  add_dimension_keys(options, grid);
  options.add("grid.schedule", grid.schedule, "",
              "pipeline schedule; interleaved: 1F1B over grid.chunks parts of the model on each "
              "stage, for less idle time and more messages; zb-h1: 1F1B whose weight gradients "
              "fill idle time; zb-v: the same over two chunks in a V, with the least idle time; "
              "both hold as much on every stage as 1f1b does on the first",
              one_of({"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}), OnChange::kRounding);
  options.add("grid.chunks", grid.chunks, "parts of the model",
              "that each pipeline stage holds; auto: 2 with grid.schedule interleaved, which takes "
              "any number, and what the schedule has otherwise",
              between(1, limits::kLayers), OnChange::kRounding);
  options.add("grid.cut", grid.cut, "",
              "where pipeline stages are cut; equal: they cost the same; auto: they take the same "
              "time, by the speed of products that the first start measures; or the blocks of each "
              "stage, as in 5,3",
              {}, OnChange::kRounding);
  options.add("grid.sequence_parallel", grid.sequence_parallel, "",
              "tensor ranks share the activations between layers by position", {},
              OnChange::kRounding);
  options.add("grid.order", grid.order, "",
              "which rank takes which place of the grid; rank: places follow the launcher's order; "
              "auto: on several nodes and one island, the order whose traffic is cheapest on the "
              "network; or a "
              "file with a rank, or a node for all of its ranks, on each line; on CPUs the results "
              "have the same bits in every order, with comm.order tree and comm.reduce fp32",
              not_empty(), OnChange::kSums);
  options.add("grid.islands", grid.islands, "islands",
              "each has so large a grid of its own, with batch.global samples a step, and trains "
              "alone between meetings (sync.*): for links that are too slow for the gradients of "
              "every step; neighbouring ranks of the launcher's order form an island",
              between(1, limits::kRanks), OnChange::kResults);
  options.paths({"grid.order"});
}

void add_sync_keys(Options& options, Config::Sync& sync) {
  options.add("sync.every", sync.every, "steps",
              "islands meet after so many steps of their own; auto: 50 with several of them, and "
              "never with one; of members (sync.member) each does as many as fit the time in which "
              "the median one does 50, 12 to 200",
              between(1, limits::kCount), OnChange::kResults);
  options.add("sync.outer", sync.outer, "",
              "what a meeting makes of the islands' weights; nesterov: a step of SGD with "
              "Nesterov's momentum along what they have learned, by sync.lr and sync.momentum "
              "(DiLoCo); average: their mean, by the targets that each has seen (local SGD)",
              one_of({"nesterov", "average"}), OnChange::kResults);
  options.add("sync.lr", sync.lr, "per meeting", "sync.outer nesterov: the outer learning rate",
              between(limits::kLeastReal, limits::kReal), OnChange::kResults);
  options.add("sync.momentum", sync.momentum, "", "sync.outer nesterov: the outer momentum",
              at_least_and_below(0, 1), OnChange::kResults);
  options.add("sync.first", sync.first, "steps",
              "so many steps at first have the gradients of all islands, as in a run without "
              "islands of as many samples; then they meet (post-local SGD)",
              between(0, limits::kCount), OnChange::kResults);
  options.add("sync.fragments", sync.fragments, "parts of the model",
              "runs of neighbouring blocks that meet one after the other, each every sync.every "
              "steps (streaming DiLoCo)",
              between(1, limits::kLayers), OnChange::kResults);
  options.add("sync.delay", sync.delay, "steps",
              "so many steps compute while what islands have learned travels; fewer than "
              "sync.every",
              between(0, limits::kCount), OnChange::kResults);
  options.add("sync.mix", sync.mix, "share",
              "with sync.delay: the share of the island's own weights in those that it goes on "
              "with after a meeting",
              at_least_and_below(0, 1), OnChange::kResults);
  options.add("sync.reduce", sync.reduce, "",
              "the type in which what islands have learned travels between them; intN: N bits an "
              "element, with a scale for each 256; what fewer bits lose is sent with the next "
              "meeting",
              one_of({"fp32", "bf16", "int8", "int4", "int2"}), OnChange::kResults);
}

void add_member_keys(Options& options, Config::Sync& sync) {
  options.add("sync.member", sync.member, "name",
              "this job is one of several that carry the run in run.folder, each as an island, "
              "under this name; it has a run folder of its own, islands/NAME in there",
              {}, OnChange::kNothing);
  options.add("sync.patience", sync.patience, "seconds",
              "sync.member: whoever has delivered waits for other living members for so long",
              between(0, limits::kReal), OnChange::kNothing);
  options.add("sync.quorum", sync.quorum, "members",
              "sync.member: an outer step has what at least so many have learned",
              between(1, limits::kRanks), OnChange::kResults);
  options.add("sync.stale", sync.stale, "per outer step",
              "sync.member: factor of the weight of what comes late; 0 drops it", between(0, 1),
              OnChange::kResults);
  options.add("sync.silence", sync.silence, "seconds",
              "sync.member: who gives no sign of life for so long counts as dead",
              between(1, limits::kReal), OnChange::kNothing);
  options.add("sync.rejoin", sync.rejoin, "steps",
              "sync.member: one that joins a run under way with an optimizer of zeros warms up for "
              "so many of its steps",
              between(0, limits::kCount), OnChange::kResults);
}

void add_recompute_keys(Options& options, Config::Recompute& recompute) {
  options.add(
      "recompute.mode", recompute.mode, "",
      "what the backward computes again, so that less memory holds activations; selective: "
      "the outputs of norms and of GELU or SwiGLU, but no product, attention or "
      "communication, so neither norms' outputs with grid.sequence_parallel nor GELU's that "
      "a GPU's product made; full: all of a block, of which only the input is kept (up to a "
      "third more time); the results have the same bits",
      one_of({"none", "selective", "full"}), OnChange::kNothing);
  options.add(
      "recompute.every", recompute.every, "blocks",
      "recompute.mode full: keep the input of every so many blocks; more keep fewer inputs, "
      "but while their backward runs all that these blocks compute",
      between(1, limits::kLayers), OnChange::kNothing);
  options.add(
      "recompute.blocks", recompute.blocks, "blocks",
      "recompute.mode selective and full: for the first so many blocks of each stage, while those "
      "behind them keep all, which takes more memory and less time; blocks that optim.freeze "
      "leaves without a backward do not count; auto: for all",
      between(1, limits::kLayers), OnChange::kNothing);
}

void add_cuda_keys(Options& options, Config::Cuda& cuda) {
  options.add("cuda.graphs", cuda.graphs, "",
              "on GPUs: capture the training step as a CUDA graph and replay it", {},
              OnChange::kNothing);
  options.add("cuda.spare", cuda.spare, "multiprocessors",
              "on GPUs: products of matrices leave so many to communication that runs beside them "
              "(with nccl.max_channels as many)",
              between(0, 1024), OnChange::kRounding);
  options.add("cuda.products", cuda.products, "",
              "on GPUs: a file by trireme bench products, with the fastest algorithms of matrix "
              "products; the first start records those that fit every rank, and later ones use "
              "them again; empty: what cuBLASLt proposes",
              {}, OnChange::kCompared);
  options.paths({"cuda.products"});
}

void add_attention_keys(Options& options, Config::Attention& attention) {
  options.add(
      "attention.deterministic", attention.deterministic, "",
      "false: on GPUs cuDNN may add up attention's gradients in any order, which is faster; "
      "then two runs of one configuration differ by rounding",
      {}, OnChange::kResults);
}

void add_eval_keys(Options& options, Config::Eval& eval) {
  options.add("eval.every", eval.every, "steps", "evaluate this often; 0: never",
              between(0, limits::kSteps), OnChange::kNothing);
  options.add("eval.batches", eval.batches, "global batches",
              "how much an evaluation reads: samples from everywhere in the held-out data, the "
              "same in each; auto: all of them",
              between(1, limits::kCount), OnChange::kResults);
  options.add("eval.weights", eval.weights, "",
              "last: of the step; average: their average (optim.average)",
              one_of({"last", "average"}), OnChange::kResults);
}

void add_log_keys(Options& options, Config::Log& log) {
  options.add("log.every", log.every, "steps",
              "a line this often, and once a minute, off a terminal", between(1, limits::kSteps),
              OnChange::kNothing);
  options.add("log.trace", log.trace, "",
              "steps to trace, 12 or 10-12: what every rank computed, sent and waited for, as "
              "trace.json in the run folder; auto: none",
              {}, OnChange::kNothing);
  options.add("log.tensorboard", log.tensorboard, "",
              "also write what metrics.jsonl tells as TensorBoard's event files, into the run "
              "folder's tensorboard/",
              {}, OnChange::kNothing);
  options.add("log.stragglers", log.stragglers, "seconds",
              "compare the ranks' times and the nodes' links this often, name who is slow, and "
              "write ranks.json into the run folder; 0: never",
              between(0, limits::kSeconds), OnChange::kNothing);
}

void add_checkpoint_keys(Options& options, Config::Checkpoint& checkpoint) {
  options.add(
      "checkpoint.every", checkpoint.every, "steps",
      "checkpoint this often, and at the end; 0: only at the end; auto: as often as loses the "
      "least time, from the measured time of a checkpoint and checkpoint.mtbf",
      between(0, limits::kSteps), OnChange::kNothing);
  options.add("checkpoint.mtbf", checkpoint.mtbf, "hours",
              "mean time between failures of the whole job, for checkpoint.every auto",
              between(1e-6, limits::kSeconds), OnChange::kNothing);
  options.add(
      "checkpoint.keep", checkpoint.keep, "checkpoints",
      "how many of the newest to keep; while steps are skipped, also the newest from before",
      between(1, limits::kCount), OnChange::kNothing);
  options.add("checkpoint.margin", checkpoint.margin, "seconds",
              "to keep free between the last checkpoint before the job's time limit and the limit",
              between(0, limits::kSeconds), OnChange::kNothing);
}

void add_check_keys(Options& options, Config::Check& check) {
  options.add(
      "check.copies", check.copies, "steps",
      "compare the checksums of what ranks hold copies of (weights and optimizer state) this "
      "often, and at the end; reads them once; 0: never",
      between(0, limits::kSteps), OnChange::kNothing);
}

void add_plan_keys(Options& options, Config::Plan& plan) {
  constexpr double kShortest = 1e-9;
  options.add("plan.step", plan.step, "seconds",
              "what trireme plan has said of a step; auto: nothing. It writes these keys, and "
              "changes nothing but what is told beside the measured step",
              between(kShortest, limits::kSeconds), OnChange::kNothing);
  options.add("plan.low", plan.low, "seconds", "nine of ten steps are between this and plan.high",
              between(kShortest, limits::kSeconds), OnChange::kNothing);
  options.add("plan.high", plan.high, "seconds", "see plan.low",
              between(kShortest, limits::kSeconds), OnChange::kNothing);
  options.add("plan.ranks", plan.ranks, "ranks", "it is for so many; others are not compared",
              between(1, limits::kRanks), OnChange::kNothing);
  options.add("plan.device", plan.device, "", "it is for such devices", {}, OnChange::kNothing);
  options.add("plan.network", plan.network, "", "it is for such a network", {}, OnChange::kNothing);
}

void add_comm_keys(Options& options, Config::Comm& comm) {
  options.add(
      "comm.backend", comm.backend, "",
      "what carries tensors between ranks; on CPUs always mpi; auto: on GPUs nccl, where it "
      "is built in and no two ranks share a GPU, else mpi; a NCCL that is missing or older than "
      "2.26 ends the run, also with auto",
      one_of({"auto", "mpi", "nccl"}), OnChange::kCompared);
  options.add(
      "comm.timeout", comm.timeout, "seconds",
      "an operation under way for longer is a hang; while a checkpoint is written or read its "
      "bytes add to that; auto: 20 of the longest steps, at least 120, and 600 until some "
      "are measured",
      between(1e-3, limits::kSeconds), OnChange::kNothing);
  options.add(
      "comm.network", comm.network, "",
      "what the algorithms of collectives are chosen for: a file of rates, which trireme topo "
      "probe writes, a dump of ibnetdiscover, Slurm's topology.conf or topology.yaml, or one of "
      "each, separated by commas; auto: on several nodes this cluster's file (TRIREME_NETWORK, or "
      "~/.cache/trireme/network-CLUSTER.json), or else the dump that TRIREME_FABRIC names, Slurm's "
      "topology, and assumed rates; none: the default algorithms. With comm.order tree, sums have "
      "the same "
      "bits with each of them",
      not_empty(), OnChange::kSums);
  options.add(
      "comm.order", comm.order, "",
      "the order in which ranks add; tree: along one tree, so that neither the algorithm nor the "
      "places of the ranks change a bit; any: rings may be chosen too, which may be faster and "
      "change results by rounding. NCCL always has an order of its own",
      one_of({"tree", "any"}), OnChange::kRounding);
  options.add(
      "comm.reduce", comm.reduce, "",
      "the type in which gradients travel between data replicas; bf16: half the bytes, and every "
      "rank that sends a partial sum on rounds it to bf16, so that results depend on the algorithm",
      one_of({"fp32", "bf16"}), OnChange::kResults);
  options.add(
      "comm.compress", comm.compress, "",
      "the codes in which gradients travel between data replicas, at shard.stage 0 and 1; int8: "
      "with a scale for each 256 elements, about a quarter of the bytes; each replica keeps what "
      "its codes lose (4 bytes a parameter), which goes with the next step",
      one_of({"none", "int8"}), OnChange::kResults);
  options.add(
      "comm.algorithms", comm.algorithms, "",
      "auto: as comm.network says; or what carries collectives of every size, to compare them, as "
      "in all_reduce=halving,all_gather=bruck (trireme topo explain lists them)",
      not_empty(), OnChange::kSums);
  options.add(
      "comm.tune", comm.tune, "",
      "measure which algorithms are fastest here and take these; with comm.order tree, by trying "
      "some in turn in the first steps, which changes no bit; with any, before the first step, so "
      "that two starts may choose differently. Where NCCL carries the tensors it does nothing",
      {}, OnChange::kNothing);
  options.paths({"comm.network"}, PathForm::kList);
}

void add_nccl_keys(Options& options, Config::Nccl& nccl) {
  options.add(
      "nccl.tuner", nccl.tuner, "",
      "off: NCCL chooses its algorithms itself; network: by a table of what to take, by collective "
      "and size, which is made for the network that comm.network gives; or a file of rates, from "
      "which the table is made; or the file of a table",
      not_empty(), OnChange::kRounding);
  options.add("nccl.min_channels", nccl.min_channels, "channels",
              "at least so many blocks of a GPU carry a collective; auto: as NCCL decides",
              between(1, limits::kNcclChannels), OnChange::kRounding);
  options.add("nccl.max_channels", nccl.max_channels, "channels",
              "at most so many, which leaves more of the GPU to what it computes meanwhile",
              between(1, limits::kNcclChannels), OnChange::kRounding);
  options.add(
      "nccl.policy", nccl.policy, "",
      "what of a GPU collectives take from the computation beside them: default: what makes "
      "them fastest; efficiency: few channels (NCCL 2.27); zero: none where its copy engines "
      "can do it (NCCL 2.28)",
      one_of({"default", "efficiency", "zero"}), OnChange::kRounding);
  options.add("nccl.nvls_channels", nccl.nvls_channels, "channels",
              "for sums that NVSwitch adds up (NCCL 2.27)", between(1, limits::kNcclChannels),
              OnChange::kRounding);
  options.add("nccl.channels_per_peer", nccl.channels_per_peer, "channels",
              "for messages to a rank on another node (NCCL 2.28)",
              between(1, limits::kNcclChannels), OnChange::kNothing);
  options.add("nccl.traffic_class", nccl.traffic_class, "",
              "the network's traffic class, where the site has such", between(0, 255),
              OnChange::kNothing);
  options.add("nccl.collnet", nccl.collnet, "",
              "reductions inside of switches (SHARP), with NCCL's plugin for it (NCCL 2.27)", {},
              OnChange::kRounding);
  options.add("nccl.network", nccl.network, "",
              "IB, Socket, or the name of a network plugin: a run without this network ends "
              "instead of going on by a slower one",
              not_empty(), OnChange::kNothing);
  options.paths({"nccl.tuner"});
}

// Calls `visit` for each path of a list that commas separate.
void visit_each(std::string& list, const std::function<void(std::string&)>& visit) {
  std::string result;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    std::string path = list.substr(at, end - at);
    if (!path.empty()) visit(path);
    result += (at == 0 ? "" : ",") + path;
    at = end + 1;
  }
  list = std::move(result);
}

}  // namespace

void visit_paths(Config& config, const std::function<void(std::string&)>& visit) {
  visit(config.run.folder);
  if (config.run.resume != "auto" && config.run.resume != "never") visit(config.run.resume);
  if (config.run.start_from) visit(*config.run.start_from);
  for (WeightedPath& part : config.data.train) visit(part.path);
  for (WeightedPath& part : config.data.validation) visit(part.path);
  if (config.schedule.file) visit(*config.schedule.file);
  if (config.grid.order != "auto" && config.grid.order != "rank") visit(config.grid.order);
  if (config.comm.network != "auto" && config.comm.network != "none") {
    visit_each(config.comm.network, visit);
  }
  if (config.nccl.tuner != "off" && config.nccl.tuner != "network") visit(config.nccl.tuner);
}

void add_dimension_keys(Options& options, GridRequest& grid) {
  options.add("grid.data", grid[kDataAxes], "replicas",
              "data parallelism; auto: what the other two leave of the ranks",
              between(1, limits::kRanks), OnChange::kCompared);
  options.add("grid.pipeline", grid[Axis::kPipeline], "stages", "pipeline parallelism",
              between(1, limits::kRanks), OnChange::kCompared);
  options.add("grid.tensor", grid[Axis::kTensor], "ranks per stage", "tensor parallelism",
              between(1, limits::kRanks), OnChange::kCompared);
}

void add_model_keys(Options& options, models::ModelRequest& model) {
  const auto declare = [](Options& into, const std::string& family, OptionValues& values) {
    models::find_family(family).add_keys(into, values);
  };
  options.add_selector("model.family", model.family, model.keys,
                       "what kind of model it is, which decides on the other model keys",
                       one_of(models::family_names()), OnChange::kOtherRun, declare);
}

void add_shard_keys(Options& options, Config::Shard& shard) {
  options.add("shard.stage", shard.stage, "",
              "what data replicas hold only a shard of, instead of a copy (the stages of ZeRO); 0: "
              "nothing; 1: optimizer state and master weights; 2: gradients too (FSDP's "
              "shard-grad-op), of which only the blocks that compute have whole ones where each "
              "micro-batch is a run (batch.runs); 3: weights too, which are gathered for each "
              "block when it computes (FSDP's full shard). With comm.reduce fp32, over MPI, and "
              "equal batch.runs the results have the same bits",
              between(0, 3), OnChange::kSums);
  options.add("shard.group", shard.group, "ranks",
              "neighbouring ranks of the data dimension that share one copy, a divisor of "
              "grid.data; fewer than all: hybrid sharding; auto: those of a node where the network "
              "is known to be slower between nodes, or of as many nodes as it takes to fit into "
              "memory; otherwise all",
              between(2, limits::kRanks), OnChange::kRounding);
  options.add("shard.prefetch", shard.prefetch, "blocks",
              "shard.stage 3: weights of so many blocks are on their way while another computes; "
              "each holds the memory of a block",
              between(0, limits::kLayers), OnChange::kNothing);
}

void add_config_keys(Options& options, Config& config) {
  add_run_keys(options, config.run);
  add_model_keys(options, config.model);
  add_data_keys(options, config.data);
  add_batch_keys(options, config.batch);
  add_update_keys(options, config.optim);
  add_rule_keys(options, config.optim);
  add_average_keys(options, config.optim);
  add_gradient_keys(options, config.optim);
  add_schedule_keys(options, config.schedule);
  add_grid_keys(options, config.grid);
  add_sync_keys(options, config.sync);
  add_member_keys(options, config.sync);
  add_shard_keys(options, config.shard);
  add_recompute_keys(options, config.recompute);
  add_cuda_keys(options, config.cuda);
  add_attention_keys(options, config.attention);
  add_eval_keys(options, config.eval);
  add_log_keys(options, config.log);
  add_checkpoint_keys(options, config.checkpoint);
  add_check_keys(options, config.check);
  add_plan_keys(options, config.plan);
  add_comm_keys(options, config.comm);
  add_nccl_keys(options, config.nccl);
}

}  // namespace trireme
