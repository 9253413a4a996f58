#include "trireme/io/together.h"

#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/caught.h"

namespace trireme {
namespace {

// Sends several texts as two messages: first their number and their sizes, then their bytes.
void send_texts(Communicator& comm, int peer, std::span<const std::string> texts) {
  std::vector<std::int64_t> sizes;
  std::string bytes;
  for (const std::string& text : texts) {
    sizes.push_back(std::ssize(text));
    bytes += text;
  }
  std::int64_t count = std::ssize(texts);
  const auto send = [&](Tensor tensor) {
    return Transfer{Transfer::Direction::kSend, peer, std::move(tensor)};
  };
  std::vector<Transfer> transfers = {send(Tensor::wrap(std::span(&count, 1))),
                                     send(Tensor::wrap(std::span(sizes)))};
  if (!bytes.empty()) {
    transfers.push_back(send(Tensor::wrap(bytes.data(), {std::ssize(bytes)}, DType::kU8)));
  }
  comm.exchange(Stream(), std::move(transfers)).wait_host();
}

std::vector<std::string> receive_texts(Communicator& comm, int peer) {
  const auto receive = [&](Tensor tensor) {
    comm.exchange(Stream(), {{Transfer::Direction::kReceive, peer, std::move(tensor)}}).wait_host();
  };
  std::int64_t count = 0;
  receive(Tensor::wrap(std::span(&count, 1)));
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(count));
  receive(Tensor::wrap(std::span(sizes)));
  std::string bytes(
      static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0})), '\0');
  if (!bytes.empty()) receive(Tensor::wrap(bytes.data(), {std::ssize(bytes)}, DType::kU8));
  std::vector<std::string> texts;
  std::size_t begin = 0;
  for (const std::int64_t size : sizes) {
    texts.push_back(bytes.substr(begin, static_cast<std::size_t>(size)));
    begin += static_cast<std::size_t>(size);
  }
  return texts;
}

}  // namespace

void PhaseFault::raise() const {
  rethrow(status, message, cause);
}

std::optional<PhaseFault> attempt_together(Communicator& comm, const std::function<void()>& body) {
  std::optional<PhaseFault> mine;
  try {
    body();
  } catch (...) {
    const Error error = caught(std::current_exception());
    mine = PhaseFault{error.status(), error.what(), error.cause()};
  }
  const auto failed = static_cast<int>(comm.all_reduce_host(
      static_cast<std::int64_t>(mine ? comm.rank() : comm.size()), ReduceOp::kMin));
  if (failed == comm.size()) return std::nullopt;
  const std::string words =
      comm.broadcast_text(mine ? fmt::format("{} {} {}", static_cast<int>(mine->status),
                                             static_cast<int>(mine->cause), mine->message)
                               : "",
                          failed);
  const std::size_t space = words.find(' ');  // the cause is one digit
  PhaseFault fault{static_cast<ExitStatus>(std::stoi(words)), words.substr(space + 3),
                   static_cast<Cause>(words[space + 1] - '0')};
  if (failed != 0) fault.message += fmt::format(" (rank {})", comm.world_rank(failed));
  return fault;
}

void run_together(Communicator& comm, const std::function<void()>& body) {
  if (const auto fault = attempt_together(comm, body)) fault->raise();
}

std::vector<std::string> gather_to_first(Communicator& comm, std::string text) {
  std::vector<std::string> texts = {std::move(text)};  // of this rank and the ranks right after it
  for (int step = 1; step < comm.size(); step *= 2) {
    if ((comm.rank() & step) != 0) {
      send_texts(comm, comm.rank() - step, texts);
      return {};
    }
    if (comm.rank() + step >= comm.size()) continue;
    for (std::string& theirs : receive_texts(comm, comm.rank() + step)) {
      texts.push_back(std::move(theirs));
    }
  }
  return texts;
}

std::string scatter_from_first(Communicator& comm, std::vector<std::string> texts) {
  int step = 1;
  while (step < comm.size() && (comm.rank() & step) == 0) step *= 2;
  if (comm.rank() != 0) texts = receive_texts(comm, comm.rank() - step);
  for (step /= 2; step > 0; step /= 2) {
    if (static_cast<std::size_t>(step) >= texts.size()) continue;
    send_texts(comm, comm.rank() + step, std::span(texts).subspan(static_cast<std::size_t>(step)));
    texts.resize(static_cast<std::size_t>(step));
  }
  return std::move(texts.front());
}

std::vector<std::string> gather_text(Communicator& comm, std::string text) {
  std::string all;  // each text after its length
  for (const std::string& one : gather_to_first(comm, std::move(text))) {
    all += fmt::format("{} {}", one.size(), one);
  }
  all = comm.broadcast_text(std::move(all));
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t space = all.find(' ', at);
    const std::size_t size = std::stoull(all.substr(at, space - at));
    texts.push_back(all.substr(space + 1, size));
    at = space + 1 + size;
  }
  return texts;
}

void sum_modular(Communicator& comm, std::vector<std::uint64_t>& values) {
  // Sums the halves separately, so that they cannot overflow a signed 64-bit integer.
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
