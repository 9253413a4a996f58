#include "device_staging.h"

#include <algorithm>
#include <atomic>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr std::size_t kAlignment = 64;  // of what lies in a block: the word first

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// What was written before is seen by whoever sees the value.
void write(std::uint32_t* word, std::uint32_t value) {
  std::atomic_ref<std::uint32_t>(*word).store(value, std::memory_order_release);
}

// Whether streams of the device can wait for memory: one that does not have to is asked.
bool try_waiting(cuda::Runtime& cuda, Allocator& pinned, const Stream& stream) {
  const Buffer block = pinned.allocate(kAlignment, MemoryUse::kCommunication, stream);
  auto* word = reinterpret_cast<std::uint32_t*>(block.get());
  write(word, 1);
  record_use(block, stream);
  return cuda.wait_value(stream.native(), word, 1);
}

bool reads(const Part& part) {
  return part.use != Part::Use::kWrite;
}
bool writes(const Part& part) {
  return part.use != Part::Use::kRead;
}

}  // namespace

class DeviceStaging::StagedOperation final : public StagedTask {
 public:
  StagedOperation(std::shared_ptr<DeviceStaging> staging, const LaneKey& key,
                  const std::vector<Part>& parts, bool direct)
      : staging_(std::move(staging)),
        direct_(direct),
        comes_back_(direct || std::ranges::any_of(parts, writes)),
        arrival_(new_event()) {
    if (comes_back_) back_ = staging_->stream_back(key);
    take_memory(parts);
  }

  ~StagedOperation() override {
    if (done_) return;  // the device is done with all memory
    host_part_.reset();
    if (flagged_) staging_->release_word(word_);
    for (const Stream& stream : {staging_->out_.get(), back_}) {
      record_use(block_, stream);
      for (const Tensor& tensor : held_) tensor.record_use(stream);
    }
  }

  // Everything that can be queued before the host's part. What was queued before a throw ends with
  // the object.
  void queue(const Stream& ready) {
    auto mark = new_event();
    mark->record(ready);
    if (direct_) {
      beginning_ = mark;
    } else if (!reads_.empty()) {
      const Stream& out = staging_->out_.get();
      mark->make_wait(out);
      for (const Copy& copy : reads_) {
        staging_->cuda_->copy(copy.host, copy.device, copy.bytes, cuda::CopyDirection::kToHost,
                              out.native());
      }
      beginning_ = comes_back_ ? new_event() : arrival_;
      beginning_->record(out);
    }
    if (!comes_back_) return;
    // CUDA is to know this order, since it does not see that of the word.
    (beginning_ ? beginning_ : mark)->make_wait(back_);
    if (!staging_->stream_waits_) return;
    staging_->add_word(word_);
    flagged_ = true;
    TRIREME_CHECK(staging_->cuda_->wait_value(back_.native(), word_, 1),
                  "a stream that could wait for memory no longer can");
    queue_copies_back();
  }

  void set_host_part(std::unique_ptr<Task> task) override { host_part_ = std::move(task); }
  std::shared_ptr<cuda::Event> arrival() const override {
    return comes_back_ && !flagged_ ? nullptr : arrival_;
  }

  bool may_begin() override {
    return keeping_faults([this] { return !beginning_ || beginning_->done(); });
  }

  Step advance() override {
    return keeping_faults([this] { return host_part_ ? advance_host_part() : advance_arrival(); });
  }

 private:
  struct Copy {
    void* host;
    void* device;
    std::size_t bytes;
  };

  std::shared_ptr<cuda::Event> new_event() const {
    return std::make_shared<cuda::Event>(staging_->cuda_, staging_->device_);
  }

  // One block: the word, then what of each tensor lies on the host.
  void take_memory(const std::vector<Part>& parts) {
    for (const Part& part : parts) held_.push_back(part.tensor);
    std::size_t bytes = kAlignment;
    for (const Part& part : parts) bytes += direct_ ? 0 : aligned(part.tensor.bytes());
    block_ = staging_->pinned_->allocate(bytes, MemoryUse::kCommunication, staging_->out_.get());
    word_ = reinterpret_cast<std::uint32_t*>(block_.get());
    write(word_, 0);
    if (direct_) return;
    std::byte* place = block_.get() + kAlignment;
    for (const Part& part : parts) {
      Tensor& tensor = part.tensor;
      const Copy copy{place, tensor.raw(), tensor.bytes()};
      if (copy.bytes > 0 && reads(part)) reads_.push_back(copy);
      if (copy.bytes > 0 && writes(part)) writes_.push_back(copy);
      tensor = Tensor::wrap(place, tensor.shape(), tensor.dtype());
      place += aligned(copy.bytes);
    }
  }

  void queue_copies_back() {
    for (const Copy& copy : writes_) {
      staging_->cuda_->copy(copy.device, copy.host, copy.bytes, cuda::CopyDirection::kToDevice,
                            back_.native());
    }
    arrival_->record(back_);
  }

  Step advance_host_part() {
    const Step step = host_part_->advance();
    if (step != Step::kDone) return step;
    host_part_.reset();
    if (flagged_) {
      staging_->release_word(word_);
    } else if (comes_back_) {
      queue_copies_back();
    }
    return Step::kMoved;
  }

  Step advance_arrival() {
    done_ = arrival_->done();
    return done_ ? Step::kDone : Step::kIdle;
  }

  // Streams go on after a fault, and nobody may wait on the host: the next operation tells it.
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
  const bool direct_, comes_back_;
  Stream back_;  // of the CPU, where nothing comes back
  Tensors held_;
  Buffer block_;
  std::uint32_t* word_ = nullptr;  // 1: the copies back may be made
  bool flagged_ = false;           // a stream waits for it
  std::vector<Copy> reads_, writes_;
  std::shared_ptr<cuda::Event> beginning_;  // the host's part may begin; none: it may at once
  std::shared_ptr<cuda::Event> arrival_;    // the device has all
  std::unique_ptr<Task> host_part_;
  bool done_ = false;
};

DeviceStaging::DeviceStaging(std::shared_ptr<cuda::Runtime> cuda, int device,
                             const StagingOptions& options)
    : cuda_(std::move(cuda)),
      device_(device),
      direct_(options.direct),
      pinned_(cuda::make_pinned_allocator(cuda_, device, options.pinned_limit)),
      out_(cuda_, device, true),
      stream_waits_(options.stream_waits && try_waiting(*cuda_, *pinned_, out_.get())) {}

std::unique_ptr<StagedTask> DeviceStaging::stage(const LaneKey& key, const Stream& ready,
                                                 const std::vector<Part>& parts, bool messages) {
  TRIREME_CHECK(ready.device().index == device_,
                fmt::format("a tensor of {} was given to communicators of cuda:{}",
                            ready.device().to_string(), device_));
  throw_fault();
  auto task =
      std::make_unique<StagedOperation>(shared_from_this(), key, parts, direct_ && messages);
  task->queue(ready);
  return task;
}

const Stream& DeviceStaging::stream_back(const LaneKey& key) {
  const std::lock_guard lock(mutex_);
  return back_.try_emplace(key, cuda_, device_, true).first->second.get();
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
  if (released_) write(word, 1);
}

void DeviceStaging::release_word(std::uint32_t* word) {
  const std::lock_guard lock(mutex_);
  words_.erase(word);
  write(word, 1);
}

void DeviceStaging::release_streams() {
  const std::lock_guard lock(mutex_);
  released_ = true;
  for (std::uint32_t* word : words_) write(word, 1);
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

}  // namespace trireme
