// Writes checkpoints. All ranks agree between the steps; if one rank fails, all give up in the same
// way, and the older checkpoints stay as they were. The steps:
//
// Rank 0 gathers names, shapes and slices up a tree of ranks, and checks that each element of each
// tensor is owned exactly once (checkpoint_plan.h).
//
// Rank 0 reserves the space, so that a full disk shows before the first byte is written, and makes
// NAME.GENERATION.partial with all groups, datasets and attributes. So no rank waits for another
// over metadata, and ranks that outlived a lost step write into a file of their own.
//
// All ranks open the file as one parallel HDF5 file and write their slabs. Ranks that hold copies
// of the same elements divide them evenly, in shares cut at multiples of 65,536 elements. A flat
// range of a d-dimensional tensor consists of at most 2d - 1 slabs. Where a rank's part consists of
// short runs in the file, the tensor's owners first exchange elements (regroup.h).
//
// Rank 0 adds the checksums, which were computed from memory, and the closing record. Everything is
// synced, and the ranks read all of it back and compare. Rank 0 checks that the run folder is still
// ours, renames the file, and removes older checkpoints.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include <fcntl.h>
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/tensor_checksum.h"
#include "trireme/io/together.h"

#include "io/checkpoints/checkpoint_file.h"
#include "io/checkpoints/checkpoint_plan.h"
#include "io/checkpoints/host_copy.h"
#include "io/checkpoints/regroup.h"
#include "io/checkpoints/tensor_slab.h"
#include "io/hdf5/closing_record.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPartial = ".partial";

hdf5::ElementType element_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return hdf5::ElementType::kF32;
    case DType::kF64:
      return hdf5::ElementType::kF64;
    case DType::kI32:
      return hdf5::ElementType::kI32;
    case DType::kI64:
      return hdf5::ElementType::kI64;
    default:
      throw InternalError(fmt::format("a checkpoint does not keep {}", name_of(dtype)));
  }
}

// Runs a call into HDF5 or the file system, and turns its errors into RunFolderError: the folder
// could not take the file.
void blame_folder(const std::function<void()>& body) {
  try {
    body();
  } catch (const Hdf5Error& error) {
    throw RunFolderError(error.what());
  } catch (const DataError& error) {
    throw RunFolderError(error.what());
  } catch (const fs::filesystem_error& error) {
    throw RunFolderError(fmt::format("{}: {}", error.path1().string(), error.code().message()));
  }
}

// The checksum of the slice's elements, at their positions in the whole tensor.
std::uint64_t checksum_of(const TensorSlice& slice) {
  std::uint64_t sum = 0;
  const std::size_t words = size_of(slice.local.dtype()) / sizeof(std::uint32_t);
  const auto* memory = static_cast<const std::uint32_t*>(slice.local.raw());
  for (const hdf5::Box& box : boxes_of(slice)) {
    if (box.elements() == 0) continue;
    for_each_run(slice, box, [&](const Run& run) {
      sum += tensor_checksum({memory + static_cast<std::size_t>(run.memory) * words,
                              static_cast<std::size_t>(run.count) * words},
                             static_cast<std::uint64_t>(run.global) * words);
    });
  }
  return sum;
}

// Writes one checkpoint.
class Writer {
 public:
  // `among_others`: the folder is one of checkpoints, of which this is the newest.
  Writer(Communicator& comm, FlightRecorder& recorder, std::string path, bool among_others,
         const CheckpointInfo& info, std::span<const TensorSlice> owned,
         const CheckpointOptions& options)
      : comm_(comm),
        recorder_(recorder),
        folder_(fs::path(path).parent_path().string()),
        among_others_(among_others),
        info_(info),
        owned_(owned),
        options_(options),
        path_(std::move(path)),
        partial_(fmt::format("{}.{}{}", path_, options.generation, kPartial)) {}

  std::string write();

