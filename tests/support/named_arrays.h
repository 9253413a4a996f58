// Files of named arrays of fp32 numbers, by which tests in C++ and in Python pass tensors to each
// other: for each the length of its name, the name, the count of its numbers, the numbers.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace trireme::testing {

using Array = std::vector<float>;
using Arrays = std::map<std::string, Array>;

inline Arrays read_arrays(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const auto read = [&](void* data, std::size_t bytes) {
    in.read(static_cast<char*>(data), static_cast<std::streamsize>(bytes));
  };
  Arrays arrays;
  while (in.peek() != std::istream::traits_type::eof()) {
    std::uint32_t length = 0;
    read(&length, sizeof(length));
    std::string name(length, '\0');
    read(name.data(), length);
    std::uint64_t count = 0;
    read(&count, sizeof(count));
    Array values(count);
    read(values.data(), count * sizeof(float));
    if (!in) throw std::runtime_error(path + " is too short");
    arrays[name] = std::move(values);
  }
  return arrays;
}

inline void write_arrays(const std::string& path, const Arrays& arrays) {
  std::ofstream out(path, std::ios::binary);
  const auto write = [&](const void* data, std::size_t bytes) {
    out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  };
  for (const auto& [name, values] : arrays) {
    const auto length = static_cast<std::uint32_t>(name.size());
    const std::uint64_t count = values.size();
    write(&length, sizeof(length));
    write(name.data(), name.size());
    write(&count, sizeof(count));
    write(values.data(), values.size() * sizeof(float));
  }
}

}  // namespace trireme::testing
