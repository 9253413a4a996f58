#include "trireme/tensor/cuda.h"

namespace trireme::cuda {

OwnedStream::OwnedStream(std::shared_ptr<Runtime> runtime, int device, bool urgent)
    : runtime_(std::move(runtime)),
      stream_({DeviceKind::kCuda, device}, runtime_->create_stream(device, urgent),
              runtime_.get()) {}

OwnedStream::~OwnedStream() {
  runtime_->destroy_stream(stream_.native());
}

Event::Event(std::shared_ptr<Runtime> runtime, int device, bool timed)
    : runtime_(std::move(runtime)),
      handle_(timed ? runtime_->create_timed_event(device) : runtime_->create_event(device)) {}

Event::~Event() {
  runtime_->destroy_event(handle_);
}

void Event::record(const Stream& stream) {
  runtime_->record(handle_, stream.native());
}

void Event::make_wait(const Stream& stream) const {
  runtime_->wait(stream.native(), handle_);
}

bool Event::done() const {
  return runtime_->done(handle_);
}

void Event::synchronize() const {
  runtime_->synchronize_event(handle_);
}

double Event::seconds_since(const Event& earlier) const {
  return runtime_->seconds_between(earlier.handle_, handle_);
}

}  // namespace trireme::cuda
