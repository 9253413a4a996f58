#include "io/checkpoints/shared_read.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <xxhash.h>

#include "trireme/base/error.h"
#include "trireme/io/together.h"

#include "io/checkpoints/host_copy.h"
#include "io/checkpoints/tensor_slab.h"

namespace trireme {
namespace {

// A piece of a slice that is in the memory of a run, where it begins at byte `at`.
struct Piece {
  std::size_t slice = 0;
  std::int64_t at = 0;
  Run run;
};

// Visits the pieces in the order of the plan's tensors and of the rank's slices. That order is the
// same wherever it is computed.
template <class Visit>
void for_each_piece(const ReadPlan& plan, const ReadPlan::Run& run, const WantedSlices& wanted,
                    const Visit& visit) {
  for (const ReadPlan::Part& part : run.parts) {
    const auto size = static_cast<std::int64_t>(size_of(plan.tensors()[part.tensor]->dtype));
    for (const std::size_t number : wanted.of_tensor[part.tensor]) {
      const TensorSlice& slice = wanted.slices[number];
      for (const hdf5::Box& box : boxes_of(slice)) {
        if (box.elements() == 0) continue;
        for_each_run(slice, box, part.elements, [&](const Run& found) {
          visit(Piece{number, part.at + (found.global - part.elements.begin) * size, found});
        });
      }
    }
  }
}

// Describes slices as numbers (tensor, box, range) for ranks that know the file's contents.
std::string to_text(const CheckpointContents& contents, std::span<const TensorSlice> slices) {
  std::vector<std::int64_t> numbers;
  for (const TensorSlice& slice : slices) {
    numbers.push_back(contents.find(slice.name) - contents.tensors.data());
    numbers.insert(numbers.end(), slice.start.begin(), slice.start.end());
    const auto extents = slice.extent.extents();
    numbers.insert(numbers.end(), extents.begin(), extents.end());
    const FlatRange range = slice.range.value_or(FlatRange{0, slice.extent.elements()});
    numbers.insert(numbers.end(), {range.begin, range.end});
  }
  const auto* bytes = reinterpret_cast<const char*>(numbers.data());
  return {bytes, bytes + numbers.size() * sizeof(std::int64_t)};
}

std::vector<TensorSlice> from_text(const CheckpointContents& contents, const std::string& text) {
  std::vector<std::int64_t> numbers(text.size() / sizeof(std::int64_t));
  std::memcpy(numbers.data(), text.data(), numbers.size() * sizeof(std::int64_t));
  std::vector<TensorSlice> slices;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const CheckpointTensor& tensor = contents.tensors.at(static_cast<std::size_t>(*at++));
    TensorSlice& slice = slices.emplace_back();
    slice.name = tensor.name;
    slice.global = tensor.shape;
    slice.start.assign(at, at + tensor.shape.rank());
    at += tensor.shape.rank();
    slice.extent =
        Shape(std::span<const std::int64_t>(at, static_cast<std::size_t>(tensor.shape.rank())));
    at += tensor.shape.rank();
    slice.range = FlatRange{at[0], at[1]};
    at += 2;
  }
  return slices;
}

std::vector<const CheckpointTensor*> tensors_of(
    const CheckpointContents& contents, const std::vector<std::vector<TensorSlice>>& wanted) {
  std::set<const CheckpointTensor*> tensors;
  for (const std::vector<TensorSlice>& slices : wanted) {
    for (const TensorSlice& slice : slices) tensors.insert(contents.find(slice.name));
  }
  return {tensors.begin(), tensors.end()};
}

Tensor as_words(char* memory, std::int64_t bytes) {
  return Tensor::wrap(memory, {bytes / 4}, DType::kI32);
}

int replicas_of(const ReadGroups& groups) {
  return groups.copies == nullptr ? 1 : groups.copies->size();
}

// An all-gather in log2(ranks) steps (Bruck et al., 1997). Rank i sends the parts of `count` ranks,
// starting with its own, to rank i - distance, and receives as many from rank i + distance.
struct GatherStep {
  int distance = 0, count = 0;
};
std::vector<GatherStep> gather_steps(int ranks) {
  std::vector<GatherStep> steps;
  for (int distance = 1; distance < ranks; distance *= 2) {
    steps.push_back({distance, std::min(distance, ranks - distance)});
  }
  return steps;
}

class SharedRead {
 public:
  SharedRead(const ReadGroups& groups, const PosixFile& file, const ReadPlan& plan,
             std::span<const TensorSlice> mine, std::vector<WantedSlices> replica)
      : groups_(groups),
        file_(file),
        plan_(plan),
        mine_(mine),
        wanted_(wanted_of(plan, {mine.begin(), mine.end()})),
        replica_(std::move(replica)),
        host_(mine.size()) {}

