#include "device_staging.h"

#include <algorithm>
#include <atomic>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"

#include "chunk_plan.h"

namespace trireme {
namespace {

// A reader that sees the value also sees everything that was written before it (release order).
void write_word(std::uint32_t* word, std::uint32_t value) {
  std::atomic_ref<std::uint32_t>(*word).store(value, std::memory_order_release);
}

// Whether streams of the device can wait for memory. Tries it with a word that has its value
// already, so that the stream does not wait.
bool try_waiting(cuda::Runtime& cuda, Allocator& pinned, const Stream& stream) {
  const Buffer block = pinned.allocate(kSlotAlignment, MemoryUse::kCommunication, stream);
  auto* word = reinterpret_cast<std::uint32_t*>(block.get());
  write_word(word, 1);
  record_use(block, stream);
  return cuda.wait_value(stream.native(), word, 1);
}

bool reads(Part::Use use) {
  return use != Part::Use::kWrite;
}
bool writes(Part::Use use) {
  return use != Part::Use::kRead;
}

}  // namespace

class DeviceStaging::StagedOperation final : public StagedTask {
 public:
  StagedOperation(std::shared_ptr<DeviceStaging> staging, const LaneKey& key,
                  const std::vector<Part>& parts, HostPart host_part)
      : staging_(std::move(staging)),
        direct_(staging_->direct_ && host_part.messages),
        make_(std::move(host_part.make)),
        plan_(parts, staging_->chunk_bytes_, host_part.whole || direct_),
        reads_(!direct_ && std::ranges::any_of(parts, reads, &Part::use)),
        writes_(!direct_ && std::ranges::any_of(parts, writes, &Part::use)),
        comes_back_(direct_ || writes_ || plan_.chunks() > plan_.slots()),
        ready_(new_event()),
        arrival_(new_event()) {
    if (comes_back_) back_ = staging_->stream_back(key);
    for (const Part& part : parts) held_.push_back(part.tensor);
    const std::size_t bytes = direct_ ? 0 : plan_.slots() * plan_.slot_bytes();
    block_ = staging_->pinned_->allocate(kSlotAlignment + bytes, MemoryUse::kCommunication,
                                         staging_->out_.get());
    word_ = reinterpret_cast<std::uint32_t*>(block_.get());
    write_word(word_, 0);
    for (std::size_t i = 0; i < plan_.slots(); ++i) slots_.push_back({new_event(), new_event()});
  }

  ~StagedOperation() override {
    if (done_) return;  // the device is done with all memory
    task_.reset();
    if (flagged_) staging_->release_word(word_);
    for (const Stream& stream :
         {staging_->out_.get(), staging_->later_out_.get(), staging_->later_in_.get(), back_}) {
      record_use(block_, stream);
      for (const Tensor& tensor : held_) tensor.record_use(stream);
    }
  }

  // Queues everything that can be queued before the host's part. If it throws, the destructor takes
  // care of what is already queued.
  void queue(const Stream& ready) {
    ready_->record(ready);
    if (reads_) {
      ready_->make_wait(staging_->out_.get());
      while (downs_ < plan_.slots()) queue_down(staging_->out_.get());
    }
    if (!comes_back_) {
      arrival_->record(reads_ ? staging_->out_.get() : ready);
      return;
    }
    // Tells CUDA about this order, because CUDA does not see the order that the word imposes.
    (reads_ ? slots_[0].down : ready_)->make_wait(back_);
    // Copies that are queued later may share a connection with the stream `back_`. Then they would
    // be stuck behind the wait for the word, which waits for them.
    const bool all_queued = plan_.chunks() <= plan_.slots();
    if (!staging_->stream_waits_ || !(all_queued || staging_->streams_are_apart())) return;
    staging_->add_word(word_);
    flagged_ = true;
    TRIREME_CHECK(staging_->cuda_->wait_value(back_.native(), word_, 1),
                  "a stream that could wait for memory no longer can");
    queue_last_up();
  }

