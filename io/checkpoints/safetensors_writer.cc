#include <memory>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/rounding.h"
#include "trireme/io/file_set.h"
#include "trireme/io/safetensors.h"

#include "io/checkpoints/safetensors_names.h"

namespace trireme {
namespace {

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
struct TensorRange {
  std::size_t first = 0, last = 0;
  std::int64_t bytes = 0;  // of its tensors
};

// The header with its length before it, padded so that the tensors begin at a multiple of 8 bytes.
std::string header_text(Json header) {
  header["__metadata__"] = Json::object({{"format", "pt"}});  // transformers wants to know
  std::string text = header.dump();
  text.resize(static_cast<std::size_t>(rounded_up(std::ssize(text), 8)), ' ');
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return length + text;
}

bool is_of_safetensors(std::string_view name) {
  return name.ends_with(".safetensors") || name == kSafetensorsIndexName;
}

}  // namespace

struct SafetensorsWriter::Impl {
  std::vector<SafetensorsTensor> tensors;
  std::int64_t element_bytes;
  const char* type;

  std::vector<std::size_t> file_of = {};     // by tensor
  std::vector<std::int64_t> offset_of = {};  // of its first byte after the header
  std::vector<std::string> names = {};       // of the files
  std::unique_ptr<FileSetWriter> files = {};

  std::int64_t bytes_of(const SafetensorsTensor& tensor) const {
    std::int64_t bytes = element_bytes;
    for (const std::int64_t extent : tensor.shape) bytes *= extent;
    return bytes;
  }

  std::vector<TensorRange> divided(std::int64_t most_bytes) const;
  std::vector<PlannedFile> plan(std::int64_t most_bytes);
  std::string index_text() const;
};

std::vector<TensorRange> SafetensorsWriter::Impl::divided(std::int64_t most_bytes) const {
  std::vector<TensorRange> ranges(1);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t bytes = bytes_of(tensors[i]);
    if (ranges.back().last > ranges.back().first && ranges.back().bytes + bytes > most_bytes) {
      ranges.push_back({i, i});
    }
    ranges.back().last = i + 1;
    ranges.back().bytes += bytes;
  }
  return ranges;
}

std::vector<PlannedFile> SafetensorsWriter::Impl::plan(std::int64_t most_bytes) {
  std::vector<PlannedFile> planned;
  const std::vector<TensorRange> ranges = divided(most_bytes);
  for (std::size_t f = 0; f < ranges.size(); ++f) {
    names.push_back(ranges.size() == 1
                        ? std::string(kSafetensorsName)
                        : fmt::format("model-{:05}-of-{:05}.safetensors", f + 1, ranges.size()));
    Json header = Json::object();
    std::int64_t at = 0;
    for (std::size_t i = ranges[f].first; i < ranges[f].last; ++i) {
      Json shape = Json::array();
      for (const std::int64_t extent : tensors[i].shape) shape.push_back(extent);
      const std::int64_t end = at + bytes_of(tensors[i]);
      header[tensors[i].name] = Json::object(
          {{"dtype", type}, {"shape", std::move(shape)}, {"data_offsets", Json::array({at, end})}});
      file_of.push_back(f);
      offset_of.push_back(at);
      at = end;
    }
    planned.push_back({names.back(), header_text(std::move(header)), at});
  }
  return planned;
}

std::string SafetensorsWriter::Impl::index_text() const {
  std::int64_t total = 0;
  Json where = Json::object();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    total += bytes_of(tensors[i]);
    where[tensors[i].name] = names[file_of[i]];
  }
  return Json::object({{"metadata", Json::object({{"total_size", total}})},
                       {"weight_map", std::move(where)}})
             .dump(2) +
         "\n";
}

SafetensorsWriter::SafetensorsWriter(Communicator& comm, const std::string& folder,
                                     std::vector<SafetensorsTensor> tensors, DType dtype,
                                     std::int64_t most_bytes,
                                     const std::map<std::string, std::string, std::less<>>& beside)
    : impl_(std::make_unique<Impl>(
          Impl{std::move(tensors), static_cast<std::int64_t>(size_of(dtype)), type_name(dtype)})) {
  std::vector<PlannedFile> planned = impl_->plan(most_bytes);
  if (impl_->names.size() > 1) {
    planned.push_back({std::string(kSafetensorsIndexName), impl_->index_text()});
  }
  for (const auto& [name, text] : beside) planned.push_back({name, text});
  impl_->files = std::make_unique<FileSetWriter>(
      comm, folder, std::move(planned),
      [&](std::string_view name) { return is_of_safetensors(name) || beside.contains(name); });
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::write(std::size_t tensor, std::int64_t first, const void* from,
                              std::int64_t bytes) {
  const SafetensorsTensor& of = impl_->tensors.at(tensor);
  TRIREME_CHECK(first >= 0 && first + bytes <= impl_->bytes_of(of),
                "a write past the end of " + of.name);
  impl_->files->write(impl_->file_of[tensor], impl_->offset_of[tensor] + first, from, bytes);
}

std::vector<std::string> SafetensorsWriter::finish() {
  impl_->files->finish();
  return impl_->names;
}

}  // namespace trireme
