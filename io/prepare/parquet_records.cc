#include "io/prepare/parquet_records.h"

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
  ParquetRecords(std::unique_ptr<FileBytes> file, const std::vector<std::string>& names)
      : file_(std::move(file)), names_(names), reader_(file_->path(), names) {
    bytes_ = static_cast<std::uint64_t>(reader_.file_bytes());
    for (std::size_t i = 0; i < names.size(); ++i) {
      const Node& node = reader_.node(i);
      const bool text =
          node.kind == Node::Kind::kLeaf && reader_.schema().leaves[node.first_leaf].text;
      if (text) continue;
      throw DataError(fmt::format("{}: the field '{}' is {}, not texts", shown(file_->path()),
                                  shown(names[i]), reader_.schema().what_is(node)));
    }
  }

  bool next(std::vector<std::string_view>& fields) override {
    if (!reader_.next(values_)) {
      file_->passed(bytes_);
      return false;
    }
    ++row_;
    const double share = static_cast<double>(row_) / static_cast<double>(reader_.rows());
    file_->passed(static_cast<std::uint64_t>(share * static_cast<double>(bytes_)));
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
  [[noreturn]] void refuse(const std::string& words) const {
    throw BadRecord(fmt::format("{}: row {}: {}", shown(file_->path()), row_, words));
  }

  std::unique_ptr<FileBytes> file_;
  std::vector<std::string> names_;
  parquet::ParquetReader reader_;
  std::vector<parquet::Value> values_;
  std::int64_t row_ = 0;  // from 1
  std::uint64_t bytes_ = 0;
};

}  // namespace

bool is_parquet(std::string_view beginning) {
  return kind_of_file(beginning) == "a Parquet file";
}

std::unique_ptr<RecordSource> make_parquet(std::unique_ptr<FileBytes> file,
                                           const std::vector<std::string>& names) {
  return std::make_unique<ParquetRecords>(std::move(file), names);
}

}  // namespace trireme