  std::shared_ptr<cuda::Event> arrival() const override {
    return comes_back_ && !flagged_ ? nullptr : arrival_;
  }

  bool may_begin() override {
    return keeping_faults([this] { return is_here(0); });
  }

  Step advance() override {
    return keeping_faults([this] {
      const bool moved = queue_copies();
      if (chunk_ < plan_.chunks()) {
        const Step step = advance_chunk();
        if (step == Step::kIdle) return moved ? Step::kMoved : Step::kIdle;
        if (step == Step::kMoved || chunk_ < plan_.chunks()) return Step::kMoved;
      }
      return landed_ ? advance_arrival() : land();
    });
  }

 private:
  struct Slot {
    std::shared_ptr<cuda::Event> down, up;  // the copies of the chunk that it holds now
  };

  std::shared_ptr<cuda::Event> new_event() const {
    return std::make_shared<cuda::Event>(staging_->cuda_, staging_->device_);
  }
  Slot& slot(std::size_t chunk) { return slots_[chunk % slots_.size()]; }
  std::byte* place(std::size_t chunk) const {
    return block_.get() + kSlotAlignment + chunk % slots_.size() * plan_.slot_bytes();
  }

  // Queues the remaining copies when their slots are free and their data have arrived. They go to
  // streams that never wait: behind another operation's `ready` they might wait for themselves.
  bool queue_copies() {
    bool moved = false;
    for (; writes_ && ups_ < std::min(chunk_, plan_.chunks() - 1) && ready_->done(); moved = true) {
      queue_up(ups_, staging_->later_in_.get());
      slot(ups_).up->record(staging_->later_in_.get());
      ++ups_;
    }
    for (; reads_ && downs_ < plan_.chunks() && is_free(downs_); moved = true) {
      queue_down(staging_->later_out_.get());
    }
    return moved;
  }
  void queue_down(const Stream& out) {
    plan_.for_each_strip(downs_, place(downs_), reads,
                         [&](std::byte* host, const std::byte* device, std::size_t bytes) {
                           staging_->cuda_->copy(host, device, bytes, cuda::CopyDirection::kToHost,
                                                 out.native());
                         });
    slot(downs_).down->record(out);
    ++downs_;
  }
  void queue_up(std::size_t chunk, const Stream& stream) {
    plan_.for_each_strip(chunk, place(chunk), writes,
                         [&](const std::byte* host, std::byte* device, std::size_t bytes) {
                           staging_->cuda_->copy(device, host, bytes,
                                                 cuda::CopyDirection::kToDevice, stream.native());
                         });
  }
  void queue_last_up() {
    if (writes_) queue_up(plan_.chunks() - 1, back_);
    arrival_->record(back_);
  }

  // Whether a chunk's slot is free: the earlier chunk in it is done.
  bool is_free(std::size_t chunk) {
    if (chunk < slots_.size()) return true;
    const std::size_t before = chunk - slots_.size();
    return before < chunk_ && (!writes_ || (before < ups_ && slot(before).up->done()));
  }
  // Whether the host's part of a chunk may begin.
  bool is_here(std::size_t chunk) {
    if (direct_) return ready_->done();
    return reads_ ? chunk < downs_ && slot(chunk).down->done() : is_free(chunk);
  }

  Step advance_chunk() {
    if (!task_) {
      if (!is_here(chunk_)) return Step::kIdle;
      task_ = make_(direct_ ? held_ : plan_.tensors(chunk_, Buffer(block_, place(chunk_))));
    }
    const Step step = task_->advance();
    if (step != Step::kDone) return step;
    task_.reset();
    ++chunk_;
    return Step::kDone;
  }

