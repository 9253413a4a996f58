#include <optional>

#include <fmt/format.h>

#include "trireme/base/clock.h"
#include "trireme/base/limits.h"
#include "trireme/base/log.h"
#include "trireme/inference/generator.h"
#include "trireme/inference/inference.h"
#include "trireme/tasks/texts.h"

#include "cli/commands.h"
#include "cli/inference_arguments.h"
#include "cli/model_tokenizer.h"
#include "cli/text_lines.h"

namespace trireme::cli {
namespace {

struct GenerateArguments {
  InferenceRequest inference;
  std::string prompt = "-";
  std::string tokenizer;
  SamplingOptions sampling{.temperature = 0.8};
  std::int64_t tokens = 200;
  std::int64_t seed = 1;
  bool stop_at_end_of_text = false;
};

void declare(Options& options, GenerateArguments& given) {
  options.add("prompt", given.prompt, "",
              "the text to continue; -: each line of standard input that is not empty is one");
  options.add("tokens", given.tokens, "tokens", "how many to add", between(1, limits::kCount));
  options.add("temperature", given.sampling.temperature, "",
              "below 1 likely tokens get likelier, above 1 less so; 0: always the likeliest",
              between(0, limits::kReal));
  options.add("top-k", given.sampling.top_k, "tokens", "draw from the likeliest alone; 0: from all",
              at_least(0));
  options.add("top-p", given.sampling.top_p, "probability",
              "draw from the likeliest tokens that together reach it",
              {.least = 0, .most = 1, .excludes_least = true, .choices = {}});
  options.add("seed", given.seed, "", "of the draws", at_least(0));
  options.add("stop-at-end-of-text", given.stop_at_end_of_text, "",
              "end a text where the model ends it");
  options.add(
      "tokenizer", given.tokenizer, "",
      "a tokenizer.json, a SentencePiece model, a folder with one, or a shard; default: the "
      "checkpoint's own");
  options.paths({"tokenizer"});
  declare_inference(options, given.inference);
}

// Throws ConfigError for a model that does not continue texts.
void check_continues_texts(const InferencePlan& plan) {
  const std::string& family = plan.training.model.family;
  const std::string_view task = models::find_family(family).task();
  if (task == "causal_language_model") return;
  throw ConfigError(
      fmt::format("{}: a model of {}, whose task is {}: trireme generate continues texts, {}",
                  plan.trained_on.origin, family, task,
                  task == "masked_language_model" ? "and trireme predict fills [MASK]s in them"
                                                  : "and trireme eval takes any model"));
}

TokenizerPtr tokenizer_to_continue(Communicator& comm, const InferenceModel& model,
                                   const std::string& shard) {
  const ModelTokenizer opened = open_model_tokenizer(comm, model, shard);
  tasks::check_tokenizer(model.trained_on(), *opened.tokenizer, opened.origin);
  const std::string remark =
      tasks::words_on_ends(model.trained_on(), *opened.tokenizer, opened.origin);
  if (comm.rank() == 0 && !remark.empty()) report_line(remark);
  return opened.tokenizer;
}

// Reads prompts, as many at a time as there are replicas. Rank 0 reads them and sends them to all.
class Prompts {
 public:
  // `all_need_one`: a replica without a prompt from the start is a mistake.
  Prompts(Communicator& comm, const std::string& prompt, int replicas, bool all_need_one)
      : comm_(comm), prompt_(prompt), replicas_(replicas), all_need_one_(all_need_one) {}

  // Returns no prompts after the last one. Throws ConfigError if there is none, or if replicas that
  // need one have none from the start.
  std::vector<std::string> next() {
    std::vector<std::string> prompts;
    while (static_cast<int>(prompts.size()) < replicas_) {
      const std::string read = comm_.read_once([this] { return read_one(); });
      if (read.empty()) break;
      ++count_;
      prompts.push_back(read);
    }
    if (count_ == 0) {
      throw ConfigError(prompt_ == "-" ? "standard input holds no prompt; give one by --prompt TEXT"
                                       : "--prompt is empty: give at least one character");
    }
    if (count_ < replicas_ && all_need_one_) {
      throw ConfigError(fmt::format(
          "grid.data is {}, but there {}: each replica continues a prompt of its own; "
          "use more pipeline stages (--grid.pipeline) or tensor ranks (--grid.tensor)",
          replicas_, count_ == 1 ? "is 1 prompt" : fmt::format("are {} prompts", count_)));
    }
    return prompts;
  }

 private:
  // Returns nothing after the last one.
  std::string read_one() {
    if (count_ > 0 && standard_output_fault() != 0) return "";  // nobody reads what follows
    if (prompt_ != "-") return count_ == 0 ? prompt_ : "";
    const std::optional<NamedText> line = lines_.next();
    return line ? line->text : "";
  }

  Communicator& comm_;
  std::string prompt_;
  TextLines lines_{std::vector<std::string>{"-"}};
  int replicas_;
  bool all_need_one_;
  int count_ = 0;
};

// Writes prompts and their continuations, on the rank that prints.
class Writer {
 public:
  Writer(TokenizerPtr tokenizer, bool speaks) : tokenizer_(std::move(tokenizer)), speaks_(speaks) {}

