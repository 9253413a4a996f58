#include "io/checkpoints/checkpoint_plan.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/io/together.h"

#include "io/checkpoints/tensor_slab.h"

namespace trireme {
namespace {

constexpr std::int64_t kWriteBytes = std::int64_t{64} << 20;
// In a smaller tensor, the page cache takes a rank's short runs faster than ranks can exchange
// them.
constexpr std::int64_t kScatteredBytes = std::int64_t{1} << 20;
constexpr std::int64_t kShortRunBytes = std::int64_t{256} << 10;

// Packs numbers in groups of seven bits, the lowest first, and texts after their length.
class Packer {
 public:
  void number(std::int64_t value) {
    TRIREME_CHECK(value >= 0, "a plan holds no negative numbers");
    auto rest = static_cast<std::uint64_t>(value);
    for (; rest >= 0x80; rest >>= 7) bytes_ += static_cast<char>(rest | 0x80);
    bytes_ += static_cast<char>(rest);
  }
  void text(std::string_view value) {
    number(std::ssize(value));
    bytes_ += value;
  }
  void shape(const Shape& shape) {
    number(shape.rank());
    for (const std::int64_t extent : shape.extents()) number(extent);
  }
  // The position of a slice in a tensor. The reader knows the tensor's number of dimensions.
  void place(const TensorSlice& slice) {
    for (const std::int64_t start : slice.start) number(start);
    for (const std::int64_t extent : slice.extent.extents()) number(extent);
    const FlatRange range = slice.range.value_or(FlatRange{0, slice.extent.elements()});
    number(range.begin);
    number(range.end);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads what a Packer of another rank of this program has written.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : bytes_(bytes) {}

  bool at_end() const { return bytes_.empty(); }
  std::int64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      TRIREME_CHECK(!bytes_.empty() && shift < 64, "a rank's part of a plan is cut off");
      const auto byte = static_cast<unsigned char>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return static_cast<std::int64_t>(value);
    }
  }
  std::string_view text() {
    const auto size = static_cast<std::size_t>(number());
    TRIREME_CHECK(size <= bytes_.size(), "a rank's part of a plan is cut off");
    const std::string_view value = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return value;
  }
  Shape shape() { return Shape(numbers(number())); }
  TensorSlice place(const PlannedTensor& tensor) {
    TensorSlice slice;
    slice.name = tensor.name;
    slice.global = tensor.shape;
    slice.start = numbers(tensor.shape.rank());
    slice.extent = Shape(numbers(tensor.shape.rank()));
    slice.range.emplace();
    slice.range->begin = number();
    slice.range->end = number();
    return slice;
  }

 private:
  std::vector<std::int64_t> numbers(std::int64_t count) {
    std::vector<std::int64_t> values(static_cast<std::size_t>(count));
    for (std::int64_t& value : values) value = number();
    return values;
  }

  std::string_view bytes_;
};

struct Gathered {
  PlannedTensor tensor;
  std::vector<OwnedPart> parts;
};

// The length of the common prefix. A name shares most of its bytes with the name before it.
std::size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

PlannedTensor read_tensor(Unpacker& from, std::string_view before) {
  PlannedTensor tensor;
  const auto shared = static_cast<std::size_t>(from.number());
  tensor.name = before.substr(0, shared);
  tensor.name += from.text();
  tensor.dtype = static_cast<DType>(from.number());
  tensor.shape = from.shape();
  return tensor;
}

void write_tensor(Packer& to, const PlannedTensor& tensor, std::string_view before) {
  const std::size_t shared = common_prefix(tensor.name, before);
  to.number(static_cast<std::int64_t>(shared));
  to.text(std::string_view(tensor.name).substr(shared));
  to.number(static_cast<std::int64_t>(tensor.dtype));
  to.shape(tensor.shape);
}

void check_alike(const Gathered& known, const PlannedTensor& tensor, int rank) {
  const PlannedTensor& first = known.tensor;
  if (first.shape == tensor.shape && first.dtype == tensor.dtype) return;
  throw InternalError(fmt::format("tensor {} is {} {} on rank {} and {} {} on rank {}", tensor.name,
                                  name_of(first.dtype), first.shape.to_string(),
                                  known.parts.front().rank, name_of(tensor.dtype),
                                  tensor.shape.to_string(), rank));
}

bool intersect(const hdf5::Box& a, const hdf5::Box& b) {
  for (std::size_t d = 0; d < a.start.size(); ++d) {
    if (a.start[d] >= b.start[d] + b.count[d] || b.start[d] >= a.start[d] + a.count[d]) {
      return false;
    }
  }
  return true;
}

void check_cover(const Gathered& gathered) {
  struct Owned {
    int rank;
    hdf5::Box box;
    std::int64_t first() const { return box.start.empty() ? 0 : box.start[0]; }
    std::int64_t last() const { return box.start.empty() ? 1 : box.start[0] + box.count[0]; }
  };
  std::vector<Owned> all;
  std::int64_t covered = 0;
  for (const OwnedPart& part : gathered.parts) {
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
      throw InternalError(fmt::format("tensor {}: ranks {} and {} both own some of it",
                                      gathered.tensor.name, std::min(all[i].rank, all[j].rank),
                                      std::max(all[i].rank, all[j].rank)));
    }
  }
  if (covered != gathered.tensor.elements()) {
    throw InternalError(fmt::format("tensor {} {}: the ranks own {} of its {} elements",
                                    gathered.tensor.name, gathered.tensor.shape.to_string(),
                                    covered, gathered.tensor.elements()));
  }
}

