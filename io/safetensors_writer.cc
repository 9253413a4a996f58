#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/rounding.h"
#include "trireme/io/safetensors.h"
#include "trireme/io/together.h"
#include "trireme/io/whole_file.h"

#include "posix_file.h"
#include "safetensors_names.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPartialEnding = ".partial";
constexpr const char* kPartialOfSet = ".safetensors.partial";

const char* type_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    default:
      throw InternalError("safetensors are written of fp32, bf16 or fp16");
  }
}

// A file of the set: tensors [first, last).
struct PlannedFile {
  std::size_t first = 0, last = 0;
  std::int64_t bytes = 0;  // of its tensors
  std::string name = {};
  std::string header = {};  // with its length before it
};

// The header, padded so that the tensors begin at a multiple of 8 bytes.
std::string header_text(Json header) {
  header["__metadata__"] = Json::object({{"format", "pt"}});  // transformers wants to know
  std::string text = header.dump();
  text.resize(static_cast<std::size_t>(rounded_up(std::ssize(text), 8)), ' ');
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return length + text;
}

// Of another writer, or of one that was killed.
[[noreturn]] void refuse_partial(const std::string& path) {
  throw RunFolderError(fmt::format(
      "{}: another export is writing it, or has left it: remove it, or give a new folder", path));
}

}  // namespace

struct SafetensorsWriter::Impl {
  Communicator& comm;
  std::string folder;
  std::vector<SafetensorsTensor> tensors;
  std::int64_t element_bytes;
  const char* type;

  std::vector<PlannedFile> planned = {};
  std::vector<std::size_t> file_of = {};            // by tensor
  std::vector<std::int64_t> offset_of = {};         // of its first byte in the file
  std::vector<std::optional<PosixFile>> open = {};  // where this rank has written
  std::size_t made = 0;  // files of the plan that this writer has begun, on rank 0
  bool finished = false;

  bool first() const { return comm.rank() == 0; }
  std::string path(const std::string& name) const { return folder + "/" + name; }
  std::int64_t bytes_of(const SafetensorsTensor& tensor) const {
    std::int64_t bytes = element_bytes;
    for (const std::int64_t extent : tensor.shape) bytes *= extent;
    return bytes;
  }

  void plan(std::int64_t most_bytes);
  void make_files();
  void make_file(const PlannedFile& file);
  void remove_partial();
  std::string index_text() const;
};

void SafetensorsWriter::Impl::plan(std::int64_t most_bytes) {
  planned.emplace_back();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t bytes = bytes_of(tensors[i]);
    if (planned.back().last > planned.back().first && planned.back().bytes + bytes > most_bytes) {
      planned.push_back({i, i});
    }
    planned.back().last = i + 1;
    planned.back().bytes += bytes;
    file_of.push_back(planned.size() - 1);
  }
  for (std::size_t f = 0; f < planned.size(); ++f) {
    PlannedFile& file = planned[f];
    file.name = planned.size() == 1
                    ? std::string(kSafetensorsName)
                    : fmt::format("model-{:05}-of-{:05}.safetensors", f + 1, planned.size());
    Json header = Json::object();
    std::int64_t at = 0;
    for (std::size_t i = file.first; i < file.last; ++i) {
      Json shape = Json::array();
      for (const std::int64_t extent : tensors[i].shape) shape.push_back(extent);
      const std::int64_t end = at + bytes_of(tensors[i]);
      header[tensors[i].name] = Json::object(
          {{"dtype", type}, {"shape", std::move(shape)}, {"data_offsets", Json::array({at, end})}});
      offset_of.push_back(at);
      at = end;
    }
    file.header = header_text(std::move(header));
    for (std::size_t i = file.first; i < file.last; ++i) offset_of[i] += std::ssize(file.header);
  }
  open.resize(planned.size());
}

