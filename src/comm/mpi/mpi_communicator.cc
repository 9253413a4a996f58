#include "comm/mpi/mpi_communicator.h"

#include <exception>
#include <limits>
#include <optional>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/comm/checked_arguments.h"
#include "trireme/comm/collective_tasks.h"
#include "trireme/comm/reduce.h"

#include "comm/group_communicator.h"
#include "comm/mpi/library_task.h"
#include "comm/mpi/mpi_transport.h"

namespace trireme {
namespace {

// One tag for collectives and one for point-to-point messages are enough: a lane carries one
// operation at a time, and MPI keeps the order of messages between two ranks.
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
    case DType::kE4M3:
      break;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op mpi_op(ReduceOp op) {
  return op == ReduceOp::kMax ? MPI_MAX : op == ReduceOp::kMin ? MPI_MIN : MPI_SUM;
}

// MPI's own collectives count in ints.
bool countable(std::size_t count) {
  return count <= static_cast<std::size_t>(std::numeric_limits<int>::max());
}

// Tells the trials how long an operation takes.
class MeasuredTask final : public Task {
 public:
  MeasuredTask(std::unique_ptr<Task> task, std::shared_ptr<AlgorithmTrials> trials,
               AlgorithmTrials::Call call)
      : task_(std::move(task)), trials_(std::move(trials)), call_(call) {}

  bool may_begin() override { return task_->may_begin(); }
  Step advance() override {
    if (begin_ns_ == 0) begin_ns_ = now_ns();
    const Step step = task_->advance();
    if (step == Step::kDone) trials_->took(call_, begin_ns_, now_ns());
    return step;
  }

 private:
  std::unique_ptr<Task> task_;
  std::shared_ptr<AlgorithmTrials> trials_;
  AlgorithmTrials::Call call_;
  std::int64_t begin_ns_ = 0;
};

class MpiCommunicator final : public GroupCommunicator {
  using Choice = AlgorithmTrials::Choice;
  using Use = Part::Use;

 public:
  MpiCommunicator(const CommServices& services, GroupLabel label, std::vector<int> members,
                  int rank, int lane, OwnedComm traffic,
                  std::shared_ptr<const CommunicatorPlan> plan)
      : GroupCommunicator(std::move(label), std::move(members), rank, lane),
        services_(services),
        traffic_(std::move(traffic)),
        plan_(std::move(plan)) {}

