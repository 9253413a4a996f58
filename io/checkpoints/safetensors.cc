#include "trireme/io/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/printable.h"
#include "trireme/io/lfs_pointer.h"

#include "io/checkpoints/safetensors_names.h"
#include "io/files/open_files.h"
#include "io/files/posix_file.h"

namespace trireme {
namespace {

constexpr ExitStatus kOfSafetensors = ExitStatus::kData;
constexpr const char* kMetadata = "__metadata__";
constexpr const char* kConvert =
    "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)";
constexpr std::int64_t kLengthBytes = 8;  // of the header's length, before it

// The types of the format, and how many bits an element of each takes.
constexpr std::array kSafetensorsTypes = {
    std::pair{"BOOL", 8},    std::pair{"U8", 8},   std::pair{"I8", 8},   std::pair{"F8_E5M2", 8},
    std::pair{"F8_E4M3", 8}, std::pair{"I16", 16}, std::pair{"U16", 16}, std::pair{"F16", 16},
    std::pair{"BF16", 16},   std::pair{"I32", 32}, std::pair{"U32", 32}, std::pair{"F32", 32},
    std::pair{"F64", 64},    std::pair{"I64", 64}, std::pair{"U64", 64}, std::pair{"C64", 64}};

[[noreturn]] void refuse_file(const std::string& path, const std::string& why) {
  throw DataError(fmt::format("{}: {}", path, why));
}

// Returns the bytes of a tensor, or nothing if there are more than `most`.
std::optional<std::int64_t> tensor_bytes(const std::vector<std::int64_t>& shape, std::int64_t size,
                                         std::int64_t most) {
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  std::int64_t bytes = size;
  for (const std::int64_t extent : shape) {
    if (extent > most / bytes) return std::nullopt;
    bytes *= extent;
  }
  return bytes;
}

// A tensor's description: {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}. `data` is the
// place of byte 0 of the tensors in the file, of which there are `most`.
SafetensorsEntry entry_of(const std::string& name, const Json& json, std::int64_t data,
                          std::int64_t most) {
  SafetensorsEntry entry;
  entry.name = name;
  entry.type = json.at("dtype").text();
  const auto* type =
      std::ranges::find(kSafetensorsTypes, entry.type, [](const auto& t) { return t.first; });
  if (type == kSafetensorsTypes.end()) {
    throw JsonError(fmt::format("its type {} is not one that we know", shown(entry.type)));
  }
  for (const Json& extent : json.at("shape").items()) {
    entry.shape.push_back(extent.integer());
    if (entry.shape.back() < 0) throw JsonError("an extent of its shape is negative");
  }
  const Json& offsets = json.at("data_offsets");
  if (offsets.items().size() != 2) throw JsonError("data_offsets are not two numbers");
  const std::int64_t begin = offsets.at(0).integer(), end = offsets.at(1).integer();
  if (begin < 0 || end < begin || end > most) {
    throw JsonError(fmt::format("its bytes {} to {} are not within the {} that the file has", begin,
                                end, most));
  }
  if (tensor_bytes(entry.shape, type->second / 8, most) != end - begin) {
    throw JsonError(
        fmt::format("{} {} does not take {} bytes", entry.type, entry.shape_text(), end - begin));
  }
  entry.offset = data + begin;
  entry.bytes = end - begin;
  return entry;
}

// Every byte after the header belongs to one tensor.
void check_covered(const std::string& path, const std::vector<SafetensorsEntry>& entries,
                   std::int64_t begin, std::int64_t end) {
  for (const SafetensorsEntry& entry : entries) {
    if (entry.offset < begin) {
      refuse_file(path, fmt::format("tensor {} shares bytes with another one", shown(entry.name)));
    }
    if (entry.offset > begin) {
      refuse_file(path, fmt::format("no tensor has the {} bytes before tensor {}",
                                    entry.offset - begin, shown(entry.name)));
    }
    begin = entry.offset + entry.bytes;
  }
  if (begin != end) {
    refuse_file(path, fmt::format("no tensor has its last {} bytes", end - begin));
  }
}

std::vector<SafetensorsEntry> parse_header(const std::string& path, const std::string& text,
                                           std::int64_t file_bytes) {
  const std::int64_t data = kLengthBytes + std::ssize(text);
  std::vector<SafetensorsEntry> entries;
  Json header;
  try {
    header = Json::parse_unique(text);
    header.members();  // an object
  } catch (const JsonError& error) {
    refuse_file(path,
                fmt::format("its header is not JSON as safetensors has it: {}", error.what()));
  }
  for (const Json::Member& member : header.members()) {
    if (member.key == kMetadata) continue;
    try {
      entries.push_back(entry_of(member.key, member.value, data, file_bytes - data));
    } catch (const JsonError& error) {
      refuse_file(path, fmt::format("tensor {}: {}", shown(member.key), error.what()));
    }
  }
  std::ranges::stable_sort(entries, [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  check_covered(path, entries, data, file_bytes);
  return entries;
}

// The files of a set, and the tensors of all of them.
struct FileSet {
  std::vector<std::string> paths;
  std::vector<SafetensorsEntry> tensors;  // sorted by name
};

// Rank 0 reads the headers for all ranks and sends what they say.
std::string set_to_text(const FileSet& set) {
  Json paths = Json::array(), tensors = Json::array();
  for (const std::string& path : set.paths) paths.push_back(path);
  for (const SafetensorsEntry& entry : set.tensors) {
    Json shape = Json::array();
    for (const std::int64_t extent : entry.shape) shape.push_back(extent);
    tensors.push_back(
        Json::array({entry.name, entry.type, std::move(shape),
                     static_cast<std::int64_t>(entry.file), entry.offset, entry.bytes}));
  }
  // CBOR, since paths may hold any bytes.
  return Json::array({std::move(paths), std::move(tensors)}).to_cbor();
}

FileSet set_from_text(const std::string& bytes) {
  const Json json = Json::from_cbor(bytes);
  FileSet set;
  for (const Json& path : json.at(0).items()) set.paths.push_back(path.text());
  for (const Json& item : json.at(1).items()) {
    SafetensorsEntry entry;
    entry.name = item.at(0).text();
    entry.type = item.at(1).text();
    for (const Json& extent : item.at(2).items()) entry.shape.push_back(extent.integer());
    entry.file = item.at(3).unsigned_integer();
    entry.offset = item.at(4).integer();
    entry.bytes = item.at(5).integer();
    set.tensors.push_back(std::move(entry));
  }
  return set;
}

// Another kind of file may keep whoever opens it waiting.
PosixFile open_to_read(const std::string& path) {
  const FileFacts facts = look_ahead(path, kOfSafetensors);
  if (!facts.is_there()) refuse_file(path, "cannot be opened: there is no such file");
  if (!facts.is_file()) refuse_file(path, "not a file");
  return PosixFile(path, O_RDONLY, kOfSafetensors);
}

std::string read_index_text(const std::string& path, std::int64_t most) {
  const PosixFile file = open_to_read(path);
  const std::int64_t size = file.size();
  if (size > most) {
    refuse_file(path, fmt::format("has {} bytes, {} at most are read", size, most));
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read(0, text.data(), text.size());
  if (is_pointer_of_lfs(text)) refuse_file(path, kWordsOnLfs);
  return text;
}

// Which file holds each tensor, as an index says.
std::map<std::string, std::string> read_index(const std::string& path) {
  const std::string text = read_index_text(path, kMostSafetensorsHeader);
  std::map<std::string, std::string> files;
  try {
    const Json index = Json::parse_unique(text);
    for (const Json::Member& member : index.at("weight_map").members()) {
      const std::string& name = member.value.text();
      if (name.empty() || name.find('/') != std::string::npos ||
          name.find('\0') != std::string::npos) {
        throw JsonError(
            fmt::format("tensor {} is in '{}', which is not the name of a file beside "
                        "the index",
                        shown(member.key), shown(name)));
      }
      files.emplace(member.key, name);
    }
  } catch (const JsonError& error) {
    refuse_file(path, fmt::format("not an index of safetensors: {}", error.what()));
  }
  if (files.empty()) refuse_file(path, "its weight_map names no tensor");
  return files;
}

void add_file(FileSet& set, const std::string& path) {
  for (SafetensorsEntry& entry : read_safetensors_header(path)) {
    entry.file = set.paths.size();
    set.tensors.push_back(std::move(entry));
  }
  set.paths.push_back(path);
}

void check_names(const FileSet& set) {
  const auto twice =
      std::ranges::adjacent_find(set.tensors, {}, [](const SafetensorsEntry& e) { return e.name; });
  if (twice == set.tensors.end()) return;
  refuse_file(
      set.paths[std::next(twice)->file],
      fmt::format("holds the tensor {}, as {} does", shown(twice->name), set.paths[twice->file]));
}

FileSet read_indexed(const std::string& folder, const std::string& index) {
  const std::map<std::string, std::string> files = read_index(index);
  std::set<std::string> names;
  for (const auto& [tensor, file] : files) names.insert(file);
  FileSet set;
  for (const std::string& name : names) add_file(set, folder + "/" + name);
  std::ranges::sort(set.tensors, {}, &SafetensorsEntry::name);
  check_names(set);
  for (const auto& [tensor, file] : files) {
    const auto at = std::ranges::lower_bound(set.tensors, tensor, {}, &SafetensorsEntry::name);
    const bool there =
        at != set.tensors.end() && at->name == tensor && set.paths[at->file] == folder + "/" + file;
    if (!there) {
      refuse_file(index, fmt::format("says that {} holds the tensor {}, which it does not",
                                     shown(file), shown(tensor)));
    }
  }
  return set;
}

// What a folder without such files holds instead, as the end of a sentence; empty: nothing known.
std::string words_on_others(const std::string& folder) {
  struct Kind {
    std::string_view ending, words;
  };
  constexpr std::array kKinds = {
      Kind{"adapter_model.safetensors",
           ", what an adapter adds to a model: peft makes a whole one, merge_and_unload() and "
           "save_pretrained(NEW_FOLDER)"},
      Kind{".safetensors", ": name it if it is a whole model, or bring the index of its parts"},
      Kind{".gguf", ", a file of llama.cpp: import the safetensors that it was made from"},
      Kind{".bin", ": if it is a pickle, transformers converts it"},
      Kind{".pth", ", a pickle, which may run any program and is not read"},
      Kind{".pt", ", a pickle, which may run any program and is not read"}};
  std::vector<std::string> names =
      names_in(folder, kOfSafetensors).value_or(std::vector<std::string>());
  std::ranges::sort(names);
  if (std::ranges::binary_search(names, "snapshots")) {
    return ", but snapshots of a cache: name a folder in there";
  }
  for (const Kind& kind : kKinds) {
    for (const std::string& name : names) {
      if (name.ends_with(kind.ending)) return fmt::format(", but {}{}", shown(name), kind.words);
    }
  }
  return "";
}

FileSet read_set(const std::string& path) {
  const FileFacts facts = look_ahead(path, kOfSafetensors);
  const auto holds = [&](std::string_view name) {
    return look_at(fmt::format("{}/{}", path, name), kOfSafetensors).is_there();
  };
  if (!facts.is_there()) {
    refuse_file(path, "no such file or folder; name a file of safetensors, or a folder of them");
  }
  FileSet set;
  if (!facts.is_folder()) {
    add_file(set, path);
  } else if (holds(kSafetensorsName)) {
    add_file(set, path + "/" + kSafetensorsName);
  } else if (holds(kSafetensorsIndexName)) {
    return read_indexed(path, path + "/" + kSafetensorsIndexName);
  } else {
    for (const std::string_view pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
      if (!holds(pickle)) continue;
      refuse_file(path,
                  fmt::format("holds {}, a pickle, which may run any program and is not read: "
                              "transformers converts it, {}",
                              pickle, kConvert));
    }
    refuse_file(path, fmt::format("holds neither {} nor {}{}", kSafetensorsName,
                                  kSafetensorsIndexName, words_on_others(path)));
  }
  std::ranges::sort(set.tensors, {}, &SafetensorsEntry::name);
  check_names(set);
  return set;
}

// Refuses other files that are known by their first bytes.
void check_content(const std::string& path, std::string_view first) {
  if (is_pointer_of_lfs(first)) refuse_file(path, kWordsOnLfs);
  if (first.starts_with("GGUF")) {
    refuse_file(path, "a file of llama.cpp: import the safetensors that it was made from");
  }
  if (first.starts_with("PK\x03\x04") || first.starts_with("\x80\x02")) {
    refuse_file(path, fmt::format("a pickle, which may run any program and is not read: "
                                  "transformers converts it, {}",
                                  kConvert));
  }
}

// Refuses a text, which may lie beside a model. Its first bytes, read as a length, are too many.
void check_no_text(const std::string& path, std::span<const unsigned char> first) {
  const bool is_text = std::ranges::all_of(first, [](unsigned char byte) {
    return (byte >= ' ' && byte < 0x7f) || byte == '\n' || byte == '\r' || byte == '\t';
  });
  if (!is_text) return;
  const char* const way = path.ends_with(".json") ? ": name the folder that it lies in" : "";
  refuse_file(path, fmt::format("a text, not a file of safetensors{}", way));
}

struct OpenedFile {
  explicit OpenedFile(const std::string& path) : file(path, O_RDONLY, kOfSafetensors) {}
  PosixFile file;
};

}  // namespace

std::string SafetensorsEntry::shape_text() const {
  return fmt::format("({})", fmt::join(shape, ", "));
}

std::vector<SafetensorsEntry> read_safetensors_header(const std::string& path) {
  const PosixFile file = open_to_read(path);
  const std::int64_t size = file.size();
  if (size < kLengthBytes) {
    refuse_file(path, fmt::format("not a file of safetensors: it has {} bytes", size));
  }
  std::array<unsigned char, kLengthBytes> little{};
  file.read(0, little.data(), little.size());
  check_content(path, std::string_view(reinterpret_cast<const char*>(little.data()), 8));
  std::uint64_t length = 0;
  for (std::size_t i = little.size(); i-- > 0;) length = length << 8 | little[i];
  if (length > static_cast<std::uint64_t>(size - kLengthBytes)) {
    check_no_text(path, little);
    refuse_file(
        path, fmt::format("not a whole file of safetensors: it says that its header has {} bytes, "
                          "but it has {} in all",
                          length, size));
  }
  if (length > static_cast<std::uint64_t>(kMostSafetensorsHeader)) {
    refuse_file(path, fmt::format("its header has {} bytes, {} at most are read", length,
                                  kMostSafetensorsHeader));
  }
  std::string text(length, '\0');
  file.read(kLengthBytes, text.data(), text.size());
  return parse_header(path, text, size);
}

struct SafetensorsFiles::Impl {
  explicit Impl(FileSet of) : set(std::move(of)), files(set.paths) {}

  const FileSet set;
  // A rank opens those that hold its pieces, when it reads them.
  mutable OpenFiles<std::string, OpenedFile> files;
};

SafetensorsFiles SafetensorsFiles::open(Communicator& comm, const std::string& path) {
  FileSet set = set_from_text(comm.read_once([&] { return set_to_text(read_set(path)); }));
  return SafetensorsFiles(std::make_shared<const Impl>(std::move(set)));
}

const std::vector<SafetensorsEntry>& SafetensorsFiles::tensors() const {
  return impl_->set.tensors;
}

const SafetensorsEntry* SafetensorsFiles::find(std::string_view name) const {
  const auto& all = tensors();
  const auto at = std::ranges::lower_bound(all, name, {}, &SafetensorsEntry::name);
  return at != all.end() && at->name == name ? &*at : nullptr;
}

const std::string& SafetensorsFiles::path_of(const SafetensorsEntry& entry) const {
  return impl_->set.paths[entry.file];
}

void SafetensorsFiles::read(const SafetensorsEntry& entry, std::int64_t first, void* to,
                            std::int64_t bytes) const {
  TRIREME_CHECK(first >= 0 && bytes >= 0 && first + bytes <= entry.bytes,
                "a read past the end of " + entry.name);
  impl_->files.use(entry.file)
      ->file.read(entry.offset + first, to, static_cast<std::size_t>(bytes));
}

}  // namespace trireme
