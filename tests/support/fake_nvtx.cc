// A stand-in for a profiler's library, which NVTX loads: appends each range that begins to the file
// that TRIREME_FAKE_NVTX names, indented by its depth. A range that ends without one is told, too.
#include <cstdio>
#include <cstdlib>

#include <nvtx3/nvToolsExt.h>

namespace {

thread_local int depth = 0;

void tell(const char* text) {
  std::FILE* const file = std::fopen(std::getenv("TRIREME_FAKE_NVTX"), "a");
  if (file == nullptr) std::abort();
  std::fprintf(file, "%*s%s\n", 2 * depth, "", text);
  std::fclose(file);
}

int push(const char* name) {
  tell(name);
  return depth++;
}

int pop() {
  if (depth == 0) {
    tell("a range ends that has not begun");
    return -1;
  }
  return --depth;
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t export_table) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &size) == 0) {
    return 0;
  }
  *functions[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *functions[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