  void run() {
    const int ranks = groups_.replica.size();
    for (std::int64_t round = 0; round < plan_.rounds(); ++round) {
      if (round % ranks == 0) run_together(groups_.world, [&] { read_own(round); });
      const ReadPlan::Run run = plan_.run(round, replica_number());
      hand_out(round, run);
      gather(round);
      bring_back_what_is_read(round);
    }
  }

 private:
  bool alone() const { return replicas_of(groups_) == 1; }  // there is one replica
  int replica_number() const { return groups_.copies == nullptr ? 0 : groups_.copies->rank(); }

  // Reads the run that is this rank's in the coming rounds, of which `round` is the first.
  void read_own(std::int64_t round) {
    const ReadPlan::Run run = plan_.run(round + groups_.replica.rank(), replica_number());
    memory_.resize(static_cast<std::size_t>(run.bytes));
    for (const ReadPlan::Read& read : run.reads) {
      file_.read(read.offset, memory_.data() + read.at, static_cast<std::size_t>(read.bytes));
    }
  }

  // Sends parts of the run from its reader to the other ranks of this replica. Afterwards `own_`
  // holds the pieces that this rank's slices want.
  void hand_out(std::int64_t round, const ReadPlan::Run& run) {
    const int reader = plan_.reader(round);
    std::vector<Transfer> transfers;
    std::vector<std::vector<char>> outgoing(replica_.size());
    if (groups_.replica.rank() != reader) {
      own_.resize(static_cast<std::size_t>(wanted_.bytes_of(plan_, run)));
      if (!own_.empty()) {
        transfers.push_back(
            {Transfer::Direction::kReceive, reader, as_words(own_.data(), std::ssize(own_))});
      }
    } else {
      for (int rank = 0; rank < groups_.replica.size(); ++rank) {
        const auto number = static_cast<std::size_t>(rank);
        if (rank == reader && alone()) continue;  // it takes its own pieces directly from the run
        std::vector<char>& to = rank == reader ? own_ : outgoing[number];
        pack(run, replica_[number], to);
        if (rank == reader || to.empty()) continue;
        transfers.push_back(
            {Transfer::Direction::kSend, rank, as_words(to.data(), std::ssize(to))});
      }
    }
    if (!transfers.empty()) {
      groups_.replica.exchange(Stream(), std::move(transfers)).wait_host();
    }
  }

  void pack(const ReadPlan::Run& run, const WantedSlices& wanted, std::vector<char>& to) const {
    to.clear();
    for_each_piece(plan_, run, wanted, [&](const Piece& piece) {
      const auto size = static_cast<std::int64_t>(size_of(dtype_of(wanted, piece)));
      const char* from = memory_.data() + piece.at;
      to.insert(to.end(), from, from + piece.run.count * size);
    });
  }

