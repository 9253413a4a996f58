#include "io/prepare/parquet_records.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/printable.h"
#include "trireme/io/text_kind.h"

#include "io/parquet/parquet_reader.h"

namespace trireme {
namespace {

using parquet::Node;

class ParquetRecords final : public RecordSource {
 public:
  ParquetRecords(PosixFile file, std::unique_ptr<FileBytes> progress,
                 const std::vector<std::string>& names)
      : name_(file.path()),
        progress_(std::move(progress)),
        names_(names),
        reader_(std::move(file), names) {
    if (names.empty()) {
      throw DataError(fmt::format("{}: a Parquet file is no plain text: --field NAME takes {}",
                                  shown(name_), list_of_names(reader_.schema().names())));
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      const Node& node = reader_.node(i);
      const bool text =
          node.kind == Node::Kind::kLeaf && reader_.schema().leaves[node.first_leaf].text;
      if (text) continue;
      throw DataError(fmt::format("{}: the field '{}' is {}, not texts", shown(name_),
                                  shown(names[i]), reader_.schema().what_is(node)));
    }
  }

  bool next(std::vector<std::string_view>& fields) override {
    const bool is_there = reader_.next(values_);
    if (is_there) ++row_;
    if (progress_) progress_->passed(bytes_passed());
    if (!is_there) return false;
    fields.resize(values_.size());
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (values_[i].kind == parquet::Value::Kind::kNull) {
        refuse(fmt::format("the field '{}' is null, not a text", shown(names_[i])));
      }
      fields[i] = values_[i].bytes;
      bytes += fields[i].size();
    }
    if (bytes > kMostBytes) refuse(fmt::format("a record of more than {} MiB", kMostBytes >> 20));
    return true;
  }

 private:
  std::uint64_t bytes_passed() const {
    const auto bytes = static_cast<double>(reader_.file_bytes());
    const std::int64_t rows = std::max<std::int64_t>(reader_.rows(), 1);
    return static_cast<std::uint64_t>(bytes * static_cast<double>(row_) /
                                      static_cast<double>(rows));
  }
  [[noreturn]] void refuse(const std::string& words) const {
    throw BadRecord(fmt::format("{}: row {}: {}", shown(name_), row_, words));
  }

  std::string name_;
  std::unique_ptr<FileBytes> progress_;
  std::vector<std::string> names_;
  parquet::ParquetReader reader_;
  std::vector<parquet::Value> values_;
  std::int64_t row_ = 0;  // from 1
};

}  // namespace

bool is_parquet(std::string_view beginning) {
  return kind_of_file(beginning) == "a Parquet file";
}

std::unique_ptr<RecordSource> make_parquet(PosixFile file, std::unique_ptr<FileBytes> progress,
                                           const std::vector<std::string>& names) {
  return std::make_unique<ParquetRecords>(std::move(file), std::move(progress), names);
}

}  // namespace trireme
