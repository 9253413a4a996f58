#include "comm/device/device_staging.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/tensor/cuda_shareable.h"

#include "comm/device/chunk_plan.h"

namespace trireme {
namespace {

bool reads(Part::Use use) {
  return use != Part::Use::kWrite;
}
bool writes(Part::Use use) {
  return use != Part::Use::kRead;
}

}  // namespace

class DeviceStaging::StagedOperation final : public StagedTask {
 public:
  StagedOperation(std::shared_ptr<DeviceStaging> staging, const std::vector<Part>& parts,
                  HostPart host_part)
      : staging_(std::move(staging)),
        memory_(staging_->direct_ && host_part.messages ? *staging_->shareable_
                                                        : *staging_->pinned_),
        make_(std::move(host_part.make)),
        plan_(parts, staging_->chunk_bytes_, host_part.whole),
        reads_(std::ranges::any_of(parts, reads, &Part::use)),
        writes_(std::ranges::any_of(parts, writes, &Part::use)),
        ready_(new_event()) {
    for (const Part& part : parts) held_.push_back(part.tensor);
    block_ = memory_.allocate(plan_.slots() * plan_.slot_bytes(), MemoryUse::kCommunication,
                              staging_->out_.get());
    for (std::size_t i = 0; i < plan_.slots(); ++i) slots_.push_back({new_event(), new_event()});
  }

  ~StagedOperation() override {
    if (done_) return;  // the device is done with all memory
    task_.reset();
    for (const Stream& stream :
         {staging_->out_.get(), staging_->later_out_.get(), staging_->back_.get()}) {
      record_use(block_, stream);
      for (const Tensor& tensor : held_) tensor.record_use(stream);
    }
  }

  // Queues everything that can be queued before the host's part. If it throws, the destructor takes
  // care of what is already queued.
  void queue(const Stream& ready) {
    ready_->record(ready);
    if (!reads_) return;
    ready_->make_wait(staging_->out_.get());
    while (downs_ < plan_.slots()) queue_down(staging_->out_.get());
  }

  std::shared_ptr<cuda::Event> arrival() const override {
    const bool is_sent_at_once = reads_ && !writes_ && plan_.chunks() <= plan_.slots();
    return is_sent_at_once ? slots_[plan_.chunks() - 1].down : nullptr;
  }

  bool may_begin() override {
    return keeping_faults([this] { return is_here(0); });
  }

  Step advance() override {
    return keeping_faults([this] {
      bool moved = queue_copies();
      if (chunk_ < plan_.chunks()) {
        const Step step = advance_chunk();
        if (step == Step::kIdle) return moved ? Step::kMoved : Step::kIdle;
        if (step == Step::kMoved || chunk_ < plan_.chunks()) return Step::kMoved;
        moved |= queue_copies();
      }
      done_ = !writes_ || (ups_ == plan_.chunks() && slot(ups_ - 1).up->done());
      return done_ ? Step::kDone : moved ? Step::kMoved : Step::kIdle;
    });
  }

 private:
  struct Slot {
    std::shared_ptr<cuda::Event> down, up;  // the copies of the chunk that it holds now
  };

  std::shared_ptr<cuda::Event> new_event() const {
    return std::make_shared<cuda::Event>(staging_->cuda_, staging_->device_);
  }
  cuda::CopyDirection copied(cuda::CopyDirection by_host) const {
    const bool on_host = memory_.device().kind == DeviceKind::kCpu;
    return on_host ? by_host : cuda::CopyDirection::kOnDevice;
  }
  Slot& slot(std::size_t chunk) { return slots_[chunk % slots_.size()]; }
  std::byte* place(std::size_t chunk) const {
    return block_.get() + chunk % slots_.size() * plan_.slot_bytes();
  }

  // Queues the copies that may begin: back to the device, of chunks whose host's part is done, and
  // to the host, of chunks whose slot is free. They go to streams that never wait: on the stream
  // `out_` they might be behind the `ready` of a later operation, which may depend on them.
  bool queue_copies() {
    bool moved = false;
    for (; writes_ && ups_ < chunk_ && ready_->done(); moved = true) queue_up();
    for (; reads_ && downs_ < plan_.chunks() && is_free(downs_); moved = true) {
      queue_down(staging_->later_out_.get());
    }
    return moved;
  }
  void queue_down(const Stream& out) {
    plan_.for_each_strip(downs_, place(downs_), reads,
                         [&](std::byte* slot, const std::byte* device, std::size_t bytes) {
                           staging_->cuda_->copy(slot, device, bytes,
                                                 copied(cuda::CopyDirection::kToHost),
                                                 out.native());
                         });
    slot(downs_).down->record(out);
    ++downs_;
  }
  void queue_up() {
    const Stream& back = staging_->back_.get();
    plan_.for_each_strip(ups_, place(ups_), writes,
                         [&](const std::byte* slot, std::byte* device, std::size_t bytes) {
                           staging_->cuda_->copy(device, slot, bytes,
                                                 copied(cuda::CopyDirection::kToDevice),
                                                 back.native());
                         });
    slot(ups_).up->record(back);
    ++ups_;
  }

