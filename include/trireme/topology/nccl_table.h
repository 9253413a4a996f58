// Which algorithm and protocol NCCL shall take, by collective and size: the table that the program
// writes and the plugin libtrireme_tuner.so reads. src/topology/README.md describes the format.
//
// The plugin is compiled from this header and its source alone. So they need only the standard
// library, and report what is wrong as text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// These have NCCL's own numbers.
enum class NcclCollective { kBroadcast, kReduce, kAllGather, kReduceScatter, kAllReduce };
enum class NcclAlgorithm {
  kTree,
  kRing,
  kCollnetDirect,
  kCollnetChain,
  kNvls,
  kNvlsTree,
  kPat  // parallel aggregated trees
};
enum class NcclProtocol { kLl, kLl128, kSimple };
inline constexpr int kNcclCollectives = 5;
inline constexpr int kNcclAlgorithms = 7;
inline constexpr int kNcclProtocols = 3;

std::string_view name_of(NcclCollective collective);  // "all_reduce"
std::string_view name_of(NcclAlgorithm algorithm);    // "tree"
std::string_view name_of(NcclProtocol protocol);      // "ll128"

struct NcclCell {
  NcclAlgorithm algorithm = NcclAlgorithm::kRing;
  NcclProtocol protocol = NcclProtocol::kSimple;
  int channels = 0;  // 0: as many as NCCL likes
  bool operator==(const NcclCell&) const = default;
};

// What to take up to a size. The bytes are counted as NCCL does: for an all-gather and a
// reduce-scatter they are the parts of all ranks together.
struct NcclRule {
  static constexpr std::uint64_t kAllSizes = ~std::uint64_t{0};

  NcclCollective collective = NcclCollective::kAllReduce;
  std::uint64_t most_bytes = kAllSizes;
  std::vector<NcclCell> cells;  // the best one first; the first one that NCCL offers is taken
  bool operator==(const NcclRule&) const = default;
};

// The rules for communicators of so many ranks on so many nodes.
struct NcclTable {
  std::uint64_t ranks = 0, nodes = 0;
  // The algorithms that were compared to make the rules. Where NCCL likes another one best, as
  // only NCCL knows what switches can add up, that is left as it is.
  std::vector<NcclAlgorithm> compared;
  std::vector<NcclRule> rules;  // of a collective by rising sizes
  bool operator==(const NcclTable&) const = default;
};

inline constexpr std::size_t kMostNcclTableBytes = std::size_t{1} << 20;
inline constexpr int kMostNcclChannels = 64;

std::string write_nccl_tables(const std::vector<NcclTable>& tables);
// Returns nothing if the text is no such table; `problem` then says what is wrong, and in which
// line. The text is untrusted.
std::optional<std::vector<NcclTable>> read_nccl_tables(std::string_view text, std::string& problem);

// Returns nullptr if there is no table for so many ranks on so many nodes.
const NcclTable* find_nccl_table(const std::vector<NcclTable>& tables, std::uint64_t ranks,
                                 std::uint64_t nodes);

// The times in microseconds that NCCL expects, by algorithm and, within it, by protocol. A negative
// time: this cell is not available. NCCL may know more algorithms and protocols than we do, or
// fewer.
struct NcclOffer {
  std::span<const float> times;
  int algorithms = 0, protocols = 0;
};

// Returns the cell to take, which the offer has; nothing if NCCL's own choice shall stand.
std::optional<NcclCell> choose_nccl_cell(const NcclTable& table, NcclCollective collective,
                                         std::uint64_t bytes, const NcclOffer& offer);

}  // namespace trireme
