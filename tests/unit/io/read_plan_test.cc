// How a checkpoint's file is shared out among the ranks that read it, for worlds of any size.
#include "io/checkpoints/read_plan.h"

#include <algorithm>
#include <iostream>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "io/checkpoints/shared_read.h"

namespace trireme {
namespace {

struct ModelFile {
  std::vector<CheckpointTensor> tensors;

  void add(const std::string& name, const Shape& shape, DType dtype = DType::kF32,
           std::int64_t gap = 96) {
    const std::int64_t end =
        tensors.empty() ? 2048 : tensors.back().offset + tensors.back().bytes();
    tensors.push_back({name, shape, dtype, end + gap, 0});
  }
  std::vector<const CheckpointTensor*> all() const {
    std::vector<const CheckpointTensor*> pointers;
    for (const CheckpointTensor& tensor : tensors) pointers.push_back(&tensor);
    return pointers;
  }
};

// Weights and two moments of a GPT-2 of 124 million parameters.
ModelFile gpt2() {
  ModelFile file;
  for (const char* kind : {"exp_avg", "exp_avg_sq", "parameter"}) {
    for (int layer = 0; layer < 12; ++layer) {
      const std::string block = fmt::format("{}.blocks.{:02d}.", kind, layer);
      for (const char* name : {"query", "key", "value"}) {
        file.add(block + name, {768, 768});
        file.add(block + name + ".bias", {768});
      }
      file.add(block + "output", {768, 768});
      file.add(block + "up", {3072, 768});
      file.add(block + "down", {768, 3072});
      file.add(block + "norm", {768});
    }
    file.add(fmt::format("{}.embedding", kind), {50257, 768});
  }
  return file;
}

// What tensor rank `rank` of `ranks` wants: rows of some matrices, columns of others, vectors
// whole.
std::vector<TensorSlice> split(const ModelFile& file, int rank, int ranks) {
  std::vector<TensorSlice> slices;
  for (const CheckpointTensor& tensor : file.tensors) {
    TensorSlice slice = {tensor.name, tensor.shape, {0, 0}, tensor.shape, {}, {}};
    const bool columns = tensor.name.ends_with("output") || tensor.name.ends_with("down");
    slice.start.resize(static_cast<std::size_t>(tensor.shape.rank()));
    if (tensor.shape.rank() == 2) {
      const int dimension = columns ? 1 : 0;
      const std::int64_t whole = tensor.shape[dimension], each = (whole + ranks - 1) / ranks;
      const std::int64_t begin = std::min(whole, each * rank);
      slice.start[static_cast<std::size_t>(dimension)] = begin;
      slice.extent = tensor.shape.with(dimension, std::min(each, whole - begin));
    }
    slice.range = FlatRange{0, slice.extent.elements()};
    slices.push_back(std::move(slice));
  }
  return slices;
}

TEST(ReadPlan, EveryElementIsInOnePartWhateverTheRuns) {
  ModelFile file;
  file.add("a", {3, 5}, DType::kF32, 2);  // not aligned to its elements
  file.add("empty", {0, 4});
  file.add("b", {100, 999}, DType::kI64, 4);
  file.add("c", {7}, DType::kF64, 0);
  file.add("far", {5000}, DType::kF32, 1 << 20);
  for (const ReadWorld world : {ReadWorld{1, 1}, {3, 1}, {1, 4}, {2, 3}}) {
    for (const std::int64_t shortest : {4096, 12288, 1 << 20}) {
      const ReadPlan plan(file.all(), world, {shortest, shortest, 1 << 20});
      std::map<std::size_t, std::int64_t> next;  // element of each tensor
      for (std::int64_t round = 0; round < plan.rounds(); ++round) {
        for (int replica = 0; replica < world.replicas; ++replica) {
          const ReadPlan::Run run = plan.run(round, replica);
          for (const ReadPlan::Part& part : run.parts) {
            const CheckpointTensor& tensor = *plan.tensors()[part.tensor];
            const auto size = static_cast<std::int64_t>(size_of(tensor.dtype));
            EXPECT_EQ(part.elements.begin, next[part.tensor]) << tensor.name;
            next[part.tensor] = part.elements.end;
            // What was read is where the part looks for it.
            const std::int64_t first = tensor.offset + part.elements.begin * size;
            const std::int64_t last = tensor.offset + part.elements.end * size;
            bool read = false;
            for (const ReadPlan::Read& each : run.reads) {
              const std::int64_t shift = each.offset - each.at;
              read =
                  read || (first - part.at == shift && first >= each.offset &&
                           last <= each.offset + each.bytes && each.at + each.bytes <= run.bytes);
            }
            EXPECT_TRUE(read) << tensor.name;
          }
        }
      }
      for (std::size_t i = 0; i < plan.tensors().size(); ++i) {
        EXPECT_EQ(next[i], plan.tensors()[i]->shape.elements());
        EXPECT_TRUE(plan.is_read(i, plan.rounds() - 1));
      }
    }
  }
}

// Each replica by itself read the whole file, columns of 8 ranks in runs of 384 or 1,536 bytes.
TEST(ReadPlan, AWorldReadsTheFileOnceInLongRuns) {
  const ModelFile file = gpt2();
  std::int64_t model = 0;
  for (const CheckpointTensor& tensor : file.tensors) model += tensor.bytes();
  for (const auto& [world, reads_a_rank] :
       {std::pair{ReadWorld{8, 8}, 3}, {ReadWorld{64, 1}, 23}, {ReadWorld{512, 8}, 3}}) {
    const int all = world.replicas * world.ranks;
    const ReadPlan plan(file.all(), world);
    std::vector<WantedSlices> wanted;
    std::int64_t largest = 0;  // part of the model
    for (int rank = 0; rank < world.ranks; ++rank) {
      wanted.push_back(wanted_of(plan, split(file, rank, world.ranks)));
      std::int64_t bytes = 0;
      for (const TensorSlice& slice : wanted.back().slices) bytes += slice.elements() * 4;
      largest = std::max(largest, bytes);
    }
    const ReadCost cost = cost_of(plan, world, wanted);
    std::cout << fmt::format(
        "{} ranks, {} tensor ranks: {} reads, {} KiB in the middle, {} KiB at most; {:.4f} x the "
        "model read; the busiest rank sends {:.2f} x its part of the model; {} MiB on the way\n",
        all, world.ranks, cost.reads, cost.median_read >> 10, cost.longest_read >> 10,
        static_cast<double>(cost.bytes_read) / static_cast<double>(model),
        static_cast<double>(cost.most_sent) / static_cast<double>(largest), cost.most_held >> 20);
    EXPECT_GE(cost.bytes_read, model);
    EXPECT_LE(cost.bytes_read, model + model / 100);
    EXPECT_GE(cost.median_read, 64 << 10);
    EXPECT_LE(cost.reads, all * reads_a_rank);
    EXPECT_LE(cost.most_held, 64 << 20);
    EXPECT_LE(cost.most_sent, 2 * largest);
  }
}

}  // namespace
}  // namespace trireme
