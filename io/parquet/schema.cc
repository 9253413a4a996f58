#include "io/parquet/schema.h"

#include <array>
#include <utility>

#include <fmt/format.h>

namespace trireme::parquet {
namespace {

constexpr int kDeepestNode = 64;
// These bound what the names of nested columns take.
constexpr std::size_t kMostElements = 100000, kLongestPath = 1024;
enum Repetition { kRequired, kOptional, kRepeated };
constexpr int kString = 1, kMap = 2, kListOf = 3, kEnum = 4,
              kJson = 12;  // of the logical types below

constexpr std::array<const char*, 8> kTypeNames = {
    "BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"};
constexpr std::array<int, 8> kWidths = {0, 4, 8, 12, 4, 8, 0, 0};

// Logical types by their field in thrift's union.
constexpr std::array<const char*, 19> kLogicalNames = {
    "",        "STRING", "MAP",  "LIST", "ENUM", "DECIMAL", "DATE",    "TIME",     "TIMESTAMP", "",
    "INTEGER", "NULL",   "JSON", "BSON", "UUID", "FLOAT16", "VARIANT", "GEOMETRY", "GEOGRAPHY"};
// The logical types that converted types stand for.
constexpr std::array<int, 22> kLogicalOf = {1, 2, 2, 3, 4, 5, 6, 7, 7,  8,  8,
                                            0, 0, 0, 0, 0, 0, 0, 0, 12, 13, 0};

struct Element {
  std::string_view name;
  std::int32_t type = -1, width = 0, repetition = kRequired, children = 0, logical = 0;
};

Element read_element(ThriftValue& value, const Place& place) {
  Element element;
  std::int32_t converted = -1;
  value.fields({{1, &element.type},
                {2, &element.width},
                {3, &element.repetition},
                {4, &element.name},
                {5, &element.children},
                {6, &converted}},
               [&](int id, ThriftValue& field) {
                 if (id != 10) return;
                 field.fields([&](int which, ThriftValue&) { element.logical = which; });
               });
  if (element.logical == 0 && converted >= 0 && converted < static_cast<int>(kLogicalOf.size())) {
    element.logical = kLogicalOf[static_cast<std::size_t>(converted)];
  }
  place.check(element.repetition >= kRequired && element.repetition <= kRepeated,
              "a column is neither required nor optional nor repeated");
  return element;
}

class SchemaBuilder {
 public:
  SchemaBuilder(std::vector<Element> elements, const Place& place)
      : elements_(std::move(elements)), place_(place) {}

  Schema build() {
    place_.check(!elements_.empty() && elements_[0].children >= 0, "has no columns");
    schema_.root.kind = Node::Kind::kRecord;
    add_children(schema_.root, elements_[at_++].children, {0, 0, 0, ""});
    place_.check(at_ == elements_.size(), "columns that belong to no group");
    return std::move(schema_);
  }

 private:
  struct Above {
    int definition, repetition, depth;
    std::string path;
  };

  void add_children(Node& node, int count, const Above& above) {
    node.first_leaf = schema_.leaves.size();
    for (int i = 0; i < count; ++i) node.children.push_back(next(above));
    node.end_leaf = schema_.leaves.size();
  }

  Node next(const Above& above) {
    place_.check(at_ < elements_.size(), "fewer columns than its groups have");
    place_.check(above.depth < kDeepestNode && above.path.size() <= kLongestPath,
                 "groups inside of groups without end");
    const Element& element = elements_[at_++];
    Above inside = {above.definition, above.repetition, above.depth + 1,
                    above.path.empty() ? std::string(element.name)
                                       : fmt::format("{}.{}", above.path, element.name)};
    if (element.repetition != kRequired) ++inside.definition;
    if (element.repetition != kRepeated) return made(element, inside);
    ++inside.repetition;
    Node list;
    list.name = element.name;
    list.kind = Node::Kind::kList;
    list.definition = above.definition;
    list.repetition = inside.repetition;
    list.first_leaf = schema_.leaves.size();
    list.children.push_back(made(element, inside));
    list.end_leaf = schema_.leaves.size();
    return list;
  }

  // The node of an element, as if it was not repeated.
  Node made(const Element& element, const Above& inside) {
    Node node;
    node.name = element.name;
    node.optional = element.repetition == kOptional;
    node.definition = inside.definition;
    if (element.children == 0) {
      node.first_leaf = schema_.leaves.size();
      node.end_leaf = node.first_leaf + 1;
      add_leaf(element, inside);
      return node;
    }
    place_.check(element.children > 0, "a group has fewer than no columns");
    node.kind = Node::Kind::kRecord;
    add_children(node, element.children, inside);
    const bool is_list = element.logical == kListOf || element.logical == kMap;
    if (is_list && node.children.size() == 1 && node.children[0].kind == Node::Kind::kList) {
      make_list(node);
    }
    return node;
  }

  // A group LIST holds a repeated group, which holds the element. Old writers left that group out.
  // A MAP is a list of records of a key and a value.
  static void make_list(Node& node) {
    Node list = std::move(node.children[0]);
    Node element = std::move(list.children[0]);
    node.kind = Node::Kind::kList;
    node.repetition = list.repetition;
    const bool between = element.kind == Node::Kind::kRecord && element.children.size() == 1 &&
                         element.name != "array" && element.name != node.name + "_tuple";
    Node inner = between ? std::move(element.children[0]) : std::move(element);
    node.children.clear();
    node.children.push_back(std::move(inner));
  }

  void add_leaf(const Element& element, const Above& inside) {
    place_.check(element.type >= 0 && element.type < static_cast<int>(kTypeNames.size()),
                 "a column has no type");
    const auto type = static_cast<std::size_t>(element.type);
    Leaf leaf;
    leaf.path = inside.path;
    leaf.type = static_cast<Type>(type);
    leaf.width = kWidths[type];
    leaf.type_name = kTypeNames[type];
    const auto logical = static_cast<std::size_t>(element.logical);
    if (logical > 0 && logical < kLogicalNames.size()) {
      leaf.type_name += fmt::format(" ({})", kLogicalNames[logical]);
    }
    if (leaf.type == Type::kFixedBytes) {
      leaf.width = element.width;
      place_.check(leaf.width > 0, "a column of values without a length");
    }
    leaf.text = leaf.type == Type::kBytes && (logical == 0 || element.logical == kString ||
                                              element.logical == kEnum || element.logical == kJson);
    leaf.definition = inside.definition;
    leaf.repetition = inside.repetition;
    schema_.leaves.push_back(std::move(leaf));
  }

  std::vector<Element> elements_;
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

Schema read_schema(ThriftValue& list, const Place& place) {
  std::vector<Element> elements;
  list.elements([&](ThriftValue& value) {
    elements.push_back(read_element(value, place));
    if (elements.size() > kMostElements) {
      place.refuse(fmt::format("has more than {} columns, which is not read", kMostElements));
    }
  });
  return SchemaBuilder(std::move(elements), place).build();
}

}  // namespace trireme::parquet
