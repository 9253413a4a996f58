#include "io/parquet/schema.h"

#include <array>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace trireme::parquet {
namespace {

constexpr int kDeepestNode = 64;
// These bound what the names of nested columns take.
constexpr std::size_t kMostElements = 100000, kLongestPath = 1024;
enum Repetition { kRequired, kOptional, kRepeated };
// Some of the logical types below.
constexpr std::size_t kAsString = 1, kAsMap = 2, kAsList = 3, kAsEnum = 4, kAsJson = 12;

constexpr std::array<const char*, 8> kTypeNames = {
    "BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"};
constexpr std::array<std::size_t, 8> kWidths = {0, 4, 8, 12, 4, 8, 0, 0};

// Logical types by their field in thrift's union.
constexpr std::array<const char*, 19> kLogicalNames = {
    "",        "STRING", "MAP",  "LIST", "ENUM", "DECIMAL", "DATE",    "TIME",     "TIMESTAMP", "",
    "INTEGER", "NULL",   "JSON", "BSON", "UUID", "FLOAT16", "VARIANT", "GEOMETRY", "GEOGRAPHY"};
// The logical types that converted types stand for.
constexpr std::array<std::size_t, 22> kLogicalOf = {1, 2, 2, 3, 4, 5, 6, 7, 7,  8,  8,
                                                    0, 0, 0, 0, 0, 0, 0, 0, 12, 13, 0};

std::size_t logical_type(const SchemaElement& element) {
  const bool is_old = element.converted >= 0 && element.converted < std::ssize(kLogicalOf);
  if (element.logical != 0 || !is_old) return static_cast<std::size_t>(element.logical);
  return kLogicalOf[static_cast<std::size_t>(element.converted)];
}

class SchemaBuilder {
 public:
  SchemaBuilder(const std::vector<SchemaElement>& elements, const Place& place)
      : elements_(elements), place_(place) {}

  Schema build() {
    if (elements_.size() > kMostElements) {
      place_.refuse(fmt::format("has more than {} columns, which is not read", kMostElements));
    }
    place_.check(!elements_.empty() && elements_[0].children >= 0, "has no columns");
    add_children(schema_.root, elements_[at_++], {}, 0);
    place_.check(at_ == elements_.size(), "columns that belong to no group");
    return std::move(schema_);
  }

 private:
  // `leaf` has the path and the levels of a node that is above it, `depth` groups deep.
  void add_children(Node& node, const SchemaElement& element, const Leaf& leaf, int depth) {
    place_.check(element.children >= 0, "a group has fewer than no columns");
    node.kind = Node::Kind::kRecord;
    for (std::int64_t i = 0; i < element.children; ++i) node.children.push_back(next(leaf, depth));
    node.end_leaf = schema_.leaves.size();
  }

  Node next(Leaf leaf, int depth) {
    place_.check(at_ < elements_.size(), "fewer columns than its groups have");
    place_.check(depth < kDeepestNode && leaf.path.size() <= kLongestPath,
                 "groups inside of groups without end");
    const SchemaElement& element = elements_[at_++];
    place_.check(element.repetition >= kRequired && element.repetition <= kRepeated,
                 "a column is neither required nor optional nor repeated");
    leaf.path += (leaf.path.empty() ? "" : ".") + element.name;
    if (element.repetition != kRequired) ++leaf.definition;
    if (element.repetition == kRepeated) ++leaf.repetition;
    Node node;
    node.name = element.name;
    node.optional = element.repetition == kOptional;
    node.definition = leaf.definition;
    node.first_leaf = schema_.leaves.size();
    if (element.children == 0) {
      add_leaf(element, leaf);
      node.end_leaf = node.first_leaf + 1;
    } else {
      add_children(node, element, leaf, depth + 1);
      make_list(node, logical_type(element));
    }
    if (element.repetition != kRepeated) return node;
    Node list;
    list.name = element.name;
    list.kind = Node::Kind::kList;
    list.definition = leaf.definition - 1;
    list.repetition = leaf.repetition;
    list.first_leaf = node.first_leaf;
    list.end_leaf = node.end_leaf;
    list.children.push_back(std::move(node));
    return list;
  }

  // A group LIST holds a repeated group, which holds the element. Old writers left that group out.
  // A MAP is a list of records of a key and a value.
  static void make_list(Node& node, std::size_t logical) {
    if ((logical != kAsList && logical != kAsMap) || node.children.size() != 1) return;
    if (node.children[0].kind != Node::Kind::kList) return;
    Node list = std::move(node.children[0]);
    Node& element = list.children[0];
    node.kind = Node::Kind::kList;
    node.repetition = list.repetition;
    const bool between = element.kind == Node::Kind::kRecord && element.children.size() == 1 &&
                         element.name != "array" && element.name != node.name + "_tuple";
    node.children = between ? std::move(element.children) : std::move(list.children);
  }

  void add_leaf(const SchemaElement& element, Leaf leaf) {
    place_.check(element.type >= 0 && element.type < std::ssize(kTypeNames),
                 "a column has no type");
    const auto type = static_cast<std::size_t>(element.type);
    const std::size_t logical = logical_type(element);
    leaf.type = static_cast<Type>(type);
    leaf.width = kWidths[type];
    leaf.type_name = kTypeNames[type];
    if (logical > 0 && logical < kLogicalNames.size()) {
      leaf.type_name += fmt::format(" ({})", kLogicalNames[logical]);
    }
    if (leaf.type == Type::kFixedBytes) {
      place_.check(element.width > 0, "a column of values without a length");
      leaf.width = static_cast<std::size_t>(element.width);
    }
    leaf.text = leaf.type == Type::kBytes &&
                (logical == 0 || logical == kAsString || logical == kAsEnum || logical == kAsJson);
    schema_.leaves.push_back(std::move(leaf));
  }

  const std::vector<SchemaElement>& elements_;
  const Place& place_;
  std::size_t at_ = 0;
  Schema schema_;
};

const Node* find_below(const Node& node, std::string_view path) {
  for (const Node& child : node.children) {
    if (child.name == path) return &child;
    if (child.kind != Node::Kind::kRecord || !path.starts_with(child.name)) continue;
    if (path.size() <= child.name.size() || path[child.name.size()] != '.') continue;
    if (const Node* found = find_below(child, path.substr(child.name.size() + 1))) return found;
  }
  return nullptr;
}

}  // namespace

const Node* Schema::find(std::string_view path) const {
  return find_below(root, path);
}

std::vector<std::string> Schema::names() const {
  std::vector<std::string> names;
  for (const Node& node : root.children) names.push_back(node.name);
  return names;
}

std::string Schema::what_is(const Node& node) const {
  if (node.kind == Node::Kind::kList) return "a list";
  if (node.kind == Node::Kind::kRecord) return "a record";
  return leaves[node.first_leaf].type_name;
}

Schema build_schema(const std::vector<SchemaElement>& elements, const Place& place) {
  return SchemaBuilder(elements, place).build();
}

}  // namespace trireme::parquet