 private:
  void reserve_space();
  void make_file();
  void fill_file();
  void write_tensors(hdf5::File& file);
  void write_box(hdf5::Dataset& dataset, const TensorSlice& slice, const hdf5::Box& box);
  std::vector<std::uint64_t> checksums();
  void finish_file(const std::vector<std::uint64_t>& checksums);
  void check_still_ours() const;
  void publish();
  std::optional<PhaseFault> attempt();
  std::optional<PhaseFault> by_first(const std::function<void()>& body);
  std::optional<PhaseFault> what_is_gone(const PhaseFault& fault);

  bool first() const { return comm_.rank() == 0; }
  const CheckpointTexts& texts() const {
    static const CheckpointTexts kNone;
    return options_.texts != nullptr ? *options_.texts : kNone;
  }
  std::vector<TensorSlice> slices_of(const std::string& name) const;  // on the host

  Communicator& comm_;
  FlightRecorder& recorder_;
  const std::string folder_;
  const bool among_others_;
  const CheckpointInfo& info_;
  std::span<const TensorSlice> owned_;
  const CheckpointOptions& options_;
  const std::string path_, partial_;
  CheckpointPlan plan_;
  std::vector<char> packed_;  // a copy of a box that is not contiguous in memory
};

std::vector<TensorSlice> Writer::slices_of(const std::string& name) const {
  std::vector<TensorSlice> found;
  for (const TensorSlice& slice : owned_) {
    if (slice.name == name) found.push_back(on_host(slice));
  }
  return found;
}

// Happens before HDF5 opens the file: a disk that fills up while HDF5 closes a file leaves the
// library in a state in which MPI_Finalize crashes.
void Writer::reserve_space() {
  std::int64_t bytes = std::int64_t{64} << 10;
  bytes += std::ssize(info_.config);
  for (const auto& [name, text] : texts()) bytes += 4096 + std::ssize(text);
  for (const PlannedTensor& tensor : plan_.tensors) {
    bytes += tensor.bytes();
    bytes += 4096 + 4 * std::ssize(tensor.name);  // alignment and header
  }
  make_file_anew(partial_).reserve(bytes);
}

void Writer::check_still_ours() const {
  if (options_.check_still_ours) options_.check_still_ours();
}

// One rank makes all groups, datasets and attributes, so that the ranks need not agree about
// metadata. The file gets its full size and all its blocks here, before the first byte of data.
void Writer::make_file() {
  check_still_ours();
  make_folders(folder_, ExitStatus::kRunFolder);
  if (among_others_) remove_unfinished_checkpoints(folder_, options_.generation);
  reserve_space();
  hdf5::File file = hdf5::File::create(partial_);
  file.set_attribute("/", "format_version", info_.format_version);
  file.set_attribute("/", "step", info_.step);
  file.set_attribute("/", "samples", info_.samples);
  file.set_attribute("/", "seed", static_cast<std::int64_t>(info_.seed));
  file.set_attribute("/", "config", info_.config);
  for (const auto& [name, value] : info_.extra) {
    TRIREME_CHECK(!file.has_attribute("/", name), "two attributes of a checkpoint named " + name);
    file.set_attribute("/", name, value);
  }
  for (const auto& [name, text] : texts()) {
    file.create_text(fmt::format("{}{}", kTextsGroup, name), text);
  }
  std::string names;
  for (const PlannedTensor& tensor : plan_.tensors) {
    const auto extents = tensor.shape.extents();
    file.create_dataset("/" + tensor.name, element_type(tensor.dtype),
                        hdf5::Extents(extents.begin(), extents.end()));
    names += tensor.name + "\n";
  }
  file.create_dataset(kChecksumsName, hdf5::ElementType::kU64, {std::ssize(plan_.tensors)});
  file.set_attribute(kChecksumsName, kTensorNamesAttribute, names);
  file.close();
  PosixFile raw(partial_, O_RDWR);
  raw.reserve(raw.size());
}

