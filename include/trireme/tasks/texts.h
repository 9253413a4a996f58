// Texts as the data of tasks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/io/dataset.h"
#include "trireme/io/tokenizer.h"
#include "trireme/nn/host_micro_batch.h"
#include "trireme/ops/context.h"
#include "trireme/tasks/task.h"

namespace trireme {

// A micro-batch of texts on the host: the fields kTokens and kTargets, and kFirstKey if attention
// does not cross the borders of documents. Their contents are undefined.
nn::HostMicroBatch make_host_texts(ops::Context& ctx, std::int64_t batch, std::int64_t length,
                                   bool masks_documents);

// Returns samples [begin, begin + micro) of a batch of data as a micro-batch. Samples past the end
// of `data` are padding with masked targets.
nn::MicroBatch make_micro_batch(ops::Context& ctx, const TokenBatch& data, std::int64_t context,
                                std::size_t begin, std::int64_t micro, bool training);

// Identifies a tokenizer by a hash of its kind and model: "xxh64:0123456789abcdef". Checkpoints
// carry it as their extra attribute kTokenizerAttribute, so that a model is not used with another
// tokenizer.
std::string tokenizer_checksum(const Tokenizer& tokenizer);
inline constexpr const char* kTokenizerAttribute = "tokenizer";

// Identifies what tokens stand for, whatever file says it: a hash of the bytes of each, none of
// special ones. Empty where none stands for any.
std::string tokens_checksum(const Tokenizer& tokenizer);
inline constexpr const char* kTokensAttribute = "token_bytes";
inline constexpr const char* kNoToken = "none";

// The tokens around texts, as checkpoints keep them: numbers, or "none".
inline constexpr const char* kBeginOfTextAttribute = "begin_of_text";
inline constexpr const char* kEndOfTextAttribute = "end_of_text";

namespace tasks {
// What a checkpoint says of the tokens of its weights, whatever they were trained on: the last
// three of the attributes above.
std::vector<DataMark> marks_of_tokens(const Tokenizer& tokenizer);
}  // namespace tasks

namespace tasks {

// What is known of the tokens of data, or of those that a model was trained with.
struct KnownTokens {
  std::string name;             // in errors: "data.train", "the model of FILE"
  std::int32_t vocabulary = 0;  // with the special tokens that a task adds to the tokenizer's
  std::string tokenizer = {};   // tokenizer_checksum; empty: not known
  std::string tokens = {};      // tokens_checksum; empty: not known
  bool has_added = false;       // whether a task added some; the error tells it
  bool may_have_more = false;   // of a model: whether it may have more rows than tokens
};
// Throws DataError unless both have the same tokens, as far as is known: compares the sizes of the
// vocabularies, then the checksums of the tokenizers, and where these differ those of the tokens. A
// model with more rows than these tokens has padding, unless its own tokens are known to be others,
// or a task added some behind them. `remedy` says in the error what would be right.
void check_same_tokens(const KnownTokens& tokens, const KnownTokens& expected,
                       std::string_view remedy);

// Throws DataError unless the model was trained with this tokenizer, as far as its checkpoint
// tells: compares the size of the vocabulary, and the checksum where there is one. `origin` says in
// errors where the tokenizer comes from. `vocabulary`: of the model's data, where the task adds
// tokens to the tokenizer's.
void check_tokenizer(const TrainedOn& model, const Tokenizer& tokenizer, const std::string& origin,
                     std::optional<std::int32_t> vocabulary = {});

// Tells where texts of this tokenizer have other tokens around them than those that the model was
// trained on, as far as its checkpoint tells; empty: they have not.
std::string words_on_ends(const TrainedOn& model, const Tokenizer& tokenizer,
                          const std::string& origin);

// The sum of -log2 p over all tokens of a text of so many bytes, for a byte. `loss_sum` is in nats.
double bits_per_byte(double loss_sum, std::int64_t bytes);

// Returns open texts as the data of the causal language model.
std::shared_ptr<const TaskData> texts(std::shared_ptr<const TokenDataset> data,
                                      bool masks_documents);

}  // namespace tasks

}  // namespace trireme
