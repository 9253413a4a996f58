#include "mpi_communicator.h"

#include <exception>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "collectives.h"
#include "reduce.h"

namespace trireme {
namespace {

// Collectives and point-to-point messages of one communicator differ by tag. No more is needed: a
// lane carries one operation at a time, and MPI keeps the order of messages between two ranks.
constexpr int kCollectiveTag = 1;
constexpr int kTransferTag = 2;

MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return MPI_FLOAT;
    case DType::kF64:
      return MPI_DOUBLE;
    case DType::kI32:
      return MPI_INT32_T;
    case DType::kI64:
      return MPI_INT64_T;
    case DType::kU8:
      return MPI_UINT8_T;
    case DType::kBF16:
    case DType::kF16:
    case DType::kU16:
      break;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op mpi_op(ReduceOp op) {
  return op == ReduceOp::kSum ? MPI_SUM : op == ReduceOp::kMax ? MPI_MAX : MPI_MIN;
}

// MPI's own collectives count in ints.
bool countable(std::size_t count) {
  return count <= static_cast<std::size_t>(std::numeric_limits<int>::max());
}

class MpiCommunicator final : public Communicator {
  using Use = Part::Use;
  using Staged = std::unique_ptr<StagedTask>;
  static constexpr bool kMessages = true;  // nothing is computed on the way

 public:
  MpiCommunicator(const CommServices& services, std::string name, std::vector<int> members,
                  int rank, int lane, OwnedComm traffic)
      : services_(services),
        name_(std::move(name)),
        members_(std::move(members)),
        rank_(rank),
        lane_(lane),
        traffic_(std::move(traffic)) {}