  // All-gathers the replicas' parts of the round. The parts differ in length.
  void gather(std::int64_t round) {
    const int replicas = replicas_of(groups_), here = replica_number();
    if (alone()) {
      const bool read_here = groups_.replica.rank() == plan_.reader(round);
      return unpack(plan_.run(round, 0), read_here ? nullptr : own_.data());
    }
    std::vector<ReadPlan::Run> runs;
    std::vector<std::int64_t> bytes;
    for (int i = 0; i < replicas; ++i) {
      runs.push_back(plan_.run(round, (here + i) % replicas));
      bytes.push_back(wanted_.bytes_of(plan_, runs.back()));
    }
    const std::int64_t all = std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
    own_.resize(static_cast<std::size_t>(all));
    std::int64_t held = bytes[0];
    for (const auto& [distance, count] : gather_steps(replicas)) {
      const auto end = bytes.begin() + count;
      const std::int64_t send = std::accumulate(bytes.begin(), end, std::int64_t{0});
      const std::int64_t receive =
          std::accumulate(bytes.begin() + distance, end + distance, std::int64_t{0});
      exchange_parts((here + replicas - distance) % replicas, send, (here + distance) % replicas,
                     held, receive);
      held += receive;
    }
    const char* from = own_.data();
    for (std::size_t i = 0; i < runs.size(); ++i) {
      unpack(runs[i], from);
      from += bytes[i];
    }
  }

  // Sends the first `send` bytes of `own_`, and receives `receive` bytes after the first `held`.
  void exchange_parts(int to, std::int64_t send, int from, std::int64_t held,
                      std::int64_t receive) {
    std::vector<Transfer> transfers;
    if (send > 0) {
      transfers.push_back({Transfer::Direction::kSend, to, as_words(own_.data(), send)});
    }
    if (receive > 0) {
      transfers.push_back(
          {Transfer::Direction::kReceive, from, as_words(own_.data() + held, receive)});
    }
    if (!transfers.empty()) groups_.copies->exchange(Stream(), std::move(transfers)).wait_host();
  }

  // Copies the pieces into the slices. `from` holds them one after the other. nullptr: they are in
  // the memory that this rank read them into.
  void unpack(const ReadPlan::Run& run, const char* from) {
    for_each_piece(plan_, run, wanted_, [&](const Piece& piece) {
      std::optional<TensorSlice>& host = host_[piece.slice];
      if (!host) host = on_host(mine_[piece.slice]);  // with its padding
      const auto size = static_cast<std::int64_t>(size_of(host->local.dtype()));
      std::memcpy(static_cast<char*>(host->local.raw()) + piece.run.memory * size,
                  from == nullptr ? memory_.data() + piece.at : from,
                  static_cast<std::size_t>(piece.run.count * size));
      if (from != nullptr) from += piece.run.count * size;
    });
  }

  // Copies complete tensors back at once, so that the host never holds a GPU's whole model.
  void bring_back_what_is_read(std::int64_t round) {
    for (; read_tensors_ < plan_.tensors().size() && plan_.is_read(read_tensors_, round);
         ++read_tensors_) {
      for (const std::size_t number : wanted_.of_tensor[read_tensors_]) {
        if (host_[number]) bring_back(*host_[number], mine_[number]);
        host_[number].reset();
      }
    }
  }

  DType dtype_of(const WantedSlices& wanted, const Piece& piece) const {
    return plan_.tensors()[wanted.tensor_of[piece.slice]]->dtype;
  }

  const ReadGroups& groups_;
  const PosixFile& file_;
  const ReadPlan& plan_;
  std::span<const TensorSlice> mine_;
  WantedSlices wanted_;
  std::vector<WantedSlices> replica_;             // by rank
  std::vector<std::optional<TensorSlice>> host_;  // copies of slices, while they are filled
  std::size_t read_tensors_ = 0;                  // how many of the plan were brought back
  std::vector<char> memory_, own_;
};

void check_copies(Communicator& copies, const std::string& wanted) {
  const std::uint64_t hash = XXH64(wanted.data(), wanted.size(), 0);
  const auto value = static_cast<std::int64_t>(hash >> 1);
  std::int64_t bounds[2] = {value, -value};
  copies.all_reduce_host(std::span<std::int64_t>(bounds), ReduceOp::kMax);
  if (bounds[0] == value && -bounds[1] == value) return;
  throw InternalError("ranks that should hold copies want different parts of a checkpoint");
}

}  // namespace

