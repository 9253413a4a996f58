// What lies in the relocatable archive's bin/ under the names trireme, mpiexec and hydra_pmi_proxy:
// starts the program of that name with the libraries of the archive, wherever it was unpacked.
// Under any other name it starts the program of that name in libexec/trireme, if there is one, and
// else trireme. Linked statically, so it needs nothing of the system.
//
// The C library is the system's where that is no older than the archive's, so that an MPI of the
// site, built for this system, can take the place of ours; otherwise the archive's own, through its
// own loader. modules/README.md documents the variables TRIREME_MPI and TRIREME_LIBC.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

constexpr const char* kSystemLoader = "/lib64/ld-linux-x86-64.so.2";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "trireme: %s\n", what.c_str());
  std::exit(2);
}

// The folder into which the archive was unpacked: two levels above this program.
std::string archive_folder() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) fail("cannot read /proc/self/exe; is /proc mounted?");
  std::string folder(path, static_cast<std::size_t>(length));
  for (int level = 0; level < 2; ++level) folder.erase(folder.rfind('/'));
  return folder;
}

// The name under which this program was started.
std::string started_as(const std::string& root) {
  const auto* path = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  std::string name = path == nullptr ? "trireme" : path;
  name.erase(0, name.rfind('/') + 1);
  const std::string link = root + "/libexec/trireme/loader/" + name;  // one for each program
  struct stat status {};
  return lstat(link.c_str(), &status) == 0 ? name : "trireme";
}

// The N of a C library 2.N, which names itself in its file; 0 where it cannot be told.
int minor_version(const char* library) {
  const int file = open(library, O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (file < 0 || fstat(file, &status) != 0 || status.st_size == 0) return 0;
  const auto size = static_cast<std::size_t>(status.st_size);
  void* bytes = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (bytes == MAP_FAILED) return 0;
  constexpr const char* kWords = "stable release version 2.";
  const auto* found = static_cast<const char*>(memmem(bytes, size, kWords, std::strlen(kWords)));
  const int minor = found == nullptr ? 0 : std::atoi(found + std::strlen(kWords));
  munmap(bytes, size);
  return minor;
}

bool system_libc_serves() {
  const std::string choice = variable("TRIREME_LIBC");
  if (choice == "archive") return false;
  if (choice == "system") return true;
  if (!choice.empty()) fail("TRIREME_LIBC is '" + choice + "'; it may be archive or system");
  if (access(kSystemLoader, X_OK) != 0) return false;
  for (const char* library : {"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6",
                              "/usr/lib64/libc.so.6", "/usr/lib/libc.so.6"}) {
    const int minor = minor_version(library);
    if (minor != 0) return minor >= __GLIBC_MINOR__;  // ours is what this was compiled with
  }
  return false;
}

// The library of the site's MPI that shall stand in for ours; empty: none.
std::string other_mpi() {
  std::string path = variable("TRIREME_MPI");
  struct stat status {};
  if (path.empty()) return path;
  if (stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) path += "/libmpi.so.12";
  if (access(path.c_str(), R_OK) != 0) {
    fail("TRIREME_MPI: there is no " + path + "; name libmpi.so.12 or its folder");
  }
  return path;
}

void start(const std::vector<std::string>& words, const std::string& program) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execv(program.c_str(), arguments.data());
  fail(program + " cannot be started: " + std::strerror(errno));
}

}  // namespace

int main(int, char** argv) {
  const std::string root = archive_folder(), name = started_as(root);
  const std::string program =
      root + "/libexec/trireme/" + (name == "mpiexec" ? "mpiexec.hydra" : name);
  std::string mpi;
  if (name != "mpiexec" && name != "hydra_pmi_proxy") {
    mpi = other_mpi();
    // The program would set this itself by a second start, which a loader of its own forbids.
    if (std::getenv("GOMP_SPINCOUNT") == nullptr) setenv("OMP_WAIT_POLICY", "passive", 0);
  }

  // Hydra looks for its proxy beside the path that it was started by.
  std::vector<std::string> words{root + "/bin/" + name};
  for (char** argument = argv + 1; *argv != nullptr && *argument != nullptr; ++argument) {
    words.emplace_back(*argument);
  }
  if (system_libc_serves()) {
    if (!mpi.empty()) {
      const std::string others = variable("LD_PRELOAD");
      setenv("LD_PRELOAD", (others.empty() ? mpi : mpi + ":" + others).c_str(), 1);
    }
    start(words, program);
  }
  std::vector<std::string> loaded{
      words[0], "--inhibit-cache", "--argv0",
      words[0], "--library-path",  root + "/mpi:" + root + "/lib:" + root + "/lib/glibc"};
  if (!mpi.empty()) loaded.insert(loaded.end(), {"--preload", mpi});
  loaded.push_back(program);
  loaded.insert(loaded.end(), words.begin() + 1, words.end());
  // A link to the loader by the program's name, which is what ps and top show.
  start(loaded, root + "/libexec/trireme/loader/" + name);
}
