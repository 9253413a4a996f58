#include "trireme/comm/gather_lines.h"

#include <cstring>
#include <string_view>

namespace trireme {

std::vector<std::vector<std::string>> gather_lines(Communicator& comm,
                                                   const std::vector<std::string>& mine) {
  std::string text;
  for (const std::string& line : mine) text += line + '\n';
  const auto longest = comm.all_reduce_host(static_cast<std::int64_t>(text.size()), ReduceOp::kMax);
  const auto words = static_cast<std::size_t>(longest / 4 + 1);  // at least one byte stays zero
  std::vector<std::int32_t> own(words), all(words * static_cast<std::size_t>(comm.size()));
  std::memcpy(own.data(), text.data(), text.size());
  comm.all_gather(Stream(), Tensor::wrap(std::span(own)), Tensor::wrap(std::span(all))).wait_host();
  std::vector<std::vector<std::string>> lines;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(comm.size()); ++rank) {
    std::string_view rest = reinterpret_cast<const char*>(all.data() + rank * words);
    std::vector<std::string>& of_rank = lines.emplace_back();
    for (std::size_t end = 0; (end = rest.find('\n')) != rest.npos; rest.remove_prefix(end + 1)) {
      of_rank.emplace_back(rest.substr(0, end));
    }
  }
  return lines;
}

}  // namespace trireme
