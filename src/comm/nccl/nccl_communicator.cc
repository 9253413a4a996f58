#include "comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "trireme/comm/checked_arguments.h"
#include "trireme/comm/launcher.h"
#include "trireme/comm/reduce.h"

#include "comm/faults/ending.h"
#include "comm/nccl/captured_operations.h"
#include "comm/nccl/guarded_communicator.h"
#include "comm/nccl/nccl_memory.h"

namespace trireme::nccl {
namespace {

// The first rank of the group makes the unique id and sends it to the other ranks of the group,
// over MPI. A split of the world's communicator would need all ranks of the world to take part, but
// only the group's own ranks make it. Nor do we share the resources that a split could share.
UniqueId agree_on_id(Session& session, Communicator& host) {
  struct Told {
    Result result = Result::kSuccess;
    UniqueId id = {};
  } told;
  if (host.rank() == 0) told.result = session.library().make_unique_id(told.id);
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof told);
  host.broadcast(Stream(), Tensor::wrap(&told, {kBytes}, DType::kU8), 0).wait_host();
  if (told.result != Result::kSuccess) {
    throw_fault(session.library(), nullptr, "make an id for " + host.name(), told.result);
  }
  return told.id;
}

// Writes the tuner's table for a communicator that is about to start. Its first rank makes it.
void tell_tuner(Session& session, Communicator& host) {
  if (session.tuner() == nullptr) return;
  std::vector<int> ranks;
  for (int rank = 0; rank < host.size(); ++rank) ranks.push_back(host.world_rank(rank));
  const NcclTuning& tuning = session.parts().tuning;
  const std::string text = host.read_once([&] { return tuning.table(host.name(), ranks); });
  session.tuner()->write(text);
  if (tuning.told) tuning.told(host.name(), text);
}

// Records a call that all ranks make as an operation, for the watchdog.
class Recorded {
 public:
  Recorded(FlightRecorder& recorder, int lane, std::string_view name)
      : recorder_(recorder), id_(recorder.begin(lane, -1, false, name, 0)) {}
  ~Recorded() { recorder_.end(id_); }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

