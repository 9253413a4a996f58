// What BERT does with a text before its words are cut into tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// What BertNormalizer does.
struct BertText {
  bool cleans_text, spaces_chinese, strips_accents, lowers_case;
};

std::string bert_text(std::string_view text, const BertText& options);

// The words of a text as BertPreTokenizer finds them: without white space, and a punctuation mark
// is a word by itself.
std::vector<std::string_view> bert_words(std::string_view text);

}  // namespace trireme
