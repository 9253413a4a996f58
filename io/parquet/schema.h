// What the rows of a Parquet file are made of.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/parquet/byte_reader.h"

namespace trireme::parquet {

enum class Type { kBoolean, kInt32, kInt64, kInt96, kFloat, kDouble, kBytes, kFixedBytes };

// A column as it is stored. Levels tell for each entry how many of the optional and repeated nodes
// above it are there (definition), and which list goes on (repetition).
struct Leaf {
  std::string path;  // names with dots between them
  Type type = Type::kBytes;
  std::size_t width = 0;               // bytes of a value; 0: bits, or a length before each value
  std::string type_name;               // as errors say it, "INT64" or "BYTE_ARRAY (DECIMAL)"
  bool text = false;                   // bytes that may be a text, with or without an annotation
  int definition = 0, repetition = 0;  // the largest levels
};

// A part of a row as people see it: the groups that the format puts between a list and its elements
// are gone.
struct Node {
  enum class Kind { kLeaf, kRecord, kList };
  std::string name;
  Kind kind = Kind::kLeaf;
  bool optional = false;
  // The definition level from which on it is there; of a list's elements, one more.
  int definition = 0;
  int repetition = 0;  // list: the level of an element that is not its list's first
  std::size_t first_leaf = 0, end_leaf = 0;
  std::vector<Node> children;  // a list has one, its element
};

struct Schema {
  Node root;
  std::vector<Leaf> leaves;

  // The node of a dotted path, "text" or "meta.body"; names may have dots themselves. Null: none.
  const Node* find(std::string_view path) const;
  std::vector<std::string> names() const;  // of the fields that are in no other
  // What a node holds, for errors: "a list", "a record", "INT64".
  std::string what_is(const Node& node) const;
};

// A node as the footer has it, followed by its children.
struct SchemaElement {
  std::string name;
  std::int64_t type = -1, width = 0, repetition = 0, children = 0;
  std::int64_t converted = -1,
               logical = 0;  // what it stands for, in the old way and the new
};

Schema build_schema(const std::vector<SchemaElement>& elements, const Place& place);

}  // namespace trireme::parquet
