#include <algorithm>
#include <exception>

#include <fmt/format.h>
#include <mpi.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/comm/communicator.h"
#include "trireme/io/text_kind.h"

#include "io/hdf5/hdf5_internal.h"

namespace trireme::hdf5 {
namespace {

Handle access_list(Communicator* comm) {
  Handle list(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  bool ok = H5Pset_libver_bounds(list.get(), H5F_LIBVER_LATEST, H5F_LIBVER_LATEST) >= 0;
  // Closing the file closes everything that is open in it, so that a dataset that somebody still
  // holds does not keep the file open.
  ok = ok && H5Pset_fclose_degree(list.get(), H5F_CLOSE_STRONG) >= 0;
  // Large data starts at a page boundary. File locks fail on many parallel file systems, so we use
  // none; the run folder has a lease instead.
  ok = ok && H5Pset_alignment(list.get(), 64 << 10, 4096) >= 0;
  ok = ok && H5Pset_file_locking(list.get(), false, true) >= 0;
  if (comm) {
    const auto native = *static_cast<const MPI_Comm*>(comm->native_mpi());
    ok = ok && H5Pset_fapl_mpio(list.get(), native, MPI_INFO_NULL) >= 0;
  }
  if (!ok) throw Hdf5Error("HDF5 refuses its access properties: " + library_words());
  return list;
}

// HDF5's own messages for a missing or foreign file are long and name HDF5's source lines.
void check_is_hdf5(const std::string& path) {
  const FileFacts facts = look_at(path, ExitStatus::kData);
  if (!facts.is_there()) throw DataError(path + ": there is no such file");
  if (!facts.is_file()) throw DataError(path + ": not a file");
  std::string beginning(kTellingBytes, '\0');
  FileReader file(path, ExitStatus::kData);  // says why the system refuses it
  beginning.resize(file.read(beginning.data(), beginning.size()));
  const htri_t is_hdf5 = patiently_read([&] { return H5Fis_hdf5(path.c_str()); });
  if (is_hdf5 == 0) {
    throw DataError(fmt::format(
        "{}: not an HDF5 file but {}{}", path, kind_of_file(beginning),
        beginning.empty() ? "" : "; trireme prepare makes shards of texts and pictures"));
  }
  if (is_hdf5 < 0) throw_unread(fmt::format("{}: cannot be read", path));
}

// Throws DataError if the link is not a hard link.
void check_link(const File::Impl& file, const std::string& name) {
  H5L_info_t link;
  if (H5Lget_info(file.id, name.c_str(), &link, H5P_DEFAULT) < 0) {
    throw_unread(fmt::format("{}: {} is no readable link", file.path, name));
  }
  if (link.type == H5L_TYPE_HARD) return;
  throw DataError(fmt::format(
      "{}: {} is {} link, which is not followed; copy the object into the file", file.path, name,
      link.type == H5L_TYPE_SOFT       ? "a soft"
      : link.type == H5L_TYPE_EXTERNAL ? "an external"
                                       : "a user-defined"));
}

// Our own readers require addresses of eight bytes that count from the beginning of the file.
void check_addresses(const File::Impl& file) {
  const Handle creation(H5Fget_create_plist(file.id), H5Pclose);
  std::size_t address = 0, length = 0;
  hsize_t user_block = 0;
  if (!creation.valid() || H5Pget_sizes(creation.get(), &address, &length) < 0 ||
      H5Pget_userblock(creation.get(), &user_block) < 0 || address != 8 || length != 8 ||
      user_block != 0) {
    throw DataError(file.path +
                    ": has a user block, or addresses that are not eight bytes long; h5repack "
                    "without options makes a file that can be read");
  }
}

std::shared_ptr<File::Impl> open_file(const std::string& path, unsigned flags, Communicator* comm) {
  const Locked lock;
  if (!comm) check_is_hdf5(path);
  const Handle access = access_list(comm);
  const auto open = [&] { return H5Fopen(path.c_str(), flags, access.get()); };
  const hid_t id = comm ? open() : patiently_read(open);
  if (id < 0) {
    throw_unread(fmt::format("{}: cannot be opened as HDF5", path));
  }
  auto file = std::make_shared<File::Impl>();
  file->path = path;
  file->id = id;
  file->parallel = comm != nullptr;
  if (!comm) check_addresses(*file);
  return file;
}

std::shared_ptr<File::Impl> create_file(const std::string& path, Communicator* comm) {
  const Locked lock;
  const Handle access = access_list(comm);
  const Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  H5Pset_obj_track_times(creation.get(), false);  // the same contents give the same file
  const hid_t id = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get());
  if (id < 0) throw Hdf5Error(fmt::format("{}: cannot be created: {}", path, library_words()));
  auto file = std::make_shared<File::Impl>();
  file->path = path;
  file->id = id;
  file->parallel = comm != nullptr;
  return file;
}

herr_t add_dataset(hid_t, const char* name, const H5O_info_t* info, void* names) {
  if (info->type != H5O_TYPE_DATASET) return 0;
  try {
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  } catch (const std::bad_alloc&) {
    return -1;  // no exception may pass through the library
  }
  return 0;
}

}  // namespace

File::Impl::~Impl() {
  // Closing a parallel file is collective. While an exception is in flight the other ranks may be
  // elsewhere, and closing would wait for them forever. The process is ending, so we leak the file.
  if (id < 0 || (parallel && std::uncaught_exceptions() > 0)) return;
  const Locked lock;
  H5Fclose(id);
}

void File::Impl::close() {
  if (id < 0) return;
  const Locked lock;
  const hid_t closing = std::exchange(id, -1);
  if (H5Fclose(closing) < 0) {
    throw Hdf5Error(fmt::format("{}: closing fails: {}", path, library_words()));
  }
}

File File::create(const std::string& path) {
  return File(create_file(path, nullptr));
}

File File::open(const std::string& path) {
  return File(open_file(path, H5F_ACC_RDONLY, nullptr));
}

File File::open_to_write(const std::string& path) {
  return File(open_file(path, H5F_ACC_RDWR, nullptr));
}

File File::create(const std::string& path, Communicator& comm) {
  return File(create_file(path, &comm));
}

File File::open_to_write(const std::string& path, Communicator& comm) {
  return File(open_file(path, H5F_ACC_RDWR, &comm));
}

const std::string& File::path() const {
  return impl_->path;
}

std::int64_t File::hdf5_bytes() const {
  const Locked lock;
  haddr_t end = 0;
  if (H5Fget_eoa(impl_->id, &end) < 0) {
    throw_unread(fmt::format("{}: has no readable end", path()));
  }
  return static_cast<std::int64_t>(end);
}

void File::close() {
  impl_->close();
}

bool File::exists(const std::string& name) const {
  const Locked lock;
  if (name.empty() || name == "/") return true;
  // H5Lexists requires that every group on the path exists.
  for (std::size_t slash = name.find('/', 1);; slash = name.find('/', slash + 1)) {
    const std::string part = name.substr(0, slash);
    const htri_t there =
        patiently_read([&] { return H5Lexists(impl_->id, part.c_str(), H5P_DEFAULT); });
    if (there < 0 && system_errno() != 0) throw_unread(path() + ": cannot be read");
    if (there <= 0) return false;
    if (!impl_->parallel) check_link(*impl_, part);
    if (slash == std::string::npos) break;
  }
  const htri_t there =
      patiently_read([&] { return H5Oexists_by_name(impl_->id, name.c_str(), H5P_DEFAULT); });
  if (there < 0 && system_errno() != 0) throw_unread(path() + ": cannot be read");
  return there > 0;
}

std::vector<std::string> File::datasets_below(const std::string& group) const {
  const Locked lock;
  std::vector<std::string> names;
  if (!exists(group)) return names;
  const Handle top(H5Gopen2(impl_->id, group.c_str(), H5P_DEFAULT), H5Gclose);
  if (!top.valid() || H5Ovisit2(top.get(), H5_INDEX_NAME, H5_ITER_NATIVE, add_dataset, &names,
                                H5O_INFO_BASIC) < 0) {
    throw_unread(fmt::format("{}: {} cannot be listed", path(), group));
  }
  const std::string prefix = group == "/" ? "/" : group + "/";
  for (std::string& name : names) name = prefix + name;
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace trireme::hdf5