// Whether a slice consists of short runs in the file.
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

bool needs_handing_around(const Gathered& gathered, int ranks) {
  return ranks > 1 && gathered.tensor.bytes() >= kScatteredBytes &&
         std::ranges::any_of(gathered.parts, [&](const OwnedPart& part) {
           return is_scattered(part, gathered.tensor.dtype);
         });
}

// Appends the tensor and all its parts to the answer for each rank that owns a part.
void answer_owners(const Gathered& gathered, std::vector<std::string>& answers) {
  Packer packer;
  write_tensor(packer, gathered.tensor, {});
  packer.number(std::ssize(gathered.parts));
  for (const OwnedPart& part : gathered.parts) {
    packer.number(part.rank);
    packer.place(part.slice);
  }
  const std::string bytes = packer.take();
  int last = -1;
  for (const OwnedPart& part : gathered.parts) {
    if (part.rank != last) answers[static_cast<std::size_t>(part.rank)] += bytes;
    last = part.rank;
  }
}

void check_name(const std::string& name) {
  const auto slash = name.find('/');
  const std::string top = name.substr(0, slash);
  const bool known = top == "parameters" || top == "optimizer" || top == "state" ||
                     top == "gradients" || top == "outer" || top == "islands";
  if (!known || slash == std::string::npos || name.back() == '/' ||
      name.find("//") != std::string::npos || name.find_first_of(" \t\n\r") != std::string::npos) {
    throw InternalError("a checkpoint cannot hold a tensor named '" + name + "'");
  }
}

}  // namespace

std::vector<hdf5::Box> writes_of(const TensorSlice& slice) {
  const auto limit = kWriteBytes / static_cast<std::int64_t>(size_of(slice.dtype()));
  std::vector<hdf5::Box> writes;
  for (const hdf5::Box& box : boxes_of(slice)) {
    if (box.elements() == 0) continue;
    for (hdf5::Box& part : cut(box, limit)) writes.push_back(std::move(part));
  }
  return writes;
}

const ScatteredTensor* CheckpointPlan::find_scattered(const std::string& name) const {
  const auto found = std::ranges::lower_bound(
      scattered, name, {},
      [](const ScatteredTensor& one) -> const std::string& { return one.tensor.name; });
  return found != scattered.end() && found->tensor.name == name ? &*found : nullptr;
}

std::string describe_slices(std::span<const TensorSlice> owned) {
  Packer packer;
  std::string_view before;
  for (const TensorSlice& slice : owned) {
    write_tensor(packer, {slice.name, slice.global, slice.dtype()}, before);
    packer.place(slice);
    before = slice.name;
  }
  return packer.take();
}

DrawnPlan draw_plan(std::span<const std::string> descriptions) {
  std::map<std::string, Gathered> gathered;
  std::vector<std::vector<const Gathered*>> of_ranks(descriptions.size());
  for (std::size_t rank = 0; rank < descriptions.size(); ++rank) {
    Unpacker from(descriptions[rank]);
    std::string before;
    while (!from.at_end()) {
      const PlannedTensor tensor = read_tensor(from, before);
      Gathered& known = gathered[tensor.name];
      if (known.parts.empty()) known.tensor = tensor;
      check_alike(known, tensor, static_cast<int>(rank));
      known.parts.push_back({static_cast<int>(rank), from.place(tensor)});
      of_ranks[rank].push_back(&known);
      before = tensor.name;
    }
  }

  DrawnPlan drawn;
  drawn.answers.resize(descriptions.size());
  std::map<const Gathered*, std::int32_t> places;
  for (const auto& [name, tensor] : gathered) {
    check_cover(tensor);
    places[&tensor] = static_cast<std::int32_t>(drawn.plan.tensors.size());
    drawn.plan.tensors.push_back(tensor.tensor);
    if (needs_handing_around(tensor, static_cast<int>(descriptions.size()))) {
      answer_owners(tensor, drawn.answers);
    }
  }
  for (const auto& slices : of_ranks) {
    std::vector<std::int32_t>& indices = drawn.plan.slices.emplace_back();
    for (const Gathered* slice : slices) indices.push_back(places.at(slice));
  }
  return drawn;
}

std::vector<ScatteredTensor> read_answer(const std::string& answer) {
  std::vector<ScatteredTensor> scattered;
  Unpacker from(answer);
  while (!from.at_end()) {
    ScatteredTensor& one = scattered.emplace_back();
    one.tensor = read_tensor(from, {});
    for (std::int64_t left = from.number(); left > 0; --left) {
      OwnedPart& part = one.parts.emplace_back();
      part.rank = static_cast<int>(from.number());
      part.slice = from.place(one.tensor);
    }
  }
  return scattered;
}

CheckpointPlan agree_on_plan(Communicator& comm, std::span<const TensorSlice> owned) {
  std::string mine;
  run_together(comm, [&] {
    for (const TensorSlice& slice : owned) {
      check_name(slice.name);
      check_slice(slice);
    }
    mine = describe_slices(owned);
  });
  const std::vector<std::string> descriptions = gather_to_first(comm, std::move(mine));
  DrawnPlan drawn;
  run_together(comm, [&] {
    if (comm.rank() == 0) drawn = draw_plan(descriptions);
  });
  const std::string answer = scatter_from_first(comm, std::move(drawn.answers));
  drawn.plan.scattered = read_answer(answer);
  return std::move(drawn.plan);
}

}  // namespace trireme
