// A tokenizer as the files that Hugging Face's transformers and tokenizers load.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "trireme/io/tokenizer.h"

namespace trireme {

// Returns contents by name: `tokenizer.json`, which is the file itself where the tokenizer is
// Hugging Face's, and `tokenizer_config.json`, which names the tokens that begin and end texts.
// What they encode begins with begin_of_text(), if there is one. `longest_text`, in tokens, is the
// model's context.
//
// All numbers of tokens stay, and texts have the tokens that ours gives, with three exceptions:
// - Names of special tokens in a text become these tokens unless `encode_special_tokens` (in
//   transformers `split_special_tokens`) is set. Here they are ordinary text.
// - With our own SentencePiece models, lines longer than Tokenizer::kSegmentBytes are not cut into
//   segments.
// - Of equally good ways to cut a run of characters, Unigram may take another: SentencePiece adds
//   up scores in single precision.
//
// AutoTokenizer of transformers 5 gives models of the type qwen2 the class of Qwen's own tokenizer,
// whatever a folder says: there PreTrainedTokenizerFast.from_pretrained() loads the files.
//
// Throws DataError for what a tokenizer.json cannot say: tokens that are numbers without text, and
// SentencePiece models with a map of characters, of words, with unused pieces and so on. The
// message names it.
std::map<std::string, std::string> hugging_face_files(const Tokenizer& tokenizer,
                                                      std::int64_t longest_text);

}  // namespace trireme
