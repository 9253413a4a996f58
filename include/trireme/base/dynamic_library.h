// A shared library that is opened when it is first needed, so that the program starts without it.
#pragma once

#include <string>
#include <vector>

namespace trireme {

// Stays open until the process ends, which device libraries require. Copies share it.
class DynamicLibrary {
 public:
  // Opens the first of `names` (sonames or paths) that can be opened. If none can, !found().
  explicit DynamicLibrary(const std::vector<std::string>& names);

  bool found() const { return handle_ != nullptr; }
  const std::string& name() const { return name_; }        // the name that was opened
  const std::string& why_not() const { return why_not_; }  // one line, if none was opened

  // Returns a function of the library; nullptr if the library was not found or has no such
  // function.
  template <class Function>
  Function* function(const char* symbol) const {
    return reinterpret_cast<Function*>(address(symbol));
  }
  // The same, but throws CudaError, which names what is missing.
  template <class Function>
  Function* required(const char* symbol) const {
    return reinterpret_cast<Function*>(required_address(symbol));
  }
  void* native() const { return handle_; }  // as dlopen returned it; nullptr if not found
  // The path of the opened file, as the loader knows it; empty if none was opened.
  std::string path() const;

 private:
  void* address(const char* symbol) const;
  void* required_address(const char* symbol) const;

  void* handle_ = nullptr;
  std::string name_;
  std::string why_not_;
};

// Names and paths to try for a CUDA library, in order: as the loader finds it, then below CUDA_HOME
// and CUDA_PATH, then where NVIDIA's installer puts it. ("cublasLt", 13): libcublasLt.so.13, ...
std::vector<std::string> cuda_library_names(const std::string& name, int major_version);

}  // namespace trireme