  // Called when the host's part is done. Starts the last copy once the other copies are done.
  Step land() {
    const bool missing =
        writes_ && (ups_ + 1 < plan_.chunks() || std::ranges::any_of(slots_, [](const Slot& slot) {
                      return !slot.up->done();  // one that was never recorded is done
                    }));
    if (missing) return Step::kIdle;
    landed_ = true;
    if (flagged_) {
      staging_->release_word(word_);
    } else if (comes_back_) {
      queue_last_up();
    }
    return Step::kMoved;
  }

  Step advance_arrival() {
    done_ = arrival_->done();
    return done_ ? Step::kDone : Step::kIdle;
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
  const bool direct_;
  const std::function<std::unique_ptr<Task>(const Tensors&)> make_;
  const ChunkPlan plan_;
  const bool reads_, writes_, comes_back_;
  Stream back_;  // a CPU stream if nothing comes back
  Tensors held_;
  Buffer block_;                   // the word, then the slots
  std::uint32_t* word_ = nullptr;  // 1: the last copies back may start
  bool flagged_ = false;           // a stream waits for it
  std::shared_ptr<cuda::Event> ready_;
  std::shared_ptr<cuda::Event> arrival_;  // everything is on the device
  std::vector<Slot> slots_;
  std::unique_ptr<Task> task_;          // the host's part of chunk_
  std::size_t chunk_ = 0;               // the first chunk whose host's part is not done
  std::size_t downs_ = 0, ups_ = 0;     // copies queued so far, without that of queue_last_up
  bool landed_ = false, done_ = false;  // all but the last copy is done; everything is done
};

DeviceStaging::DeviceStaging(std::shared_ptr<cuda::Runtime> cuda, int device,
                             const StagingOptions& options)
    : cuda_(std::move(cuda)),
      device_(device),
      direct_(options.direct),
      chunk_bytes_(options.chunk_bytes),
      connections_(static_cast<std::size_t>(options.connections)),
      pinned_(cuda::make_pinned_allocator(cuda_, device, options.pinned_limit)),
      out_(cuda_, device, true),
      later_out_(cuda_, device, true),
      later_in_(cuda_, device, true),
      stream_waits_(options.stream_waits && try_waiting(*cuda_, *pinned_, out_.get())) {}

std::unique_ptr<StagedTask> DeviceStaging::stage(const LaneKey& key, const Stream& ready,
                                                 const std::vector<Part>& parts,
                                                 HostPart host_part) {
  TRIREME_CHECK(ready.device().index == device_,
                fmt::format("a tensor of {} was given to communicators of cuda:{}",
                            ready.device().to_string(), device_));
  throw_fault();
  auto task =
      std::make_unique<StagedOperation>(shared_from_this(), key, parts, std::move(host_part));
  task->queue(ready);
  return task;
}

const Stream& DeviceStaging::stream_back(const LaneKey& key) {
  const std::lock_guard lock(mutex_);
  return back_.try_emplace(key, cuda_, device_, true).first->second.get();
}

bool DeviceStaging::streams_are_apart() const {
  constexpr std::size_t kOthers = 8;  // three of ours, the program's, and what libraries may have
  const std::lock_guard lock(mutex_);
  return back_.size() + kOthers <= connections_;
}

void DeviceStaging::throw_fault() const {
  const std::lock_guard lock(mutex_);
  if (fault_) std::rethrow_exception(fault_);
}

void DeviceStaging::keep_fault(std::exception_ptr fault) {
  const std::lock_guard lock(mutex_);
  if (!fault_) fault_ = std::move(fault);
}

void DeviceStaging::add_word(std::uint32_t* word) {
  const std::lock_guard lock(mutex_);
  words_.insert(word);
  if (released_) write_word(word, 1);
}

void DeviceStaging::release_word(std::uint32_t* word) {
  const std::lock_guard lock(mutex_);
  words_.erase(word);
  write_word(word, 1);
}

void DeviceStaging::release_streams() {
  const std::lock_guard lock(mutex_);
  released_ = true;
  for (std::uint32_t* word : words_) write_word(word, 1);
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