  // Operations that still wait for a device must be sent before the communicator ends.
  ~MpiCommunicator() override {
    if (std::uncaught_exceptions() > 0 || !services_.staging || !*services_.staging) return;
    services_.engine.drain();
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  bool fixes_order_of_sums(DeviceKind /*device*/) const override {
    return plan_->algorithms.keeps_order();
  }

  Work all_reduce(const Stream& ready, Tensor data, ReduceOp op) override {
    check_reducible(data.dtype());
    const std::size_t bytes = data.bytes();
    const auto [algorithm, call] = choose(Collective::kAllReduce, bytes, data, op);
    const auto make = [=, this, algorithm = algorithm](const Tensors& on_host) {
      return make_all_reduce(algorithm, on_host[0], op);
    };
    return start(ready, "all_reduce", bytes, {{data, Use::kBoth}},
                 {.make = make, .whole = algorithm == Algorithm::kLibrary}, call);
  }

  Work reduce_scatter(const Stream& ready, Tensor input, Tensor output, ReduceOp op) override {
    check_reducible(input.dtype());
    check_parts(*this, "reduce_scatter", input, output);
    const std::size_t bytes = input.bytes();
    const auto [algorithm, call] = choose(Collective::kReduceScatter, bytes, input, op);
    const bool library = algorithm == Algorithm::kLibrary;
    const auto make = [=, this, algorithm = algorithm](const Tensors& on_host) {
      const Tensor &from = on_host[0], &to = on_host[1];
      if (!library || overlap(from, to)) {
        return ours(Collective::kReduceScatter, algorithm, {.input = from, .output = to, .op = op});
      }
      return make_library_task(
          [=, comm = traffic_.get()](MPI_Request* request) {
            return MPI_Ireduce_scatter_block(from.raw(), to.raw(), static_cast<int>(to.elements()),
                                             mpi_type(from.dtype()), mpi_op(op), comm, request);
          },
          on_host);
    };
    return start(ready, "reduce_scatter", bytes,
                 {{input, Use::kRead, size()}, {output, Use::kWrite}},
                 {.make = make, .whole = library}, call);
  }

  Work all_gather(const Stream& ready, Tensor input, Tensor output) override {
    check_parts(*this, "all_gather", output, input);
    const std::size_t bytes = output.bytes();
    const auto [algorithm, call] = choose(Collective::kAllGather, bytes);
    const auto make = [=, this, algorithm = algorithm](const Tensors& on_host) {
      const Tensor &from = on_host[0], &to = on_host[1];
      if (algorithm != Algorithm::kLibrary) {
        return ours(Collective::kAllGather, algorithm, {.input = from, .output = to});
      }
      return make_library_task(
          [=, in_place = overlap(to, from), comm = traffic_.get()](MPI_Request* request) {
            const int part = static_cast<int>(from.bytes());
            return MPI_Iallgather(in_place ? MPI_IN_PLACE : from.raw(), part, MPI_BYTE, to.raw(),
                                  part, MPI_BYTE, comm, request);
          },
          on_host);
    };
    return start(ready, "all_gather", bytes, {{input, Use::kRead}, {output, Use::kWrite, size()}},
                 {.make = make, .whole = algorithm == Algorithm::kLibrary}, call);
  }

  Work broadcast(const Stream& ready, Tensor data, int root) override {
    check_member(*this, root);
    const std::size_t bytes = data.bytes();
    const auto [algorithm, call] = choose(Collective::kBroadcast, bytes);
    const bool library = algorithm == Algorithm::kLibrary;
    const auto make = [=, this, algorithm = algorithm](const Tensors& on_host) {
      const Tensor& message = on_host[0];
      if (!library) {
        return ours(Collective::kBroadcast, algorithm, {.output = message, .root = root});
      }
      return make_library_task(
          [=, comm = traffic_.get()](MPI_Request* request) {
            return MPI_Ibcast(message.raw(), static_cast<int>(message.bytes()), MPI_BYTE, root,
                              comm, request);
          },
          on_host);
    };
    return start(ready, "broadcast", bytes, {{data, rank() == root ? Use::kRead : Use::kWrite}},
                 {.make = make, .whole = library, .messages = true}, call);
  }

  Work all_to_all(const Stream& ready, Tensor input, Tensor output) override {
    check_all_to_all(*this, input, output);
    const std::size_t bytes = input.bytes();
    const auto [algorithm, call] = choose(Collective::kAllToAll, bytes);
    const bool library = algorithm == Algorithm::kLibrary;
    const auto make = [=, this, algorithm = algorithm](const Tensors& on_host) {
      const Tensor &from = on_host[0], &to = on_host[1];
      if (!library) {
        return ours(Collective::kAllToAll, algorithm, {.input = from, .output = to});
      }
      return make_library_task(
          [=, ranks = size(), comm = traffic_.get()](MPI_Request* request) {
            const int part = static_cast<int>(from.bytes()) / ranks;
            return MPI_Ialltoall(from.raw(), part, MPI_BYTE, to.raw(), part, MPI_BYTE, comm,
                                 request);
          },
          on_host);
    };
    return start(ready, "all_to_all", bytes,
                 {{input, Use::kRead, size()}, {output, Use::kWrite, size()}},
                 {.make = make, .whole = library}, call);
  }

  Work exchange(const Stream& ready, std::vector<Transfer> transfers) override {
    check_transfers(ready, transfers);
    std::vector<ProgressEngine::Queued> operations;
    Events arrivals;
    for (Transfer& transfer : transfers) {
      const bool sends = transfer.direction == Transfer::Direction::kSend;
      const LaneKey key = {lane_id(), world_rank(transfer.peer), sends};
      const auto make = [this, direction = transfer.direction,
                         peer = transfer.peer](const Tensors& on_host) {
        return make_transfer(transport(kTransferTag), {direction, peer, on_host[0]});
      };
      operations.push_back(
          {.key = key,
           .name = sends ? "send" : "receive",
           .bytes = transfer.tensor.bytes(),
           .task = make_task(ready, {{transfer.tensor, sends ? Use::kRead : Use::kWrite}},
                             {.make = make, .messages = true}, arrivals)});
    }
    return make_device_work(services_.engine.submit(std::move(operations)), std::move(arrivals),
                            services_.engine.recorder());
  }

  Work barrier() override {
    return submit("barrier", 0, make_barrier(transport(kCollectiveTag)), {});
  }

  const void* native_mpi() const override {
    if (!native_) native_.emplace(OwnedComm::duplicate(traffic_.get()));
    return native_->address();
  }

 private:
  TransportPtr transport(int tag) const {
    return std::make_unique<MpiTransport>(MpiGroup{.comm = traffic_.get(),
                                                   .rank = rank(),
                                                   .size = size(),
                                                   .tag = tag,
                                                   .synchronous = services_.synchronous_sends,
                                                   .workspace = &services_.workspace,
                                                   .worthwhile_bytes = plan_->worthwhile_bytes,
                                                   .blocks = plan_->blocks});
  }
  // The task of an algorithm that is not the library's.
  std::unique_ptr<Task> ours(Collective collective, Algorithm algorithm, Operands operands) const {
    return make_collective(collective, algorithm, transport(kCollectiveTag), std::move(operands));
  }
  // The algorithm of the next operation: the table's choice, or what is being tried, as far as
  // MPI's own algorithms can carry it.
  Choice choose(Collective collective, std::size_t bytes) const {
    return next(collective, bytes, plan_->algorithms);
  }
  Choice choose(Collective collective, std::size_t bytes, const Tensor& reduced,
                ReduceOp op) const {
    const bool rounds = op == ReduceOp::kRoundedSum && plan_->of_rounded_sums;
    const AlgorithmTable& table = rounds ? *plan_->of_rounded_sums : plan_->algorithms;
    Choice choice = rounds ? Choice{table.choose(collective, bytes, size()), {}}
                           : next(collective, bytes, table);
    const bool unknown = mpi_type(reduced.dtype()) == MPI_DATATYPE_NULL;
    if (choice.algorithm == Algorithm::kLibrary && unknown) {
      choice.algorithm = table.choose_own(collective, bytes, size());
    }
    return choice;
  }
  Choice next(Collective collective, std::size_t bytes, const AlgorithmTable& table) const {
    Choice choice{table.choose(collective, bytes, size()), {}};
    if (plan_->trials) choice = plan_->trials->next(collective, bytes, choice.algorithm);
    if (choice.algorithm == Algorithm::kLibrary && !countable(bytes)) {
      choice.algorithm = table.choose_own(collective, bytes, size());
    }
    return choice;
  }
  // Makes an operation's task. For host tensors, which are ready when this returns, it is the host
  // part itself. For device tensors it is a task that carries them to the host part, and its
  // arrival event is added to `arrivals`.
  std::unique_ptr<Task> make_task(const Stream& ready, const std::vector<Part>& parts,
                                  HostPart host_part, Events& arrivals) {
    DeviceStaging* staging = services_.staging == nullptr ? nullptr : services_.staging->get();
    if (on_one_device(ready, parts)) {
      check_may_carry_devices(staging != nullptr && !services_.host_only, name());
      auto staged = staging->stage(ready, parts, std::move(host_part));
      arrivals.push_back(staged->arrival());
      return staged;
    }
    if (staging != nullptr) staging->throw_fault();
    ready.synchronize();
    Tensors tensors;
    for (const Part& part : parts) tensors.push_back(part.tensor);
    return host_part.make(tensors);
  }
  Work start(const Stream& ready, std::string_view name, std::size_t bytes,
             const std::vector<Part>& parts, HostPart host_part, AlgorithmTrials::Call call) {
    Events arrivals;
    auto task = make_task(ready, parts, std::move(host_part), arrivals);
    if (call.slot >= 0) {
      task = std::make_unique<MeasuredTask>(std::move(task), plan_->trials, call);
    }
    return submit(name, bytes, std::move(task), std::move(arrivals));
  }
  Work submit(std::string_view name, std::size_t bytes, std::unique_ptr<Task> task,
              Events arrivals) {
    std::vector<ProgressEngine::Queued> operations;
    operations.push_back(
        {.key = {.lane = lane_id()}, .name = name, .bytes = bytes, .task = std::move(task)});
    return make_device_work(services_.engine.submit(std::move(operations)), std::move(arrivals),
                            services_.engine.recorder());
  }
  std::unique_ptr<Task> make_all_reduce(Algorithm algorithm, const Tensor& data,
                                        ReduceOp op) const {
    if (algorithm != Algorithm::kLibrary) {
      return ours(Collective::kAllReduce, algorithm, {.output = data, .op = op});
    }
    return make_library_task(
        [=, comm = traffic_.get()](MPI_Request* request) {
          return MPI_Iallreduce(MPI_IN_PLACE, data.raw(), static_cast<int>(data.elements()),
                                mpi_type(data.dtype()), mpi_op(op), comm, request);
        },
        {data});
  }
  void check_transfers(const Stream& ready, std::vector<Transfer>& transfers) const {
    std::vector<Part> parts;
    for (Transfer& transfer : transfers) {
      check_member(*this, transfer.peer);
      parts.push_back({transfer.tensor, Use::kBoth});
    }
    on_one_device(ready, parts);
  }
  static bool overlap(const Tensor& whole, const Tensor& part) {
    const auto* begin = static_cast<const std::byte*>(whole.raw());
    const auto* p = static_cast<const std::byte*>(part.raw());
    return begin <= p && p < begin + whole.bytes();
  }

  CommServices services_;
  OwnedComm traffic_;
  std::shared_ptr<const CommunicatorPlan> plan_;
  mutable std::optional<OwnedComm> native_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(const CommServices& services, GroupLabel label,
                                                    std::vector<int> members, int rank, int lane,
                                                    OwnedComm traffic,
                                                    std::shared_ptr<const CommunicatorPlan> plan) {
  return std::make_unique<MpiCommunicator>(services, std::move(label), std::move(members), rank,
                                           lane, std::move(traffic), std::move(plan));
}

}  // namespace trireme
