// The open files of a dataset's shards.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace trireme {

// One eighth of the files that the process may open, but at least 4 and at most 1,024.
std::size_t shards_to_keep_open();

// Only the most recently used shards are open, because the data may have more shards than a process
// may open files. A File is made of an Info. Thread-safe.
template <class Info, class File>
class OpenFiles {
 public:
  // Keeps at most `most` shards open.
  explicit OpenFiles(std::vector<Info> shards, std::size_t most = shards_to_keep_open())
      : shards_(std::move(shards)), most_(most), at_(shards_.size()) {}

  std::shared_ptr<File> use(std::size_t shard) {
    const std::lock_guard lock(mutex_);
    if (at_[shard]) {
      open_.splice(open_.begin(), open_, *at_[shard]);
      return open_.front().file;
    }
    if (open_.size() >= most_) {
      at_[open_.back().shard].reset();
      open_.pop_back();  // the last read that uses it closes it
    }
    open_.push_front({shard, std::make_shared<File>(shards_[shard])});
    at_[shard] = open_.begin();
    return open_.front().file;
  }
  std::size_t open() const {  // how many are open now
    const std::lock_guard lock(mutex_);
    return open_.size();
  }

 private:
  struct Open {
    std::size_t shard;
    std::shared_ptr<File> file;
  };

  std::vector<Info> shards_;
  std::size_t most_;
  mutable std::mutex mutex_;
  std::list<Open> open_;  // the most recently used is in front
  std::vector<std::optional<typename std::list<Open>::iterator>> at_;  // by shard
};

}  // namespace trireme