 private:
  FlightRecorder& recorder_;
  std::uint64_t id_;
};

class NcclCommunicator final : public GuardedCommunicator {
 public:
  NcclCommunicator(Session& session, std::unique_ptr<Communicator> host, int lane)
      : GuardedCommunicator(session, std::move(host)),
        lane_(lane),
        stream_(session.lend_stream()),
        connection_(std::make_shared<Connection>(session, name())) {
    session_.check();
    const UniqueId id = agree_on_id(session_, *host_);
    tell_tuner(session_, *host_);
    session_.add(connection_);
    const Recorded recorded(*session_.parts().recorder, lane_, "ncclCommInitRank");
    connection_->open(size(), id, rank());
  }
  // Closing is collective. While an exception is in flight, the other ranks may not take part.
  ~NcclCommunicator() override {
    if (std::uncaught_exceptions() > 0) {
      end_after_fault(fmt::format("rank {} ({})", world_rank(rank()), node_name()),
                      [this] { session_.abort(*connection_); });
    } else {
      connection_->close();
    }
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  bool fixes_order_of_sums(DeviceKind device) const override {
    return device == DeviceKind::kCpu && GuardedCommunicator::fixes_order_of_sums(device);
  }

  bool exchanges_in_order(DeviceKind device) const override { return device != DeviceKind::kCpu; }

  Work all_reduce(const Stream& ready, Tensor data, ReduceOp op) override {
    if (all_on_host(ready, {data})) {
      return GuardedCommunicator::all_reduce(ready, std::move(data), op);
    }
    check_reducible(data.dtype());
    return collective(
        ready, "all_reduce", data.bytes(), {data}, [&](Library& nccl, CommHandle comm) {
          return nccl.all_reduce(data.raw(), count_of(data), data.dtype(), op, comm, native());
        });
  }

  Work reduce_scatter(const Stream& ready, Tensor input, Tensor output, ReduceOp op) override {
    if (all_on_host(ready, {input, output})) {
      return GuardedCommunicator::reduce_scatter(ready, std::move(input), std::move(output), op);
    }
    check_reducible(input.dtype());
    check_parts(*this, "reduce_scatter", input, output);
    return collective(ready, "reduce_scatter", input.bytes(), {input, output},
                      [&](Library& nccl, CommHandle comm) {
                        return nccl.reduce_scatter(input.raw(), output.raw(), count_of(output),
                                                   input.dtype(), op, comm, native());
                      });
  }

  Work all_gather(const Stream& ready, Tensor input, Tensor output) override {
    if (all_on_host(ready, {input, output})) {
      return GuardedCommunicator::all_gather(ready, std::move(input), std::move(output));
    }
    check_parts(*this, "all_gather", output, input);
    return collective(
        ready, "all_gather", output.bytes(), {input, output}, [&](Library& nccl, CommHandle comm) {
          return nccl.all_gather(input.raw(), output.raw(), input.bytes(), comm, native());
        });
  }

  Work all_gather_together(const Stream& ready, std::vector<Gather> gathers) override {
    std::vector<std::reference_wrapper<Tensor>> gathered;
    for (Gather& one : gathers) gathered.insert(gathered.end(), {one.input, one.output});
    if (all_on_host(ready, gathered)) {
      return GuardedCommunicator::all_gather_together(ready, std::move(gathers));
    }
    std::erase_if(gathers, [](const Gather& one) { return one.output.bytes() == 0; });
    std::vector<OperationPart> parts;
    std::vector<Tensor> tensors;
    for (const Gather& one : gathers) {
      check_parts(*this, "all_gather", one.output, one.input);
      parts.push_back({{.lane = lane_}, "all_gather", one.output.bytes()});
      tensors.insert(tensors.end(), {one.input, one.output});
    }
    return enter(ready, "all_gather", parts, tensors, [&](Library& nccl, CommHandle comm) {
      return grouped(nccl, [&](auto add) {
        for (const Gather& one : gathers) {
          add(nccl.all_gather(one.input.raw(), one.output.raw(), one.input.bytes(), comm,
                              native()));
        }
      });
    });
  }

  Work broadcast(const Stream& ready, Tensor data, int root) override {
    check_member(*this, root);
    if (all_on_host(ready, {data})) {
      return GuardedCommunicator::broadcast(ready, std::move(data), root);
    }
    return collective(ready, "broadcast", data.bytes(), {data},
                      [&](Library& nccl, CommHandle comm) {
                        return nccl.broadcast(data.raw(), data.bytes(), root, comm, native());
                      });
  }

  // Uses one group of sends and receives, which every version of NCCL has.
  Work all_to_all(const Stream& ready, Tensor input, Tensor output) override {
    if (all_on_host(ready, {input, output})) {
      return GuardedCommunicator::all_to_all(ready, std::move(input), std::move(output));
    }
    check_all_to_all(*this, input, output);
    const std::size_t part = input.bytes() / static_cast<std::size_t>(size());
    const auto at = [part](const Tensor& tensor, int rank) {
      return static_cast<std::byte*>(tensor.raw()) + static_cast<std::size_t>(rank) * part;
    };
    return collective(ready, "all_to_all", input.bytes(), {input, output},
                      [&](Library& nccl, CommHandle comm) {
                        return grouped(nccl, [&](auto add) {
                          for (int rank = 0; rank < size(); ++rank) {
                            add(nccl.send(at(input, rank), part, rank, comm, native()));
                            add(nccl.receive(at(output, rank), part, rank, comm, native()));
                          }
                        });
                      });
  }

  Work exchange(const Stream& ready, std::vector<Transfer> transfers) override {
    std::vector<std::reference_wrapper<Tensor>> exchanged;
    for (Transfer& transfer : transfers) exchanged.push_back(transfer.tensor);
    if (all_on_host(ready, exchanged)) {
      return GuardedCommunicator::exchange(ready, std::move(transfers));
    }
    std::vector<OperationPart> parts;
    std::vector<Tensor> tensors;
    for (const Transfer& transfer : transfers) {
      check_member(*this, transfer.peer);
      if (transfer.tensor.bytes() == 0) continue;  // neither side sends or receives it
      const bool sends = transfer.direction == Transfer::Direction::kSend;
      parts.push_back({{lane_, world_rank(transfer.peer), sends},
                       sends ? "send" : "receive",
                       transfer.tensor.bytes()});
      tensors.push_back(transfer.tensor);
    }
    return enter(ready, "exchange", parts, tensors, [&](Library& nccl, CommHandle comm) {
      return grouped(nccl, [&](auto add) {
        for (const Transfer& transfer : transfers) {
          const Tensor& tensor = transfer.tensor;
          if (tensor.bytes() == 0) continue;
          const bool sends = transfer.direction == Transfer::Direction::kSend;
          add(sends ? nccl.send(tensor.raw(), tensor.bytes(), transfer.peer, comm, native())
                    : nccl.receive(tensor.raw(), tensor.bytes(), transfer.peer, comm, native()));
        }
      });
    });
  }

  Buffer backend_memory(std::size_t bytes) override {
    session_.check();
    return session_.allocate(bytes);
  }
  std::shared_ptr<void> register_memory(const Buffer& memory, std::size_t bytes) override {
    const Recorded recorded(*session_.parts().recorder, lane_, "register_memory");
    return nccl::register_memory(session_, connection_, *this, memory, bytes);
  }

 private:
  using Call = std::function<Result(Library&, CommHandle)>;

  cuda::StreamHandle native() const { return stream_->get().native(); }
  static std::size_t count_of(const Tensor& tensor) {
    return static_cast<std::size_t>(tensor.elements());
  }

  Work collective(const Stream& ready, const char* what, std::size_t bytes,
                  const std::vector<Tensor>& tensors, const Call& call) {
    if (bytes == 0) return {};
    return enter(ready, what, {{{.lane = lane_}, what, bytes}}, tensors, call);
  }

  Work enter(const Stream& ready, const char* what, const std::vector<OperationPart>& parts,
             const std::vector<Tensor>& tensors, const Call& call) {
    if (parts.empty()) return {};
    session_.check();
    const Stream& stream = stream_->get();
    for (const Tensor& tensor : tensors) tensor.record_use(stream);
    if (session_.capture() != nullptr) {
      return session_.capture()->add(ready, stream, connection_, parts,
                                     [&] { connection_->call(what, call); });
    }
    const auto operation = std::make_shared<DeviceOperation>(session_, connection_);
    std::vector<ProgressEngine::Queued> queued;
    for (const OperationPart& part : parts) {
      queued.push_back({part.key, part.name, part.bytes, make_device_task(operation)});
    }
    // Queued before the operation is entered, so that the watchdog knows of it if peers are
    // missing.
    Work polled = session_.parts().engine->submit(std::move(queued));
    try {
      operation->prepare(ready, stream);
      connection_->call(what, call);
      operation->entered(stream);
    } catch (...) {
      operation->failed(std::current_exception());
      session_.fail(std::current_exception());
      throw;
    }
    return make_device_work(session_, operation, std::move(polled));
  }

  // All calls of `body` form one operation. Returns the first error. Ends the group in any case.
  template <class Body>
  static Result grouped(Library& nccl, const Body& body) {
    Result first = nccl.group_start();
    if (first != Result::kSuccess) return first;
    body([&first](Result result) {
      const bool fine = result == Result::kSuccess || result == Result::kInProgress;
      if (first == Result::kSuccess && !fine) first = result;
    });
    const Result end = nccl.group_end();
    return first == Result::kSuccess ? end : first;
  }

  const int lane_;
  const Session::LentStream stream_;
  const std::shared_ptr<Connection> connection_;
};

}  // namespace

std::unique_ptr<Communicator> make_communicator(Session& session,
                                                std::unique_ptr<Communicator> host, int lane) {
  return std::make_unique<NcclCommunicator>(session, std::move(host), lane);
}

}  // namespace trireme::nccl
