// Structs in thrift's compact form, of which a Parquet file's headers are made.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "io/parquet/byte_reader.h"

namespace trireme::parquet {

struct ThriftField;
// The fields of a struct that are wanted. Others are passed over.
using ThriftFields = std::vector<ThriftField>;
// Called for each element of a list, a struct: makes room for it, and says what is wanted of it.
using ThriftElement = std::function<ThriftFields()>;
// Gets the number of the field that a union has; a union that is not there changes nothing.
struct ThriftUnion {
  std::int64_t* member;
};

struct ThriftField {
  std::int64_t id;
  std::variant<bool*, std::int64_t*, std::string*, ThriftFields, ThriftElement, ThriftUnion> to;
};

// Reads a struct, which stands alone at the start of a header. A field of another type than the one
// that is wanted is damage, and so are structures inside of structures without end.
void read_thrift(ByteReader& bytes, const ThriftFields& fields);

}  // namespace trireme::parquet