// On rank 0. Never opens a file that is there: it may be one that another export is writing.
void SafetensorsWriter::Impl::make_file(const PlannedFile& file) {
  const std::string partial = path(file.name) + kPartialEnding;
  std::error_code ignored;
  if (fs::exists(partial, ignored)) refuse_partial(partial);
  PosixFile out(partial, O_RDWR | O_CREAT | O_EXCL);
  ++made;
  out.reserve(std::ssize(file.header) + file.bytes);
  out.write(0, file.header.data(), file.header.size());
  out.truncate(std::ssize(file.header) + file.bytes);
  out.sync();  // no other rank of this node need write into this file, and sync it
}

// On rank 0.
void SafetensorsWriter::Impl::make_files() {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw RunFolderError(fmt::format("{}: {}", folder, error.message()));
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors") || name == kSafetensorsIndexName) {
      throw RunFolderError(fmt::format("{}: holds {} already: give a new folder", folder, name));
    }
    // The other export may divide the weights into other files.
    if (name.ends_with(kPartialOfSet)) refuse_partial(path(name));
  }
  if (error) throw RunFolderError(fmt::format("{}: {}", folder, error.message()));
  try {
    for (const PlannedFile& file : planned) make_file(file);
  } catch (...) {  // a full disk: the constructor throws, so no destructor runs
    remove_partial();
    throw;
  }
}

void SafetensorsWriter::Impl::remove_partial() {
  for (std::size_t f = 0; f < made; ++f) {
    std::error_code ignored;
    fs::remove(path(planned[f].name) + kPartialEnding, ignored);
  }
}

std::string SafetensorsWriter::Impl::index_text() const {
  std::int64_t total = 0;
  Json files = Json::object();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    total += bytes_of(tensors[i]);
    files[tensors[i].name] = planned[file_of[i]].name;
  }
  return Json::object({{"metadata", Json::object({{"total_size", total}})},
                       {"weight_map", std::move(files)}})
             .dump(2) +
         "\n";
}

SafetensorsWriter::SafetensorsWriter(Communicator& comm, const std::string& folder,
                                     std::vector<SafetensorsTensor> tensors, DType dtype,
                                     std::int64_t most_bytes)
    : impl_(std::make_unique<Impl>(Impl{comm, folder, std::move(tensors),
                                        static_cast<std::int64_t>(size_of(dtype)),
                                        type_name(dtype)})) {
  impl_->plan(most_bytes);
  run_together(comm, [&] {
    if (impl_->first()) impl_->make_files();
  });
}

SafetensorsWriter::~SafetensorsWriter() {
  if (impl_->first() && !impl_->finished) impl_->remove_partial();
}

void SafetensorsWriter::write(std::size_t tensor, std::int64_t first, const void* from,
                              std::int64_t bytes) {
  const std::size_t file = impl_->file_of.at(tensor);
  TRIREME_CHECK(first >= 0 && first + bytes <= impl_->bytes_of(impl_->tensors[tensor]),
                "a write past the end of " + impl_->tensors[tensor].name);
  std::optional<PosixFile>& open = impl_->open[file];
  if (!open) open.emplace(impl_->path(impl_->planned[file].name) + kPartialEnding, O_RDWR);
  open->write(impl_->offset_of[tensor] + first, from, static_cast<std::size_t>(bytes));
}

std::vector<std::string> SafetensorsWriter::finish() {
  run_together(impl_->comm, [&] {
    for (std::optional<PosixFile>& file : impl_->open) {
      if (file) file->sync();
    }
  });
  std::vector<std::string> names;
  for (const PlannedFile& file : impl_->planned) names.push_back(file.name);
  run_together(impl_->comm, [&] {
    if (!impl_->first()) return;
    for (const std::string& name : names) {
      std::error_code error;
      fs::rename(impl_->path(name) + kPartialEnding, impl_->path(name), error);
      if (error) throw RunFolderError(fmt::format("{}: {}", impl_->path(name), error.message()));
    }
    if (names.size() > 1) {
      write_whole_file(impl_->path(kSafetensorsIndexName), impl_->index_text());
    }
    sync_folder(impl_->folder);
  });
  impl_->finished = true;
  return names;
}

}  // namespace trireme