WantedSlices wanted_of(const ReadPlan& plan, std::vector<TensorSlice> slices) {
  std::map<std::string_view, std::size_t> numbers;
  for (std::size_t i = 0; i < plan.tensors().size(); ++i) numbers[plan.tensors()[i]->name] = i;
  WantedSlices wanted{std::move(slices), {}, {}};
  wanted.of_tensor.resize(plan.tensors().size());
  for (std::size_t i = 0; i < wanted.slices.size(); ++i) {
    const auto tensor = numbers.find(wanted.slices[i].name);  // not found: it has no elements
    wanted.tensor_of.push_back(tensor == numbers.end() ? 0 : tensor->second);
    if (tensor != numbers.end()) wanted.of_tensor[tensor->second].push_back(i);
  }
  return wanted;
}

std::int64_t WantedSlices::bytes_of(const ReadPlan& plan, const ReadPlan::Run& run) const {
  std::int64_t bytes = 0;
  for_each_piece(plan, run, *this, [&](const Piece& piece) {
    bytes += piece.run.count *
             static_cast<std::int64_t>(size_of(plan.tensors()[tensor_of[piece.slice]]->dtype));
  });
  return bytes;
}

void read_shared(const ReadGroups& groups, const PosixFile& file,
                 const CheckpointContents& contents, std::span<const TensorSlice> wanted,
                 const ReadLimits& limits) {
  const std::string own = to_text(contents, wanted);
  run_together(groups.world, [&] {
    if (groups.copies != nullptr) check_copies(*groups.copies, own);
  });
  std::vector<std::vector<TensorSlice>> all;
  for (const std::string& text : gather_text(groups.replica, own)) {
    all.push_back(from_text(contents, text));
  }
  const ReadPlan plan(tensors_of(contents, all), {replicas_of(groups), groups.replica.size()},
                      limits);
  std::vector<WantedSlices> replica;
  for (std::vector<TensorSlice>& slices : all)
    replica.push_back(wanted_of(plan, std::move(slices)));
  SharedRead(groups, file, plan, wanted, std::move(replica)).run();
}

ReadCost cost_of(const ReadPlan& plan, const ReadWorld& world,
                 const std::vector<WantedSlices>& wanted) {
  ReadCost cost;
  const auto replicas = static_cast<std::size_t>(world.replicas);
  std::vector<std::int64_t> sizes, sent(replicas * wanted.size(), 0);
  for (std::int64_t round = 0; round < plan.rounds(); ++round) {
    // For each rank of a replica, the bytes that it wants from each replica's run.
    std::vector<std::vector<std::int64_t>> bytes(wanted.size());
    for (int replica = 0; replica < world.replicas; ++replica) {
      const ReadPlan::Run run = plan.run(round, replica);
      for (const ReadPlan::Read& read : run.reads) sizes.push_back(read.bytes);
      const auto reader = static_cast<std::size_t>(plan.reader(round));
      for (std::size_t rank = 0; rank < wanted.size(); ++rank) {
        bytes[rank].push_back(wanted[rank].bytes_of(plan, run));
        if (rank == reader) continue;
        sent[static_cast<std::size_t>(replica) * wanted.size() + reader] += bytes[rank].back();
      }
    }
    for (std::size_t rank = 0; rank < wanted.size(); ++rank) {
      const std::vector<std::int64_t>& parts = bytes[rank];
      cost.most_held =
          std::max(cost.most_held, std::accumulate(parts.begin(), parts.end(), std::int64_t{0}));
      for (const auto& [distance, count] : gather_steps(world.replicas)) {
        for (std::size_t replica = 0; replica < replicas; ++replica) {
          for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
            sent[replica * wanted.size() + rank] += parts[(replica + i) % replicas];
          }
        }
      }
    }
  }
  for (const std::int64_t each : sent) cost.most_sent = std::max(cost.most_sent, each);
  std::sort(sizes.begin(), sizes.end());
  cost.reads = std::ssize(sizes);
  for (const std::int64_t size : sizes) cost.bytes_read += size;
  if (sizes.empty()) return cost;
  cost.longest_read = sizes.back();
  cost.median_read = sizes[sizes.size() / 2];
  return cost;
}

}  // namespace trireme
