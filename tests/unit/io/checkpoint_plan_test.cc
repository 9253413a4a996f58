// The plan of a checkpoint as rank 0 draws it: what it holds, what it refuses, and how much of it
// travels.
#include "io/checkpoints/checkpoint_plan.h"

#include <algorithm>
#include <iostream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

#include "support/message_of.h"

namespace trireme {
namespace {

// The memory is never looked at.
float memory[1];

// Columns [part, part + 1) of `parts` equal ones of a matrix.
TensorSlice columns(const std::string& name, std::int64_t rows, std::int64_t width, int parts,
                    int part) {
  TensorSlice slice;
  slice.name = name;
  slice.global = Shape({rows, width});
  slice.start = {0, width / parts * part};
  slice.extent = Shape({rows, width / parts});
  slice.local = Tensor::wrap(memory, {rows, width / parts}, DType::kF32);
  return slice;
}

TensorSlice whole(const std::string& name, std::int64_t length) {
  return TensorSlice::whole(name, Tensor::wrap(memory, {length}, DType::kF32));
}

std::vector<std::string> described(const std::vector<std::vector<TensorSlice>>& of_ranks) {
  std::vector<std::string> texts;
  for (const auto& slices : of_ranks) texts.push_back(describe_slices(slices));
  return texts;
}

TEST(CheckpointPlan, RankZeroKnowsAllAndOwnersTheirScatteredTensors) {
  const DrawnPlan drawn = draw_plan(
      described({{whole("parameters/b", 7), columns("parameters/wide", 1024, 1024, 2, 0)},
                 {},
                 {columns("parameters/wide", 1024, 1024, 2, 1), whole("parameters/a", 3)}}));
  ASSERT_EQ(drawn.plan.tensors.size(), 3u);
  EXPECT_EQ(drawn.plan.tensors[0].name, "parameters/a");
  EXPECT_EQ(drawn.plan.tensors[2].shape, Shape({1024, 1024}));
  EXPECT_EQ(drawn.plan.slices, (std::vector<std::vector<std::int32_t>>{{1, 2}, {}, {2, 0}}));
  EXPECT_EQ(drawn.answers[0], drawn.answers[2]);
  EXPECT_EQ(drawn.answers[1], "");

  CheckpointPlan of_owner;
  of_owner.scattered = read_answer(drawn.answers[2]);
  EXPECT_EQ(of_owner.find_scattered("parameters/a"), nullptr);  // in one piece
  const ScatteredTensor* wide = of_owner.find_scattered("parameters/wide");
  ASSERT_NE(wide, nullptr);
  EXPECT_EQ(wide->tensor.dtype, DType::kF32);
  ASSERT_EQ(wide->parts.size(), 2u);
  EXPECT_EQ(wide->parts[1].rank, 2);
  EXPECT_EQ(wide->parts[1].slice.start, (std::vector<std::int64_t>{0, 512}));
  EXPECT_EQ(wide->parts[1].slice.extent, Shape({1024, 512}));
  EXPECT_EQ(wide->parts[1].slice.range->end, 1024 * 512);
}

TEST(CheckpointPlan, ContradictionsAreNamed) {
  const auto refusal = [](const std::vector<std::vector<TensorSlice>>& of_ranks) {
    return testing::message_of<InternalError>([&] { draw_plan(described(of_ranks)); });
  };
  EXPECT_EQ(refusal({{whole("parameters/a", 3)}, {whole("parameters/a", 4)}}),
            "tensor parameters/a is fp32 (3) on rank 0 and fp32 (4) on rank 1");
  EXPECT_EQ(refusal({{whole("parameters/a", 3)}, {whole("parameters/a", 3)}}),
            "tensor parameters/a: ranks 0 and 1 both own some of it");
  EXPECT_EQ(refusal({{columns("parameters/w", 4, 8, 2, 0)}, {}}),
            "tensor parameters/w (4, 8): the ranks own 16 of its 32 elements");
}

// A GPT of 96 layers, 12 tensors each with two moments, over 8 tensor ranks and 8 stages; the
// replicas behind the first own nothing.
std::vector<std::vector<TensorSlice>> slices_of_gpt(int ranks) {
  constexpr int kTensor = 8, kStages = 8, kLayers = 96, kMatrices = 12;
  std::vector<std::vector<TensorSlice>> of_ranks(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < kTensor * kStages; ++rank) {
    const int stage = rank / kTensor;
    for (int layer = stage * kLayers / kStages; layer < (stage + 1) * kLayers / kStages; ++layer) {
      for (int matrix = 0; matrix < kMatrices; ++matrix) {
        const std::string name = fmt::format("blocks.{}.feed_forward.weight{}", layer, matrix);
        for (const std::string& tensor :
             {fmt::format("parameters/{}", name), fmt::format("optimizer/{}/exp_avg", name),
              fmt::format("optimizer/{}/exp_avg_sq", name)}) {
          of_ranks[static_cast<std::size_t>(rank)].push_back(
              columns(tensor, 12288, 12288, kTensor, rank % kTensor));
        }
      }
    }
  }
  return of_ranks;
}

TEST(CheckpointPlan, WhatTravelsDoesNotGrowWithTheRanks) {
  std::size_t most[2] = {};
  for (int i = 0; const int ranks : {64, 4096}) {
    const std::vector<std::string> texts = described(slices_of_gpt(ranks));
    const DrawnPlan drawn = draw_plan(texts);
    EXPECT_EQ(drawn.plan.tensors.size(), 96u * 12 * 3);
    std::size_t all = 0, longest = 0, answer = 0;
    for (const std::string& text : texts) {
      all += text.size();
      longest = std::max(longest, text.size());
    }
    for (const std::string& text : drawn.answers) answer = std::max(answer, text.size());
    std::cout << ranks << " ranks: rank 0 gathers " << all
              << " bytes, any other rank sends at most " << longest << " of its own and gets "
              << answer << "; an all-gather would bring every rank "
              << longest * static_cast<std::size_t>(ranks) << "\n";
    most[i++] = all + answer;
    EXPECT_LT(longest, std::size_t{32} << 10);
    EXPECT_LT(answer, std::size_t{128} << 10);
  }
  EXPECT_EQ(most[0], most[1]);
}

}  // namespace
}  // namespace trireme
