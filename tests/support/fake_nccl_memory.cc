// Memory of the scripted NCCL, and its registration.
#include <algorithm>
#include <string>
#include <utility>

#include "trireme/base/error.h"

#include "support/fake_nccl.h"
#include "support/fake_nccl_comm.h"

namespace trireme::testing {

using nccl::Result;

namespace {

constexpr auto kUnhandledCuda = static_cast<Result>(1);

}  // namespace

Result FakeNccl::allocate(void*& memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  Result result;
  if (scripted(result) && !fails_later_) return result;
  std::size_t held = bytes;
  for (const auto& [data, size] : memory_) held += size;
  if (held > memory_limit) return kUnhandledCuda;
  try {
    if (memory_stream_ == nullptr) memory_stream_ = cuda_.create_stream(0, false);
    memory = cuda_.allocate(bytes, memory_stream_);
  } catch (const Error&) {
    return kUnhandledCuda;
  }
  if (memory == nullptr) return kUnhandledCuda;
  memory_.emplace(static_cast<std::byte*>(memory), bytes);
  return Result::kSuccess;
}

FakeNccl::Places FakeNccl::places(const std::string& what) const {
  const std::lock_guard lock(mutex_);
  const auto known = places_.find(what);
  return known == places_.end() ? Places() : known->second;
}

void FakeNccl::note_place(const Operation& operation, CommHandle comm, const char* what) {
  const auto is_registered = [&](const auto& used) {
    const auto* data = static_cast<const std::byte*>(used.first);
    return std::ranges::any_of(registered_, [&](const auto& entry) {
      const Registered& one = entry.second;
      return one.comm == comm && one.data <= data && data + used.second <= one.data + one.bytes;
    });
  };
  Places& all = places_[what];
  ++(std::ranges::all_of(operation.memory, is_registered) ? all.registered : all.elsewhere);
}

// Records a fault if the memory is registered, or if an operation on a stream uses it.
void FakeNccl::check_idle(const std::byte* data, std::size_t bytes, const char* what) {
  for (const auto& known : operations_) {
    const auto operation = known.lock();
    if (operation && operation->uses(data, bytes)) {
      write_down(std::string(what) + " while an operation uses it");
    }
  }
}

Result FakeNccl::free(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto known = memory_.find(static_cast<std::byte*>(memory));
  if (known == memory_.end()) {
    write_down("memory was freed twice");
    return kInvalidArgument;
  }
  const auto [data, bytes] = *known;
  check_idle(data, bytes, "memory was freed");
  for (const auto& [handle, registered] : registered_) {
    if (overlap(registered.data, registered.bytes, data, bytes)) {
      write_down("memory was freed while it was registered");
    }
  }
  memory_.erase(known);
  cuda_.free(memory, memory_stream_);
  if (memory_.empty()) cuda_.destroy_stream(std::exchange(memory_stream_, nullptr));
  return Result::kSuccess;
}

Result FakeNccl::register_memory(CommHandle handle, Registration kind, void* memory,
                                 std::size_t bytes, void*& registration) {
  const std::lock_guard lock(mutex_);
  ++cost_.calls;
  const auto comm = find(handle, "register_memory");
  if (!comm) return kInvalidArgument;
  const auto* data = static_cast<const std::byte*>(memory);
  registration = nullptr;
  const auto done = [this, kind, data, bytes, handle, to = &registration] {
    *to = reinterpret_cast<void*>(++registrations_);
    registered_.emplace(*to, Registered{kind, data, bytes, handle});
    return true;
  };
  if (kind == Registration::kBuffer) {
    Result result;
    if (scripted(result) && !fails_later_) return result;
    cuda_.check_access(memory, bytes, "a registration");
    done();
    return Result::kSuccess;
  }
  const auto own = memory_.upper_bound(data);
  if (!windows || own == memory_.begin() ||
      data + bytes > std::prev(own)->first + std::prev(own)->second) {
    write_down("a window of memory that ranks cannot share");
    return kInvalidArgument;
  }
  for (const auto& [other, registered] : registered_) {
    if (registered.kind == kind && overlap(registered.data, registered.bytes, data, bytes)) {
      write_down("memory is in two windows");
    }
  }
  if (!peers_are_mapped) return Result::kSuccess;
  const auto meeting = std::make_shared<Meeting>(meetings_, comm->tag, comm->others());
  const Result result = begin(comm, [meeting, done] { return meeting->all_are_here() && done(); });
  // The real NCCL, too, says so at once and leaves it to async_error that work goes on.
  return result == Result::kInProgress ? Result::kSuccess : result;
}

Result FakeNccl::deregister_memory(CommHandle handle, Registration kind, void* registration) {
  const std::lock_guard lock(mutex_);
  ++cost_.calls;
  if (!find(handle, "deregister_memory")) return kInvalidArgument;
  const auto known = registered_.find(registration);
  if (known == registered_.end() || known->second.kind != kind || known->second.comm != handle) {
    write_down("memory was deregistered that is not registered so");
    return kInvalidArgument;
  }
  check_idle(known->second.data, known->second.bytes, "memory was deregistered");
  registered_.erase(known);
  return Result::kSuccess;
}

}  // namespace trireme::testing