// Opening and closing are collective. In between all ranks take the same path, even if one of them
// fails.
void Writer::fill_file() {
  std::optional<hdf5::File> file;
  {
    const FlightRecorder::Scope scope(recorder_, comm_, "H5Fopen");
    blame_folder([&] { file.emplace(hdf5::File::open_to_write(partial_, comm_)); });
  }
  const std::optional<PhaseFault> fault = attempt_together(comm_, [&] { write_tensors(*file); });
  {
    const FlightRecorder::Scope scope(recorder_, comm_, "H5Fclose");
    blame_folder([&] { file->close(); });
  }
  if (fault) fault->raise();
  // Every node holds pages of the file in its page cache, so each rank syncs the file.
  run_together(comm_, [&] { PosixFile(partial_, O_RDWR).sync(); });
}

// A rank that fails still takes part in the exchanges that the others wait for.
void Writer::write_tensors(hdf5::File& file) {
  std::exception_ptr failure;
  std::vector<char> memory;
  std::set<std::string> names;  // sorted, so that all owners of a tensor go in the same order
  for (const TensorSlice& slice : owned_) names.insert(slice.name);
  for (const std::string& name : names) {
    std::vector<TensorSlice> slices = slices_of(name);
    if (const ScatteredTensor* scattered = plan_.find_scattered(name)) {
      slices = {regroup(comm_, *scattered, slices, memory)};
    }
    if (failure) continue;
    try {
      blame_folder([&] {
        hdf5::Dataset dataset = file.dataset("/" + name);
        for (const TensorSlice& slice : slices) {
          for (const hdf5::Box& box : writes_of(slice)) write_box(dataset, slice, box);
        }
      });
    } catch (const Error&) {
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

void Writer::write_box(hdf5::Dataset& dataset, const TensorSlice& slice, const hdf5::Box& box) {
  const std::size_t size = size_of(slice.local.dtype());
  const char* memory = static_cast<const char*>(slice.local.raw());
  std::int64_t first = -1, next = -1;
  bool dense = true;
  for_each_run(slice, box, [&](const Run& run) {
    if (first < 0) first = next = run.memory;
    dense = dense && run.memory == next;
    next = run.memory + run.count;
  });
  const char* values = memory + static_cast<std::size_t>(first) * size;
  if (!dense) {
    packed_.resize(static_cast<std::size_t>(box.elements()) * size);
    char* to = packed_.data();
    for_each_run(slice, box, [&](const Run& run) {
      const std::size_t bytes = static_cast<std::size_t>(run.count) * size;
      std::memcpy(to, memory + static_cast<std::size_t>(run.memory) * size, bytes);
      to += bytes;
    });
    values = packed_.data();
  }
  dataset.write_raw({globally(slice, box)}, values, hdf5::Transfer::kIndependent);
}

// Computes the checksums from memory, so that the file can be compared with them. Each rank sends
// the sums of its own slices to rank 0. Returns the checksums of all tensors on rank 0.
std::vector<std::uint64_t> Writer::checksums() {
  std::string mine;
  for (const TensorSlice& slice : owned_) {
    const std::uint64_t sum = checksum_of(on_host(slice));
    mine.append(reinterpret_cast<const char*>(&sum), sizeof sum);
  }
  const std::vector<std::string> all = gather_to_first(comm_, std::move(mine));
  std::vector<std::uint64_t> sums(plan_.tensors.size(), 0);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const char* next = all[rank].data();
    for (const std::int32_t tensor : plan_.slices[rank]) {
      std::uint64_t sum = 0;
      std::memcpy(&sum, next, sizeof sum);
      next += sizeof sum;
      sums[static_cast<std::size_t>(tensor)] += sum;
    }
  }
  return sums;
}

void Writer::finish_file(const std::vector<std::uint64_t>& checksums) {
  hdf5::File file = hdf5::File::open_to_write(partial_);
  if (!checksums.empty()) {
    file.dataset(kChecksumsName).write(0, std::span<const std::uint64_t>(checksums));
  }
  std::vector<ByteRange> data;
  for (const PlannedTensor& tensor : plan_.tensors) {
    const hdf5::Dataset dataset = file.dataset("/" + tensor.name);
    if (tensor.elements() == 0) continue;
    const auto offset = dataset.contiguous_offset();
    TRIREME_CHECK(offset, partial_ + ": " + tensor.name + " has no place in the file");
    data.push_back({*offset, tensor.bytes()});
  }
  file.close();
  PosixFile raw(partial_, O_RDWR);
  append_record(raw, std::move(data));
  raw.sync();
}

void Writer::publish() {
  check_still_ours();
  rename_file(partial_, path_, ExitStatus::kRunFolder);
  sync_folder(folder_);
  if (!among_others_ || options_.keep <= 0) return;
  const std::vector<CheckpointFile> files = list_checkpoints(folder_);
  const auto keep = static_cast<std::size_t>(options_.keep);
  for (std::size_t i = 0; i + keep < files.size(); ++i) {
    std::error_code ignored;  // the new one is complete, so an old one may stay
    const bool stays = files[i].path == path_ || files[i].step == options_.spared;
    if (!stays) fs::remove(files[i].path, ignored);
  }
}

// Tells after a fault which of what this file needs is not there any more. A folder that somebody
// removed has no place for a file, and a file that somebody removed while it was written looks
// damaged when it is read.
std::optional<PhaseFault> Writer::what_is_gone(const PhaseFault& fault) {
  return attempt_together(comm_, [&] {
    if (!first()) return;
    for (const fs::path& folder :
         {fs::path(path_).parent_path().parent_path(), fs::path(path_).parent_path()}) {
      if (look_ahead(folder.string(), ExitStatus::kRunFolder).is_there()) continue;
      throw RunFolderError(folder.string() +
                           ": somebody removed it while this run wrote there; ending");
    }
    if (fault.status == ExitStatus::kRunFolder) return;
    for (const std::string& path : {partial_, path_}) {
      if (look_at(path, ExitStatus::kRunFolder).is_there()) return;
    }
    throw RunFolderError(partial_ + ": somebody removed it while it was being written");
  });
}

std::optional<PhaseFault> Writer::by_first(const std::function<void()>& body) {
  return attempt_together(comm_, [&] {
    if (first()) blame_folder(body);
  });
}

std::optional<PhaseFault> Writer::attempt() {
  std::optional<PhaseFault> fault = by_first([&] { make_file(); });
  if (!fault) {
    fault = attempt_together(comm_, [&] { fill_file(); });
  }
  if (!fault) {
    const std::vector<std::uint64_t> sums = checksums();
    fault = by_first([&] { finish_file(sums); });
  }
  if (!fault) {
    fault = attempt_together(comm_, [&] { Checkpoint::open(comm_, partial_); });
  }
  if (!fault) fault = by_first([&] { publish(); });
  return fault;
}

// A file system that blinks takes folders and files away for a moment. The holder of a run folder
// waits until it is there again, and then all is written once more.
std::string Writer::write() {
  plan_ = agree_on_plan(comm_, owned_);
  std::optional<PhaseFault> fault = attempt();
  std::optional<PhaseFault> gone = fault ? what_is_gone(*fault) : std::nullopt;
  if (gone && options_.check_still_ours) {
    fault = by_first([&] { check_still_ours(); });
    gone.reset();
    if (!fault) {
      fault = attempt();
      if (fault) gone = what_is_gone(*fault);
    }
  }
  if (!fault) return path_;
  if (first()) {  // otherwise it could keep a full disk full
    std::error_code ignored;
    fs::remove(partial_, ignored);
  }
  gone.value_or(*std::move(fault)).raise();
}

}  // namespace

std::string write_checkpoint(Communicator& comm, FlightRecorder& recorder,
                             const std::string& folder, const CheckpointInfo& info,
                             std::span<const TensorSlice> owned, const CheckpointOptions& options) {
  return Writer(comm, recorder, checkpoint_path(folder, info.step), /*among_others=*/true, info,
                owned, options)
      .write();
}

void write_checkpoint_to(Communicator& comm, FlightRecorder& recorder, const std::string& path,
                         const CheckpointInfo& info, std::span<const TensorSlice> owned,
                         const CheckpointOptions& options) {
  Writer(comm, recorder, path, /*among_others=*/false, info, owned, options).write();
}

}  // namespace trireme
