#include "io/parquet/parquet_reader.h"

#include <utility>

#include <fmt/format.h>

#include "trireme/base/printable.h"

#include "io/files/input_files.h"
#include "io/prepare/record_source.h"

namespace trireme::parquet {
namespace {

constexpr std::size_t kMostRowValues = std::size_t{1} << 22;

}  // namespace

ParquetReader::ParquetReader(PosixFile file, const std::vector<std::string>& fields)
    : file_(std::move(file)), footer_(read_footer(file_)), end_group_(footer_.groups.size()) {
  for (const std::string& field : fields) {
    const Node* node = footer_.schema.find(field);
    if (node == nullptr) {
      throw OtherFile(shown(file_.path()), fmt::format("no field '{}', but {}", shown(field),
                                                       list_of_names(footer_.schema.names())));
    }
    nodes_.push_back(node);
  }
}

void ParquetReader::seek(std::size_t first, std::size_t end) {
  TRIREME_CHECK(first <= end && end <= row_groups(), "row groups that the file does not have");
  group_ = first;
  end_group_ = end;
  rows_left_ = 0;
  cursors_.clear();
}

bool ParquetReader::open_group() {
  for (const auto& open : cursors_) {
    open->place().check(open->at_end(), "more values than rows");
  }
  cursors_.clear();
  while (group_ < end_group_ && footer_.groups[group_].rows == 0) ++group_;
  if (group_ == end_group_) return false;
  for (const Node* node : nodes_) {
    for (std::size_t leaf = node->first_leaf; leaf < node->end_leaf; ++leaf) {
      cursors_.push_back(std::make_unique<ColumnCursor>(file_, footer_, group_, leaf));
    }
  }
  rows_left_ = footer_.groups[group_++].rows;
  return true;
}

bool ParquetReader::next(std::vector<Value>& row) {
  if (rows_left_ == 0 && !open_group()) return false;
  --rows_left_;
  made_ = 0;
  row.resize(nodes_.size());
  for (const auto& open : cursors_) {
    open->begin_row();
    open->place().check(!open->at_end(), "fewer values than rows");
    open->place().check(open->repetition() == 0, "a row begins inside of a list");
  }
  std::size_t fields_cursor = 0;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = *nodes_[i];
    first_cursor_ = fields_cursor - node.first_leaf;
    fields_cursor += node.end_leaf - node.first_leaf;
    assemble(node, 0, row[i]);
  }
  return true;
}

// `least`: the definition level that what is above the node has made sure of.
void ParquetReader::assemble(const Node& node, int least, Value& value) {
  ColumnCursor& first = cursor(node.first_leaf);
  if (++made_ > kMostRowValues) {
    first.place().refuse(fmt::format("has a row of more than {} values", kMostRowValues));
  }
  const int definition = first.definition();
  if (definition < node.definition) {
    first.place().check(definition >= least, "levels that contradict others");
    value.kind = Value::Kind::kNull;
    pass(node, definition);
  } else if (node.kind == Node::Kind::kList) {
    assemble_list(node, value);
  } else if (node.kind == Node::Kind::kRecord) {
    value.kind = Value::Kind::kRecord;
    value.items.resize(node.children.size());
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      const Node& child = node.children[i];
      assemble(child, child.definition - (child.optional ? 1 : 0), value.items[i]);
    }
  } else {
    value.kind = Value::Kind::kBytes;
    value.bytes = first.value();
    first.advance();
  }
}

void ParquetReader::assemble_list(const Node& node, Value& value) {
  const ColumnCursor& first = cursor(node.first_leaf);
  value.kind = Value::Kind::kList;
  value.items.clear();
  if (first.definition() == node.definition) return pass(node, node.definition);
  const Node& element = node.children[0];
  do {
    assemble(element, node.definition + 1, value.items.emplace_back());
    for (std::size_t leaf = node.first_leaf; leaf < node.end_leaf; ++leaf) {
      const bool same =
          (cursor(leaf).repetition() == node.repetition) == (first.repetition() == node.repetition);
      cursor(leaf).place().check(same, "a list of another length than in the columns beside it");
    }
  } while (first.repetition() == node.repetition);
}

// Passes over the entry that says that a node, or all of a list's elements, are not there.
void ParquetReader::pass(const Node& node, int definition) {
  for (std::size_t leaf = node.first_leaf; leaf < node.end_leaf; ++leaf) {
    const bool same = !cursor(leaf).at_end() && cursor(leaf).definition() == definition;
    cursor(leaf).place().check(same, "levels that contradict others");
    cursor(leaf).advance();
  }
}

}  // namespace trireme::parquet
