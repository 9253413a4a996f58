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
                 const std::vector<std::string>& names, const RowGroups& groups)
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
    const std::size_t end = std::min(groups.end, reader_.row_groups());
    if (groups.first == 0 && end == reader_.row_groups()) return;
    for (std::size_t group = 0; group < groups.first; ++group) row_ += reader_.rows_of(group);
    rows_before_ = row_;
    reader_.seek(groups.first, end);
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
    return static_cast<std::uint64_t>(bytes * static_cast<double>(row_ - rows_before_) /
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
  std::int64_t row_ = 0;          // from 1
  std::int64_t rows_before_ = 0;  // of groups that are not read
};

}  // namespace

bool is_parquet(std::string_view beginning) {
  return kind_of_file(beginning) == "a Parquet file";
}

std::unique_ptr<RecordSource> make_parquet(PosixFile file, std::unique_ptr<FileBytes> progress,
                                           const std::vector<std::string>& names,
                                           const RowGroups& groups) {
  return std::make_unique<ParquetRecords>(std::move(file), std::move(progress), names, groups);
}

std::size_t row_groups_of(PosixFile file, const std::vector<std::string>& names) {
  return parquet::ParquetReader(std::move(file), names).row_groups();
}

}  // namespace trireme
