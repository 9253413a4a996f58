#include "together.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {

void PhaseFault::raise() const {
  rethrow(status, message);
}

std::optional<PhaseFault> attempt_together(Communicator& comm, const std::function<void()>& body) {
  std::optional<PhaseFault> mine;
  try {
    body();
  } catch (const Error& error) {
    mine = PhaseFault{error.status(), error.what()};
  } catch (const std::exception& error) {
    mine = PhaseFault{ExitStatus::kInternal, error.what()};
  }
  const auto failed = static_cast<int>(comm.all_reduce_host(
      static_cast<std::int64_t>(mine ? comm.rank() : comm.size()), ReduceOp::kMin));
  if (failed == comm.size()) return std::nullopt;
  const std::string words = comm.broadcast_text(
      mine ? fmt::format("{} {}", static_cast<int>(mine->status), mine->message) : "", failed);
  const std::size_t space = words.find(' ');
  PhaseFault fault{static_cast<ExitStatus>(std::stoi(words)), words.substr(space + 1)};
  if (failed != 0) fault.message += fmt::format(" (rank {})", comm.world_rank(failed));
  return fault;
}

void run_together(Communicator& comm, const std::function<void()>& body) {
  if (const auto fault = attempt_together(comm, body)) fault->raise();
}

std::vector<std::string> gather_text(Communicator& comm, const std::string& text) {
  const auto longest = comm.all_reduce_host(static_cast<std::int64_t>(text.size()), ReduceOp::kMax);
  const auto size = static_cast<std::size_t>(longest) + 8;
  std::vector<std::uint8_t> mine(size), all(size * static_cast<std::size_t>(comm.size()));
  for (int byte = 0; byte < 8; ++byte) {
    mine[static_cast<std::size_t>(byte)] = static_cast<std::uint8_t>(text.size() >> (8 * byte));
  }
  std::copy(text.begin(), text.end(), mine.begin() + 8);
  comm.all_gather(Stream(), Tensor::wrap(std::span(mine)), Tensor::wrap(std::span(all)))
      .wait_host();
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(comm.size()); ++rank) {
    const std::uint8_t* part = all.data() + rank * size;
    std::size_t length = 0;
    for (int byte = 7; byte >= 0; --byte) length = (length << 8) | part[byte];
    texts.emplace_back(part + 8, part + 8 + length);
  }
  return texts;
}

void sum_modular(Communicator& comm, std::vector<std::uint64_t>& values) {
  // In halves, whose sums cannot overflow a signed 64-bit integer.
  std::vector<std::int64_t> halves;
  for (const std::uint64_t value : values) {
    halves.push_back(static_cast<std::int64_t>(value & 0xffffffffu));
    halves.push_back(static_cast<std::int64_t>(value >> 32));
  }
  if (halves.empty()) return;
  comm.all_reduce_host(std::span(halves), ReduceOp::kSum);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::uint64_t>(halves[2 * i]) +
                (static_cast<std::uint64_t>(halves[2 * i + 1]) << 32);
  }
}

}  // namespace trireme
