#include "checkpoint_plan.h"

#include <algorithm>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"

#include "tensor_slab.h"
#include "together.h"

namespace trireme {
namespace {

constexpr std::int64_t kWriteBytes = std::int64_t{64} << 20;
// Below this the short runs of a rank go through the page cache faster than ranks can agree.
constexpr std::int64_t kScatteredBytes = std::int64_t{1} << 20;
constexpr std::int64_t kShortRunBytes = std::int64_t{256} << 10;

struct Gathered {
  Shape shape;
  DType dtype = DType::kF32;
  std::vector<OwnedPart> parts;
};

// "name dtype dimensions global... start... extent... begin end", one line a slice. Names hold no
// spaces.
std::string describe(const TensorSlice& slice) {
  std::string line = fmt::format("{} {} {}", slice.name, static_cast<int>(slice.local.dtype()),
                                 slice.global.rank());
  for (const std::int64_t n : slice.global.extents()) line += fmt::format(" {}", n);
  for (const std::int64_t n : slice.start) line += fmt::format(" {}", n);
  for (const std::int64_t n : slice.extent.extents()) line += fmt::format(" {}", n);
  const FlatRange range = slice.range.value_or(FlatRange{0, slice.extent.elements()});
  return line + fmt::format(" {} {}\n", range.begin, range.end);
}

void add_line(const std::string& line, int rank, std::map<std::string, Gathered>& tensors) {
  std::istringstream words(line);
  OwnedPart part;
  part.rank = rank;
  int dtype = 0, dimensions = 0;
  words >> part.slice.name >> dtype >> dimensions;
  const auto numbers = [&] {
    std::vector<std::int64_t> values(static_cast<std::size_t>(dimensions));
    for (std::int64_t& value : values) words >> value;
    return values;
  };
  part.slice.global = Shape(numbers());
  part.slice.start = numbers();
  part.slice.extent = Shape(numbers());
  part.slice.range.emplace();
  words >> part.slice.range->begin >> part.slice.range->end;

  const auto [at, fresh] = tensors.try_emplace(part.slice.name);
  Gathered& tensor = at->second;
  if (fresh) {
    tensor.shape = part.slice.global;
    tensor.dtype = static_cast<DType>(dtype);
  }
  if (tensor.shape != part.slice.global || tensor.dtype != static_cast<DType>(dtype)) {
    throw InternalError(fmt::format("tensor {} is {} {} on rank {} and {} {} on rank {}", at->first,
                                    name_of(tensor.dtype), tensor.shape.to_string(),
                                    tensor.parts.front().rank, name_of(static_cast<DType>(dtype)),
                                    part.slice.global.to_string(), rank));
  }
  tensor.parts.push_back(std::move(part));
}

bool intersect(const hdf5::Box& a, const hdf5::Box& b) {
  for (std::size_t d = 0; d < a.start.size(); ++d) {
    if (a.start[d] >= b.start[d] + b.count[d] || b.start[d] >= a.start[d] + a.count[d]) {
      return false;
    }
  }
  return true;
}

void check_cover(const std::string& name, const Gathered& tensor) {
  struct Owned {
    int rank;
    hdf5::Box box;
    std::int64_t first() const { return box.start.empty() ? 0 : box.start[0]; }
    std::int64_t last() const { return box.start.empty() ? 1 : box.start[0] + box.count[0]; }
  };
  std::vector<Owned> all;
  std::int64_t covered = 0;
  for (const OwnedPart& part : tensor.parts) {
    for (const hdf5::Box& box : boxes_of(part.slice)) {
      all.push_back({part.rank, globally(part.slice, box)});
      covered += box.elements();
    }
  }
  std::sort(all.begin(), all.end(),
            [](const Owned& a, const Owned& b) { return a.first() < b.first(); });
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = i + 1; j < all.size() && all[j].first() < all[i].last(); ++j) {
      if (!intersect(all[i].box, all[j].box)) continue;
      throw InternalError(fmt::format("tensor {}: ranks {} and {} both own some of it", name,
                                      std::min(all[i].rank, all[j].rank),
                                      std::max(all[i].rank, all[j].rank)));
    }
  }
  if (covered != tensor.shape.elements()) {
    throw InternalError(fmt::format("tensor {} {}: the ranks own {} of its {} elements", name,
                                    tensor.shape.to_string(), covered, tensor.shape.elements()));
  }
}

// Whether a slice lies in the file in short runs.
bool is_scattered(const OwnedPart& part, DType dtype) {
  TensorSlice slice = part.slice;
  for (const hdf5::Box& box : boxes_of(slice)) {
    if (box.elements() == 0) continue;
    std::int64_t run = 1;
    for (int d = slice.global.rank() - 1; d >= 0; --d) {
      run *= box.count[static_cast<std::size_t>(d)];
      if (box.count[static_cast<std::size_t>(d)] != slice.global[d]) break;
    }
    if (run < box.elements() && run * static_cast<std::int64_t>(size_of(dtype)) < kShortRunBytes) {
      return true;
    }
  }
  return false;
}

PlannedTensor planned(const std::string& name, Gathered&& tensor, int ranks) {
  PlannedTensor plan{name, tensor.shape, tensor.dtype, false, std::move(tensor.parts)};
  const auto bytes = plan.elements() * static_cast<std::int64_t>(size_of(plan.dtype));
  if (ranks > 1 && bytes >= kScatteredBytes) {
    plan.scattered = std::any_of(plan.parts.begin(), plan.parts.end(), [&](const OwnedPart& part) {
      return is_scattered(part, plan.dtype);
    });
  }
  return plan;
}

void check_name(const std::string& name) {
  const auto slash = name.find('/');
  const std::string top = name.substr(0, slash);
  const bool known = top == "parameters" || top == "optimizer" || top == "state";
  if (!known || slash == std::string::npos || name.back() == '/' ||
      name.find("//") != std::string::npos || name.find_first_of(" \t\n\r") != std::string::npos) {
    throw InternalError("a checkpoint cannot hold a tensor named '" + name + "'");
  }
}

}  // namespace

std::vector<hdf5::Box> writes_of(const TensorSlice& slice) {
  const auto limit = kWriteBytes / static_cast<std::int64_t>(size_of(slice.local.dtype()));
  std::vector<hdf5::Box> writes;
  for (const hdf5::Box& box : boxes_of(slice)) {
    if (box.elements() == 0) continue;
    for (hdf5::Box& part : cut(box, limit)) writes.push_back(std::move(part));
  }
  return writes;
}

CheckpointPlan agree_on_plan(Communicator& comm, std::span<const TensorSlice> owned) {
  std::string mine;
  run_together(comm, [&] {
    for (const TensorSlice& slice : owned) {
      check_name(slice.name);
      check_slice(slice);
      mine += describe(slice);
    }
  });
  const std::vector<std::string> texts = gather_text(comm, mine);
  CheckpointPlan plan;
  run_together(comm, [&] {
    std::map<std::string, Gathered> tensors;
    for (int rank = 0; rank < comm.size(); ++rank) {
      std::istringstream lines(texts[static_cast<std::size_t>(rank)]);
      for (std::string line; std::getline(lines, line);) add_line(line, rank, tensors);
    }
    int number = 0;
    for (auto& [name, tensor] : tensors) {
      if (number++ % comm.size() == comm.rank()) check_cover(name, tensor);  // shared out
      plan.push_back(planned(name, std::move(tensor), comm.size()));
    }
  });
  return plan;
}

}  // namespace trireme
