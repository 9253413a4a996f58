#include "comm/nccl/nccl_memory.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/log.h"

namespace trireme::nccl {
namespace {

using Kind = Library::Registration;

// A rank's result of a registration. The least result of all ranks counts for all.
enum class Verdict : std::int32_t { kRefused, kNothingMade, kBuffer, kWindow };

Verdict verdict_of(std::optional<Kind> kind) {
  if (!kind) return Verdict::kRefused;
  return *kind == Kind::kWindow ? Verdict::kWindow : Verdict::kBuffer;
}

Verdict least(Communicator& comm, Verdict own) {
  return static_cast<Verdict>(comm.all_reduce_host(static_cast<std::int32_t>(own), ReduceOp::kMin));
}

// Collective. Reports that NCCL refused some rank: rank 0 of the communicator prints the reason,
// once per run.
void tell(Session& session, Communicator& comm, const std::string& own_refusal) {
  const int refused = own_refusal.empty() ? comm.size() : comm.rank();
  const int first = comm.all_reduce_host(refused, ReduceOp::kMin);
  const std::string why = comm.broadcast_text(own_refusal, first);
  if (comm.rank() != 0 || !session.first_refusal()) return;
  report_line(
      fmt::format("NCCL does not register memory with {}: {}; tensors go by way of its own buffers",
                  comm.name(), why));
}

// Ends a registration that all ranks have.
class Registered {
 public:
  Registered(Session& session, std::shared_ptr<Connection> connection, Buffer memory,
             Connection::Registration& registration)
      : session_(session),
        connection_(std::move(connection)),
        memory_(std::move(memory)),
        registration_(registration) {}
  ~Registered() {
    if (std::uncaught_exceptions() > 0) return;
    session_.wait_for_device();
    connection_->deregister(registration_);
  }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

 private:
  Session& session_;
  const std::shared_ptr<Connection> connection_;
  const Buffer memory_;  // not freed before the registration ends
  Connection::Registration& registration_;
};

}  // namespace

std::shared_ptr<void> register_memory(Session& session,
                                      const std::shared_ptr<Connection>& connection,
                                      Communicator& comm, const Buffer& memory, std::size_t bytes) {
  std::string refusal;
  Connection::Registration* made = nullptr;
  const auto attempt = [&](Kind kind, Verdict success) {
    made = connection->register_memory(kind, memory.get(), bytes, refusal);
    const Verdict fine = made == nullptr ? Verdict::kNothingMade : success;
    return least(comm, refusal.empty() ? fine : Verdict::kRefused);
  };
  const std::optional<Kind> kind = session.kind_of(memory);
  if (!kind) refusal = "there is too little memory of the kind that NCCL shares";
  Verdict verdict = least(comm, verdict_of(kind));
  if (verdict == Verdict::kWindow) {
    verdict = attempt(Kind::kWindow, Verdict::kWindow);
    session.set_in_window(memory, verdict == Verdict::kWindow);
    if (verdict == Verdict::kNothingMade) {                // some GPU cannot reach another
      if (made != nullptr) connection->deregister(*made);  // nothing has used it
      verdict = attempt(Kind::kBuffer, Verdict::kBuffer);
    }
  } else if (verdict == Verdict::kBuffer) {
    verdict = attempt(Kind::kBuffer, Verdict::kBuffer);
  }
  if (verdict == Verdict::kRefused) {
    if (made != nullptr) connection->deregister(*made);  // nothing has used it
    tell(session, comm, refusal);
    return nullptr;
  }
  if (made == nullptr) return nullptr;
  return std::make_shared<Registered>(session, connection, memory, *made);
}

}  // namespace trireme::nccl
