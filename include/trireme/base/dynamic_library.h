// A shared library that is opened where it is first needed, so that the program starts without it.
#pragma once

#include <string>
#include <vector>

namespace trireme {

// Stays open to the end of the process, as the libraries of devices want it. Copies share it.
class DynamicLibrary {
 public:
  // The first of `names` (sonames or paths) that opens. Where none does, !found().
  explicit DynamicLibrary(const std::vector<std::string>& names);

  bool found() const { return handle_ != nullptr; }
  const std::string& name() const { return name_; }        // the one that was opened
  const std::string& why_not() const { return why_not_; }  // one line, where none was

  // A function of the library, nullptr where it is not found or has no such function.
  template <class Function>
  Function* function(const char* symbol) const {
    return reinterpret_cast<Function*>(address(symbol));
  }
  // The same; throws CudaError, which names what is missing.
  template <class Function>
  Function* required(const char* symbol) const {
    return reinterpret_cast<Function*>(required_address(symbol));
  }
  void* native() const { return handle_; }  // as dlopen gave it; nullptr where not found
  // The file that was opened, as the loader knows it; empty where none was.
  std::string path() const;

 private:
  void* address(const char* symbol) const;
  void* required_address(const char* symbol) const;

  void* handle_ = nullptr;
  std::string name_;
  std::string why_not_;
};

// Where a library of CUDA's may be, best first: as the loader finds it, then below CUDA_HOME and
// CUDA_PATH, then where NVIDIA's installer puts it. ("cublasLt", 13): libcublasLt.so.13, ...
std::vector<std::string> cuda_library_names(const std::string& name, int major_version);

}  // namespace trireme
