// What a model's logits say of the classes or tokens that it knows.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace trireme {

// Writes the softmax of a row of logits over it.
void make_probabilities(std::span<float> row);

// Throws the CheckpointError of a model whose probabilities are not finite. A training that
// diverged leaves such weights, imported ones may be damaged, and fp16 ends at 65504.
[[noreturn]] void refuse_probabilities();
// Throws the same unless all are finite.
void check_probabilities(std::span<const float> all);

// Returns the numbers of the `count` largest, or of all if there are fewer, from the largest down;
// of equal ones the first comes first.
std::vector<std::size_t> likeliest(std::span<const float> probabilities, std::size_t count);

}  // namespace trireme
