// A list of ranks as runs of equal stride. The groups of a grid consist of such runs, so a list of
// thousands of ranks takes a few words.
#pragma once

#include <vector>

namespace trireme {

class RankList {
 public:
  struct Run {  // first, first + stride, ...
    int first = 0;
    int stride = 1;
    int count = 0;
    auto operator<=>(const Run&) const = default;
  };

  RankList() = default;
  // Keeps the order of the ranks.
  RankList(
      const std::vector<int>& ranks) {  // NOLINT(google-explicit-constructor): a list is a list
    for (const int rank : ranks) add(rank);
  }

  void add(int rank) {
    ++size_;
    if (!runs_.empty()) {
      Run& last = runs_.back();
      if (last.count == 1) last.stride = rank - last.first;
      if (rank == last.first + last.stride * last.count) {
        ++last.count;
        return;
      }
    }
    runs_.push_back({rank, 1, 1});
  }
  void add(const Run& run) {
    size_ += static_cast<std::size_t>(run.count);
    runs_.push_back(run);
  }

  std::size_t size() const { return size_; }
  const std::vector<Run>& runs() const { return runs_; }

  template <class Visit>
  void for_each(Visit visit) const {
    for (const Run& run : runs_) {
      for (int i = 0; i < run.count; ++i) visit(run.first + i * run.stride);
    }
  }

  auto operator<=>(const RankList&) const = default;

 private:
  std::vector<Run> runs_;
  std::size_t size_ = 0;
};

}  // namespace trireme