  void begin(const std::string& prompt) { write(prompt); }
  void token(std::int32_t token) { write(characters_.add(tokenizer_->bytes_of(token))); }
  void end() { write(characters_.rest() + "\n"); }

 private:
  void write(std::string_view text) const {
    if (speaks_) print_bytes(text);
  }

  TokenizerPtr tokenizer_;
  bool speaks_;
  Utf8Stream characters_;
};

// Generates for all prompts, from the first to the last.
class Session {
 public:
  Session(Runtime& runtime, const GenerateArguments& given)
      : runtime_(runtime),
        given_(given),
        prepared_(runtime, given.inference, {.micro = 1, .check = check_continues_texts}),
        tokenizer_(tokenizer_to_continue(runtime.world(), model_, given.tokenizer)),
        writer_(tokenizer_, runtime.rank() == 0) {}

  void run() {
    Generator generator(ctx_, model_.stage(), model_.model().plan.length, options());
    Prompts source(runtime_.world(), given_.prompt, prepared_.shape.extent(kDataAxes),
                   !model_.stage().collective());
    for (auto prompts = source.next(); !prompts.empty(); prompts = source.next()) {
      continue_texts(generator, prompts);
    }
    if (runtime_.rank() != 0) return;
    report_line(fmt::format("{} tokens in {:.1f} s, {:.1f} tokens/s", tokens_, seconds_,
                            static_cast<double>(tokens_) / seconds_));
  }

 private:
  GenerationOptions options() const {
    GenerationOptions options{.sampling = given_.sampling,
                              .seed = static_cast<std::uint64_t>(given_.seed),
                              .tokens = given_.tokens,
                              .vocabulary = tokenizer_->vocabulary(),
                              .begin = tokenizer_->begin_of_text()};
    options.far_from = model_.model().far_from;
    if (model_.training().data.mask_documents) options.document_end = tokenizer_->end_of_text();
    if (given_.stop_at_end_of_text) options.stop_token = tokenizer_->end_of_text();
    return options;
  }

  void continue_texts(Generator& generator, const std::vector<std::string>& prompts) {
    std::vector<std::vector<std::int32_t>> encoded;
    for (const std::string& prompt : prompts) {
      encoded.push_back(tokens_of(prompt));
      say_if_too_long(std::ssize(encoded.back()));
    }
    const Stopwatch watch;
    writer_.begin(prompts[0]);
    const auto texts = generator.generate_on_replicas(
        encoded, number_, [this](std::int32_t token) { writer_.token(token); });
    // The first replica's text was written while it was generated, if rank 0 is one of its ranks.
    // With grid.order it may be a rank of another.
    if (prepared_.grid.index(kDataAxes) != 0) {
      for (const std::int32_t token : texts[0]) writer_.token(token);
    }
    writer_.end();
    for (std::size_t i = 1; i < texts.size(); ++i) {
      writer_.begin(prompts[i]);
      for (const std::int32_t token : texts[i]) writer_.token(token);
      writer_.end();
    }
    seconds_ += watch.seconds();
    for (const auto& text : texts) tokens_ += std::ssize(text);
    number_ += prompts.size();
  }

  std::vector<std::int32_t> tokens_of(const std::string& prompt) const {
    std::vector<std::int32_t> tokens;
    if (const auto begin = tokenizer_->begin_of_text()) tokens.push_back(*begin);
    tokenizer_->encode(prompt, tokens);
    return tokens;
  }

  void say_if_too_long(std::int64_t tokens) {
    const std::int64_t context = model_.model().plan.length;
    if (tokens <= context || said_too_long_) return;
    said_too_long_ = true;
    if (runtime_.rank() != 0) return;
    report_line(fmt::format(
        "a prompt of {} tokens is longer than the model's context of {}: its last {} count", tokens,
        context, context));
  }

  Runtime& runtime_;
  const GenerateArguments& given_;
  PreparedInference prepared_;
  ops::Context& ctx_ = prepared_.device.context;
  const InferenceModel& model_ = prepared_.model;
  TokenizerPtr tokenizer_;
  Writer writer_;
  bool said_too_long_ = false;
  std::uint64_t number_ = 0;  // of the next prompt
  std::int64_t tokens_ = 0;
  double seconds_ = 0.0;
};

ExitStatus generate_on_ranks(Runtime& runtime, const GenerateArguments& given) {
  Session session(runtime, given);
  session.run();
  return ExitStatus::kDone;
}

}  // namespace

Work parse_generate(const Arguments& arguments) {
  GenerateArguments given;
  Options options("trireme generate --checkpoint RUN_OR_FILE [--prompt TEXT] [--KEY VALUE]...");
  declare(options, given);
  options.parse(arguments);
  if (options.help_requested()) return show_help(options.description());
  check_inference(given.inference);
  return {.alone = {},
          .on_ranks = [given](Runtime& runtime) { return generate_on_ranks(runtime, given); }};
}

}  // namespace trireme::cli
