// Reads checkpoints. Rank 0 checks the closing record and reads the headers for all ranks; each
// rank checks the checksums of an equal share of the bytes. Then the tensors are read in rounds
// (read_plan.h, shared_read.h). The slices of a GPU are copied to it as soon as they are complete,
// so that host memory never holds a whole model that a GPU holds.
#include <algorithm>

#include <fcntl.h>
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/tensor_checksum.h"
#include "trireme/io/together.h"

#include "io/checkpoints/checkpoint_file.h"
#include "io/checkpoints/shared_read.h"
#include "io/checkpoints/tensor_slab.h"
#include "io/files/posix_file.h"

namespace trireme {
namespace {

constexpr std::size_t kBlockWords = std::size_t{1} << 20;

// Rank 0 reads the headers for all ranks and sends them as text.
std::string to_text(const CheckpointContents& contents) {
  const CheckpointInfo& info = contents.info;
  Json extra = Json::object();
  for (const auto& [key, value] : info.extra) extra[key] = value;
  Json tensors = Json::array();
  for (const CheckpointTensor& tensor : contents.tensors) {
    Json extents = Json::array();
    for (const std::int64_t extent : tensor.shape.extents()) extents.push_back(extent);
    tensors.push_back(Json::array({tensor.name, std::move(extents), static_cast<int>(tensor.dtype),
                                   tensor.offset, tensor.checksum}));
  }
  // CBOR rather than JSON, because a configuration may hold bytes that are not UTF-8.
  return Json::object({{"format_version", info.format_version},
                       {"step", info.step},
                       {"samples", info.samples},
                       {"seed", info.seed},
                       {"config", info.config},
                       {"extra", std::move(extra)},
                       {"file_bytes", contents.file_bytes},
                       {"tensors", std::move(tensors)}})
      .to_cbor();
}

CheckpointContents from_text(const std::string& bytes) {
  const Json text = Json::from_cbor(bytes);
  CheckpointContents contents;
  contents.info.format_version = text.at("format_version").small_integer();
  contents.info.step = text.at("step").integer();
  contents.info.samples = text.at("samples").integer();
  contents.info.seed = text.at("seed").unsigned_integer();
  contents.info.config = text.at("config").text();
  for (const auto& [key, value] : text.at("extra").members()) {
    contents.info.extra[key] = value.text();
  }
  contents.file_bytes = text.at("file_bytes").integer();
  for (const Json& entry : text.at("tensors").items()) {
    std::vector<std::int64_t> extents;
    for (const Json& extent : entry.at(1).items()) extents.push_back(extent.integer());
    contents.tensors.push_back({entry.at(0).text(), Shape(std::span<const std::int64_t>(extents)),
                                static_cast<DType>(entry.at(2).small_integer()),
                                entry.at(3).integer(), entry.at(4).unsigned_integer()});
  }
  return contents;
}

PosixFile open_checkpoint(const std::string& path) {
  return PosixFile(path, O_RDONLY, ExitStatus::kCheckpoint);
}

// Returns, for each tensor, the checksum of those of its words that are in this rank's share. The
// shares divide the words of all tensors.
std::vector<std::uint64_t> partial_sums(int rank, int ranks, const PosixFile& file,
                                        const CheckpointContents& contents) {
  std::int64_t total = 0;
  for (const CheckpointTensor& tensor : contents.tensors) total += tensor.bytes() / 4;
  const std::int64_t share = total / ranks + 1;
  const std::int64_t begin = std::min(total, share * rank);
  const std::int64_t end = std::min(total, begin + share);

  std::vector<std::uint32_t> block(kBlockWords);
  std::vector<std::uint64_t> sums;
  std::int64_t before = 0;  // words of the tensors before this one
  for (const CheckpointTensor& tensor : contents.tensors) {
    const std::int64_t words = tensor.bytes() / 4;
    std::int64_t at = std::clamp<std::int64_t>(begin - before, 0, words);
    const std::int64_t stop = std::clamp<std::int64_t>(end - before, 0, words);
    std::uint64_t sum = 0;
    while (at < stop) {
      const auto count =
          static_cast<std::size_t>(std::min<std::int64_t>(stop - at, std::ssize(block)));
      file.read(tensor.offset + at * 4, block.data(), count * 4);
      sum += tensor_checksum({block.data(), count}, static_cast<std::uint64_t>(at));
      at += static_cast<std::int64_t>(count);
    }
    sums.push_back(sum);
    before += words;
  }
  return sums;
}

void check_sums(const std::string& path, const CheckpointContents& contents,
                const std::vector<std::uint64_t>& sums) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const CheckpointTensor& tensor = contents.tensors[i];
    if (sums[i] != tensor.checksum) {
      throw CheckpointError(
          fmt::format("{}: damaged: tensor {} does not match its checksum", path, tensor.name));
    }
  }
}

