#include "trireme/comm/communicator.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <utility>

#include "trireme/base/caught.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

class AllOf final : public Work::State {
 public:
  explicit AllOf(std::vector<Work> works) : works_(std::move(works)) {}
  bool done() override { return std::ranges::all_of(works_, &Work::done); }
  void wait_host() override {
    for (const Work& work : works_) work.wait_host();
  }
  void wait_on(const Stream& stream) override {
    for (const Work& work : works_) work.wait_on(stream);
  }

 private:
  std::vector<Work> works_;
};

}  // namespace

Work Communicator::all_gather_together(const Stream& ready, std::vector<Gather> gathers) {
  std::vector<Work> works;
  for (Gather& one : gathers) {
    works.push_back(all_gather(ready, std::move(one.input), std::move(one.output)));
  }
  return works.size() == 1 ? works.front() : Work(std::make_shared<AllOf>(std::move(works)));
}

bool Communicator::agree(bool ok) {
  return all_reduce_host(std::int32_t{ok ? 1 : 0}, ReduceOp::kMin) == 1;
}

Buffer Communicator::backend_memory(std::size_t /*bytes*/) {
  return nullptr;
}

std::shared_ptr<void> Communicator::register_memory(const Buffer& /*memory*/,
                                                    std::size_t /*bytes*/) {
  return nullptr;
}

Tensor allocate_carried(const std::vector<Communicator*>& carriers, Allocator& allocator,
                        const Stream& stream, const Shape& shape, DType dtype, MemoryUse use) {
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
  const bool on_gpu = allocator.device().kind != DeviceKind::kCpu;
  Buffer memory;
  for (Communicator* carrier : carriers) {
    if (!memory && on_gpu && bytes > 0) memory = carrier->backend_memory(bytes);
  }
  memory = memory ? allocator.adopt(std::move(memory), bytes, use)
                  : allocator.allocate(bytes, use, stream);
  if (!on_gpu || bytes == 0) {
    return Tensor::over(std::move(memory), allocator.device(), shape, dtype);
  }
  std::vector<std::shared_ptr<void>> registrations;
  for (Communicator* carrier : carriers) {
    auto registration = carrier->register_memory(memory, bytes);
    if (registration) registrations.push_back(std::move(registration));
  }
  if (registrations.empty()) {  // unwrapped, so that the allocator follows its use on streams
    return Tensor::over(std::move(memory), allocator.device(), shape, dtype);
  }
  std::byte* data = memory.get();
  Buffer held(data, [memory = std::move(memory),
                     registrations = std::move(registrations)](std::byte*) mutable {
    registrations.clear();  // before the memory is freed
    memory.reset();
  });
  return Tensor::over(std::move(held), allocator.device(), shape, dtype);
}

std::string Communicator::broadcast_text(std::string text, int root) {
  auto length = static_cast<std::int64_t>(text.size());
  broadcast(Stream(), Tensor::wrap(std::span(&length, 1)), root).wait_host();
  text.resize(static_cast<std::size_t>(length));
  if (length > 0) {
    broadcast(Stream(), Tensor::wrap(text.data(), {length}, DType::kU8), root).wait_host();
  }
  return text;
}

std::string Communicator::read_once(const std::function<std::string()>& read) {
  std::string status_and_text;
  const auto pack = [&](ExitStatus status, Cause cause, const std::string& text) {
    status_and_text = {static_cast<char>(status), static_cast<char>(cause)};
    status_and_text += text;
  };
  if (rank() == 0) {
    try {
      pack(ExitStatus::kDone, Cause::kWrong, read());
    } catch (...) {
      const Error error = caught(std::current_exception());
      pack(error.status(), error.cause(), error.what());
    }
  }
  status_and_text = broadcast_text(std::move(status_and_text));
  const auto status = static_cast<ExitStatus>(status_and_text.at(0));
  const auto cause = static_cast<Cause>(status_and_text.at(1));
  if (status != ExitStatus::kDone) rethrow(status, status_and_text.substr(2), cause);
  return status_and_text.substr(2);
}

}  // namespace trireme
