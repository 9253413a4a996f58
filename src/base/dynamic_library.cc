#include "trireme/base/dynamic_library.h"

#include <cstdlib>

#include <dlfcn.h>
#include <link.h>

#include "trireme/base/error.h"

namespace trireme {

DynamicLibrary::DynamicLibrary(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      name_ = name;
      why_not_.clear();
      return;
    }
    // Keeps the reason for the first name, because that is the one that users know.
    const char* reason = dlerror();
    if (why_not_.empty()) why_not_ = reason == nullptr ? "cannot open " + name : reason;
  }
}

std::string DynamicLibrary::path() const {
  link_map* map = nullptr;
  if (handle_ == nullptr || dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0) return {};
  return map->l_name;
}

void* DynamicLibrary::address(const char* symbol) const {
  return handle_ == nullptr ? nullptr : dlsym(handle_, symbol);
}

void* DynamicLibrary::required_address(const char* symbol) const {
  void* found = address(symbol);
  if (found != nullptr) return found;
  throw CudaError(handle_ == nullptr ? why_not_ : name_ + " has no function " + symbol);
}

std::vector<std::string> cuda_library_names(const std::string& name, int major_version) {
  const std::string file = "lib" + name + ".so." + std::to_string(major_version);
  std::vector<std::string> names{file};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* folder = std::getenv(variable);
    if (folder != nullptr && *folder != '\0') names.push_back(folder + ("/lib64/" + file));
  }
  names.push_back("/usr/local/cuda/lib64/" + file);
  return names;
}

}  // namespace trireme
