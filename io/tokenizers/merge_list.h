// The list of merges that makes BPE of a tokenizer.json give the tokens of a BPE that knows scores
// of tokens alone: SentencePiece's and tiktoken's, where two neighbours merge if together they are
// a token, the one with the best score first, of equal ones the leftmost.
#pragma once

#include <string_view>
#include <unordered_set>
#include <vector>

#include "trireme/base/json.h"

namespace trireme {

// Returns pairs of texts. `tokens`: those that merges may make, the best first. `parts`: those that
// may merge. Texts are valid UTF-8, cut between characters.
Json merge_list(const std::vector<std::string_view>& tokens,
                const std::unordered_set<std::string_view>& parts);

}  // namespace trireme
