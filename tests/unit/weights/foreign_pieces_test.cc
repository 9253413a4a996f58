// How ranks share the tensors of a foreign model: every element is moved once, and to its place.
#include "weights/foreign_pieces.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::testing {
namespace {

using models::ForeignModel;
using models::ForeignTensor;

std::vector<float> counted(const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

// The elements of all of ours after `ranks` ranks have read files of numbers 0, 1, 2, ..., by name.
// What nobody has read is -1.
std::map<std::string, std::vector<float>> read_by(const ForeignModel& model, int ranks,
                                                  std::int64_t most) {
  std::map<std::string, std::vector<float>> ours;
  for (const ForeignTensor& tensor : model.tensors) {
    for (const models::ForeignPart& part : tensor.parts) {
      ours.emplace(part.ours,
                   std::vector<float>(static_cast<std::size_t>(part.shape.elements()), -1.0f));
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    for (ForeignPiece& piece : foreign_pieces(model, 0, model.tensors.size(), rank, ranks)) {
      piece.allocate();
      const std::vector<float> file = counted(model.tensors[piece.tensor].shape);
      for_each_run(piece, most, [&](const ForeignRun& run) {
        const auto values = std::span(file).subspan(static_cast<std::size_t>(run.foreign),
                                                    static_cast<std::size_t>(run.count));
        take_run(piece, run, values);
        std::vector<float> back(values.size());
        give_run(piece, run, back);
        EXPECT_TRUE(std::ranges::equal(back, values));
      });
      const TensorSlice& slice = piece.slice;
      std::vector<float>& whole = ours.at(slice.name);
      for (std::size_t i = 0; i < piece.memory.size(); ++i) {
        auto rest = static_cast<std::int64_t>(i);
        std::int64_t place = 0, stride = 1;
        for (int d = slice.extent.rank() - 1; d >= 0; --d) {
          place += (rest % slice.extent[d] + slice.start[static_cast<std::size_t>(d)]) * stride;
          rest /= slice.extent[d];
          stride *= slice.global[d];
        }
        EXPECT_EQ(whole[static_cast<std::size_t>(place)], -1.0f) << slice.name;
        whole[static_cast<std::size_t>(place)] = piece.memory[i];
      }
    }
  }
  return ours;
}

ForeignModel every_layout() {
  return {.format = "a model",
          .tensors = {models::same_tensor("same", "same", {5, 7}),
                      models::same_tensor("vector", "vector", {70'001}),
                      models::same_tensor("large", "large", {300, 311}),
                      models::same_tensor("none", "none", {0, 4}),
                      models::transposed_tensor("turned", "turned", {260, 259}),
                      models::fused_transposed("fused", {"q", "k", "v"}, {{3, 5}, {2, 5}, {3, 5}}),
                      models::convolution_tensor("picture", "picture", {40, 3, 5, 120}),
                      models::convolution_tensor("depthwise", "depthwise", {6, 3, 3, 1}),
                      models::state_row("mean", "running", {2, 9}, 0),
                      models::state_row("variance", "running", {2, 9}, 1)}};
}

TEST(ForeignPieces, EveryElementGoesToItsPlaceOnce) {
  const ForeignModel model = every_layout();
  for (const int ranks : {1, 2, 3, 7}) {
    for (const std::int64_t most : {1, 6, 100, 100'000}) {
      const auto ours = read_by(model, ranks, most);
      const auto at = [&](const std::string& name, std::int64_t place) {
        return ours.at(name)[static_cast<std::size_t>(place)];
      };
      EXPECT_EQ(ours.at("parameters/same"), counted({5, 7}));
      EXPECT_EQ(ours.at("parameters/vector"), counted({70'001}));
      EXPECT_EQ(ours.at("parameters/large"), counted({300, 311}));
      EXPECT_EQ(ours.at("state/running"),
                (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8}));
      for (std::int64_t row = 0; row < 260; ++row) {
        for (std::int64_t column = 0; column < 259; ++column) {
          ASSERT_EQ(at("parameters/turned", row * 259 + column),
                    static_cast<float>(column * 260 + row));
        }
      }
      // (5, 8): the columns of q are 0 to 2, of k 3 and 4, of v 5 to 7.
      EXPECT_EQ(at("parameters/q", 2 * 5 + 4), 4 * 8 + 2);
      EXPECT_EQ(at("parameters/k", 1 * 5 + 3), 3 * 8 + 4);
      EXPECT_EQ(at("parameters/v", 0 * 5 + 1), 1 * 8 + 5);
      for (std::int64_t out = 0; out < 40; ++out) {
        for (std::int64_t y = 0; y < 3; ++y) {
          for (std::int64_t x = 0; x < 5; ++x) {
            for (std::int64_t in = 0; in < 120; ++in) {
              ASSERT_EQ(at("parameters/picture", ((out * 3 + y) * 5 + x) * 120 + in),
                        static_cast<float>(((out * 120 + in) * 3 + y) * 5 + x));
            }
          }
        }
      }
    }
  }
}

// A rank reads long runs, and no more of large tensors than its share.
TEST(ForeignPieces, AreEvenAndLong) {
  const ForeignModel model = {.format = "a model",
                              .tensors = {models::fused_transposed(
                                  "fused", {"q", "k", "v"}, {{512, 512}, {512, 512}, {512, 512}})}};
  for (int rank = 0; rank < 4; ++rank) {
    std::int64_t elements = 0;
    for (const ForeignPiece& piece : foreign_pieces(model, 0, 1, rank, 4)) {
      elements += piece.slice.elements();
      for_each_run(piece, 1 << 20, [](const ForeignRun& run) { EXPECT_EQ(run.count, 512); });
    }
    EXPECT_EQ(elements, 3 * 512 * 512 / 4);
  }
}

}  // namespace
}  // namespace trireme::testing