  // What a device has kept from starting is still to be sent.
  ~MpiCommunicator() override {
    if (std::uncaught_exceptions() > 0 || !services_.staging || !*services_.staging) return;
    services_.engine.drain();
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  const std::string& name() const override { return name_; }
  int world_rank(int member) const override {
    return members_.at(static_cast<std::size_t>(member));
  }
  int lane_id() const override { return lane_; }

  Work all_reduce(const Stream& ready, Tensor data, ReduceOp op) override {
    check_reducible(data.dtype());
    const std::size_t bytes = data.bytes();
    Staged staged = stage({.lane = lane_}, ready, {{data, Use::kBoth}});
    const Algorithm algorithm = choose(Collective::kAllReduce, bytes, data);
    std::unique_ptr<Task> task;
    if (algorithm != Algorithm::kLibrary && suits_tree(data.dtype())) {
      task = make_tree_all_reduce(wire(), std::move(data), op);
      return submit(std::move(staged), "all_reduce", bytes, std::move(task));
    }
    switch (algorithm) {
      case Algorithm::kDirect:
        task = make_direct_all_reduce(wire(), std::move(data), op);
        break;
      case Algorithm::kPairwise:
        task = make_pairwise_all_reduce(wire(), std::move(data), op);
        break;
      case Algorithm::kBruck:
        task = make_bruck_all_reduce(wire(), std::move(data), op);
        break;
      case Algorithm::kLibrary:
        task = make_library_task(
            [=, comm = traffic_.get()](MPI_Request* request) {
              return MPI_Iallreduce(MPI_IN_PLACE, data.raw(), static_cast<int>(data.elements()),
                                    mpi_type(data.dtype()), mpi_op(op), comm, request);
            },
            {data});
    }
    return submit(std::move(staged), "all_reduce", bytes, std::move(task));
  }

  Work reduce_scatter(const Stream& ready, Tensor input, Tensor output, ReduceOp op) override {
    check_reducible(input.dtype());
    check_parts("reduce_scatter", input, output);
    const std::size_t bytes = input.bytes();
    Staged staged = stage({.lane = lane_}, ready, {{input, Use::kRead}, {output, Use::kWrite}});
    std::unique_ptr<Task> task;
    if (choose(Collective::kReduceScatter, bytes, input) == Algorithm::kLibrary &&
        !overlap(input, output)) {
      task = make_library_task(
          [=, comm = traffic_.get()](MPI_Request* request) {
            return MPI_Ireduce_scatter_block(input.raw(), output.raw(),
                                             static_cast<int>(output.elements()),
                                             mpi_type(input.dtype()), mpi_op(op), comm, request);
          },
          {input, output});
    } else {
      task = make_reduce_scatter(wire(), std::move(input), std::move(output), op);
    }
    return submit(std::move(staged), "reduce_scatter", bytes, std::move(task));
  }

  Work all_gather(const Stream& ready, Tensor input, Tensor output) override {
    check_parts("all_gather", output, input);
    const std::size_t bytes = output.bytes();
    Staged staged = stage({.lane = lane_}, ready, {{input, Use::kRead}, {output, Use::kWrite}});
    std::unique_ptr<Task> task;
    const Algorithm algorithm = choose(Collective::kAllGather, bytes);
    if (algorithm == Algorithm::kLibrary) {
      const bool in_place = overlap(output, input);
      task = make_library_task(
          [=, comm = traffic_.get()](MPI_Request* request) {
            const int part = static_cast<int>(input.bytes());
            return MPI_Iallgather(in_place ? MPI_IN_PLACE : input.raw(), part, MPI_BYTE,
                                  output.raw(), part, MPI_BYTE, comm, request);
          },
          {input, output});
    } else if (algorithm == Algorithm::kBruck) {
      task = make_bruck_all_gather(wire(), std::move(input), std::move(output));
    } else {
      task = make_all_gather(wire(), std::move(input), std::move(output));
    }
    return submit(std::move(staged), "all_gather", bytes, std::move(task));
  }

  Work broadcast(const Stream& ready, Tensor data, int root) override {
    check_member(root);
    const std::size_t bytes = data.bytes();
    Staged staged = stage({.lane = lane_}, ready,
                          {{data, rank_ == root ? Use::kRead : Use::kWrite}}, kMessages);
    std::unique_ptr<Task> task;
    if (choose(Collective::kBroadcast, bytes) == Algorithm::kLibrary) {
      task = make_library_task(
          [=, comm = traffic_.get()](MPI_Request* request) {
            return MPI_Ibcast(data.raw(), static_cast<int>(bytes), MPI_BYTE, root, comm, request);
          },
          {data});
    } else {
      task = make_broadcast(wire(), std::move(data), root);
    }
    return submit(std::move(staged), "broadcast", bytes, std::move(task));
  }

  Work all_to_all(const Stream& ready, Tensor input, Tensor output) override {
    TRIREME_CHECK(input.bytes() == output.bytes() && input.elements() % size() == 0,
                  fmt::format("all_to_all of {} into {} among {} ranks", input.shape().to_string(),
                              output.shape().to_string(), size()));
    const std::size_t bytes = input.bytes();
    Staged staged = stage({.lane = lane_}, ready, {{input, Use::kRead}, {output, Use::kWrite}});
    std::unique_ptr<Task> task;
    if (choose(Collective::kAllToAll, bytes) == Algorithm::kLibrary) {
      const int part = static_cast<int>(bytes) / size();
      task = make_library_task(
          [=, comm = traffic_.get()](MPI_Request* request) {
            return MPI_Ialltoall(input.raw(), part, MPI_BYTE, output.raw(), part, MPI_BYTE, comm,
                                 request);
          },
          {input, output});
    } else {
      task = make_all_to_all(wire(), std::move(input), std::move(output));
    }
    return submit(std::move(staged), "all_to_all", bytes, std::move(task));
  }

  Work exchange(const Stream& ready, std::vector<Transfer> transfers) override {
    Wire wire = this->wire();
    wire.tag = kTransferTag;
    check_transfers(ready, transfers);
    std::vector<ProgressEngine::Queued> operations;
    Events arrivals;
    for (Transfer& transfer : transfers) {
      const bool sends = transfer.direction == Transfer::Direction::kSend;
      const LaneKey key = {lane_, world_rank(transfer.peer), sends};
      const std::size_t bytes = transfer.tensor.bytes();
      Staged staged =
          stage(key, ready, {{transfer.tensor, sends ? Use::kRead : Use::kWrite}}, kMessages);
      operations.push_back(
          {.key = key,
           .name = sends ? "send" : "receive",
           .bytes = bytes,
           .task = carry(std::move(staged), make_transfer(wire, transfer), arrivals)});
    }
    return make_device_work(services_.engine.submit(std::move(operations)), std::move(arrivals),
                            services_.engine.recorder());
  }

  Work barrier() override { return submit(nullptr, "barrier", 0, make_barrier(wire())); }

  const void* native_mpi() const override {
    if (!native_) native_.emplace(OwnedComm::duplicate(traffic_.get()));
    return native_->address();
  }

 private:
  Wire wire() const {
    return {.comm = traffic_.get(),
            .rank = rank_,
            .size = size(),
            .tag = kCollectiveTag,
            .synchronous = services_.synchronous_sends,
            .workspace = &services_.workspace};
  }
  // The table's choice, as far as MPI's own algorithms can carry it.
  Algorithm choose(Collective collective, std::size_t bytes) const {
    const Algorithm algorithm = services_.algorithms.choose(collective, bytes, size());
    return algorithm == Algorithm::kLibrary && !countable(bytes) ? Algorithm::kPairwise : algorithm;
  }
  Algorithm choose(Collective collective, std::size_t bytes, const Tensor& reduced) const {
    const Algorithm algorithm = choose(collective, bytes);
    const bool unknown = mpi_type(reduced.dtype()) == MPI_DATATYPE_NULL;
    if (algorithm == Algorithm::kLibrary) return unknown ? Algorithm::kPairwise : algorithm;
    return algorithm;
  }
  // Before an operation's task is made: tensors of a device give way to those that MPI shall use;
  // those of the host may be used when this returns, and there is no staged task.
  Staged stage(const LaneKey& key, const Stream& ready, const std::vector<Part>& parts,
               bool messages = false) {
    DeviceStaging* staging = services_.staging == nullptr ? nullptr : services_.staging->get();
    if (on_one_device(ready, parts)) {
      TRIREME_CHECK(staging != nullptr,
                    fmt::format("communicator {} carries no tensors of a GPU", name_));
      return staging->stage(key, ready, parts, messages);
    }
    if (staging != nullptr) staging->throw_fault();
    ready.synchronize();
    return nullptr;
  }
  static std::unique_ptr<Task> carry(Staged staged, std::unique_ptr<Task> task, Events& arrivals) {
    if (!staged) return task;
    arrivals.push_back(staged->arrival());
    staged->set_host_part(std::move(task));
    return staged;
  }
  Work submit(Staged staged, std::string_view name, std::size_t bytes, std::unique_ptr<Task> task) {
    Events arrivals;
    std::vector<ProgressEngine::Queued> operations;
    operations.push_back({.key = {.lane = lane_},
                          .name = name,
                          .bytes = bytes,
                          .task = carry(std::move(staged), std::move(task), arrivals)});
    return make_device_work(services_.engine.submit(std::move(operations)), std::move(arrivals),
                            services_.engine.recorder());
  }
  // What ranks agree on is integers (verdicts, sizes, checksums), which reduce to the same bits in
  // any order.
  bool suits_tree(DType dtype) const {
    const bool integer = dtype == DType::kI32 || dtype == DType::kI64 || dtype == DType::kU8;
    return integer && size() > AlgorithmTable::kFewRanks;
  }
  void check_member(int member) const {
    TRIREME_CHECK(0 <= member && member < size(),
                  fmt::format("rank {} of communicator {} of {}", member, name_, size()));
  }
  void check_transfers(const Stream& ready, std::vector<Transfer>& transfers) const {
    std::vector<Part> parts;
    for (Transfer& transfer : transfers) {
      check_member(transfer.peer);
      parts.push_back({transfer.tensor, Use::kBoth});
    }
    on_one_device(ready, parts);
  }
  void check_parts(std::string_view what, const Tensor& whole, const Tensor& part) const {
    TRIREME_CHECK(whole.dtype() == part.dtype() && whole.elements() == part.elements() * size(),
                  fmt::format("{} among {} ranks between {} and {}", what, size(),
                              whole.shape().to_string(), part.shape().to_string()));
  }
  static bool overlap(const Tensor& whole, const Tensor& part) {
    const auto* begin = static_cast<const std::byte*>(whole.raw());
    const auto* p = static_cast<const std::byte*>(part.raw());
    return begin <= p && p < begin + whole.bytes();
  }

  CommServices services_;
  std::string name_;
  std::vector<int> members_;
  int rank_;
  int lane_;
  OwnedComm traffic_;
  mutable std::optional<OwnedComm> native_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(const CommServices& services, std::string name,
                                                    std::vector<int> members, int rank, int lane,
                                                    OwnedComm traffic) {
  return std::make_unique<MpiCommunicator>(services, std::move(name), std::move(members), rank,
                                           lane, std::move(traffic));
}

}  // namespace trireme