  // Whether a chunk's slot is free: the earlier chunk in it is done.
  bool is_free(std::size_t chunk) {
    if (chunk < slots_.size()) return true;
    const std::size_t before = chunk - slots_.size();
    return before < chunk_ && (!writes_ || (before < ups_ && slot(before).up->done()));
  }
  // Whether the host's part of a chunk may begin.
  bool is_here(std::size_t chunk) {
    return reads_ ? chunk < downs_ && slot(chunk).down->done() : is_free(chunk);
  }

  Step advance_chunk() {
    if (!task_) {
      if (!is_here(chunk_)) return Step::kIdle;
      task_ = make_(plan_.tensors(chunk_, Buffer(block_, place(chunk_)), memory_.device()));
    }
    const Step step = task_->advance();
    if (step != Step::kDone) return step;
    task_.reset();
    ++chunk_;
    return Step::kDone;
  }

  // Streams continue after a fault, and maybe nobody waits on the host. So the fault is kept, and
  // the next operation throws it.
  template <class Body>
  std::invoke_result_t<Body> keeping_faults(Body body) {
    try {
      return body();
    } catch (...) {
      staging_->keep_fault(std::current_exception());
      throw;
    }
  }

  const std::shared_ptr<DeviceStaging> staging_;
  Allocator& memory_;  // of the slots
  const std::function<std::unique_ptr<Task>(const Tensors&)> make_;
  const ChunkPlan plan_;
  const bool reads_, writes_;
  Tensors held_;
  Buffer block_;  // the slots
  std::shared_ptr<cuda::Event> ready_;
  std::vector<Slot> slots_;
  std::unique_ptr<Task> task_;       // the host's part of chunk_
  std::size_t chunk_ = 0;            // the first chunk whose host's part is not done
  std::size_t downs_ = 0, ups_ = 0;  // copies queued so far
  bool done_ = false;
};

DeviceStaging::DeviceStaging(std::shared_ptr<cuda::Runtime> cuda, int device,
                             const StagingOptions& options)
    : cuda_(std::move(cuda)),
      device_(device),
      direct_(options.direct),
      chunk_bytes_(options.chunk_bytes),
      pinned_(cuda::make_pinned_allocator(cuda_, device, options.pinned_limit)),
      shareable_(cuda::make_shareable_allocator(cuda_, device)),
      out_(cuda_, device, true),
      later_out_(cuda_, device, true),
      back_(cuda_, device, true) {}

std::unique_ptr<StagedTask> DeviceStaging::stage(const Stream& ready,
                                                 const std::vector<Part>& parts,
                                                 HostPart host_part) {
  TRIREME_CHECK(ready.device().index == device_,
                fmt::format("a tensor of {} was given to communicators of cuda:{}",
                            ready.device().to_string(), device_));
  throw_fault();
  auto task = std::make_unique<StagedOperation>(shared_from_this(), parts, std::move(host_part));
  task->queue(ready);
  return task;
}

void DeviceStaging::throw_fault() const {
  const std::lock_guard lock(mutex_);
  if (fault_) std::rethrow_exception(fault_);
}

void DeviceStaging::keep_fault(std::exception_ptr fault) {
  const std::lock_guard lock(mutex_);
  if (!fault_) fault_ = std::move(fault);
}

bool on_one_device(const Stream& ready, const std::vector<Part>& parts) {
  const Device device = parts.empty() ? Device() : parts.front().tensor.device();
  for (const Part& part : parts) {
    TRIREME_CHECK(part.tensor.device() == device,
                  fmt::format("one operation was given tensors of {} and of {}", device.to_string(),
                              part.tensor.device().to_string()));
  }
  if (device.kind == DeviceKind::kCpu) return false;
  TRIREME_CHECK(ready.device() == device,
                fmt::format("an operation on {} was to begin after a stream of {}",
                            device.to_string(), ready.device().to_string()));
  return true;
}

void check_may_carry_devices(bool may, const std::string& name) {
  TRIREME_CHECK(may,
                fmt::format("communicator {} was given a tensor of a GPU, but carries those of "
                            "the host alone",
                            name));
}

}  // namespace trireme