const CheckpointTensor& find_for(const CheckpointContents& contents, const std::string& path,
                                 const TensorSlice& slice) {
  const CheckpointTensor* tensor = contents.find(slice.name);
  if (!tensor) {
    throw CheckpointError(fmt::format("{}: holds no tensor {}; the model wants one of shape {}",
                                      path, slice.name, slice.global.to_string()));
  }
  if (tensor->shape != slice.global || tensor->dtype != slice.dtype()) {
    throw CheckpointError(fmt::format("{}: tensor {} is {} {}, the model wants {} {}", path,
                                      slice.name, name_of(tensor->dtype), tensor->shape.to_string(),
                                      name_of(slice.dtype()), slice.global.to_string()));
  }
  return *tensor;
}

}  // namespace

struct Checkpoint::Impl {
  std::shared_ptr<const PosixFile> file;
  CheckpointContents contents;
};

Checkpoint Checkpoint::open(Communicator& comm, const std::string& path) {
  CheckpointContents contents;
  std::string text;
  run_together(comm, [&] {
    if (comm.rank() == 0) text = to_text(inspect_checkpoint(path));
  });
  contents = from_text(comm.broadcast_text(std::move(text)));
  std::shared_ptr<const Impl> impl;
  std::vector<std::uint64_t> sums;
  run_together(comm, [&] {
    impl = std::make_shared<const Impl>(
        Impl{std::make_shared<const PosixFile>(open_checkpoint(path)), std::move(contents)});
    sums = partial_sums(comm.rank(), comm.size(), *impl->file, impl->contents);
  });
  sum_modular(comm, sums);
  check_sums(path, impl->contents, sums);
  return Checkpoint(std::move(impl));
}

CheckpointContents verify_checkpoint(const std::string& path) {
  CheckpointContents contents = inspect_checkpoint(path);
  check_sums(path, contents, partial_sums(0, 1, open_checkpoint(path), contents));
  return contents;
}

const std::string& Checkpoint::path() const {
  return impl_->file->path();
}
const CheckpointInfo& Checkpoint::info() const {
  return impl_->contents.info;
}
const CheckpointContents& Checkpoint::contents() const {
  return impl_->contents;
}

Checkpoint Checkpoint::renamed(const std::function<std::string(const std::string&)>& name) const {
  std::map<std::string, CheckpointTensor> tensors;
  for (const CheckpointTensor& tensor : impl_->contents.tensors) {
    std::string now = name(tensor.name);
    if (!now.empty()) tensors.insert_or_assign(std::move(now), tensor);
  }
  CheckpointContents contents = impl_->contents;
  contents.tensors.clear();
  for (auto& [now, tensor] : tensors) {
    tensor.name = now;
    contents.tensors.push_back(tensor);
  }
  return Checkpoint(std::make_shared<const Impl>(Impl{impl_->file, std::move(contents)}));
}

void Checkpoint::check(Communicator& comm, std::span<const TensorSlice> wanted) const {
  run_together(comm, [&] {
    for (const TensorSlice& slice : wanted) {
      check_slice(slice);
      find_for(impl_->contents, path(), slice);
    }
  });
}

void Checkpoint::read(const ReadGroups& groups, std::span<const TensorSlice> wanted) const {
  check(groups.world, wanted);
  read_shared(groups, *impl_->file, impl_->contents, wanted);
}

void Checkpoint::read(Communicator& comm, std::span<const TensorSlice> wanted) const {
  read({comm, comm}, wanted);
}

}  // namespace trireme
