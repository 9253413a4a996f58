// A stand-in for the driver's libnvidia-ml.so.1 with two GPUs. The second GPU has every fault and
// does not answer all queries.
#include <cstdio>
#include <cstring>

namespace {

int first, second;  // their addresses are the handles

struct PciInfo {
  char legacy_bus_id[16];
  unsigned domain, bus, device, id, subsystem_id;
  char bus_id[32];
};

}  // namespace

extern "C" {

int nvmlInit_v2() {
  return 0;
}
int nvmlShutdown() {
  return 0;
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::snprintf(text, size, "580.65.06");
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 3;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** gpu) {
  if (index > 1) return 6;  // not found, as when a GPU fell off the bus
  *gpu = index == 0 ? &first : &second;
  return 0;
}
int nvmlDeviceGetName(void*, char* text, unsigned size) {
  std::snprintf(text, size, "NVIDIA H200");
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void* gpu, PciInfo* pci) {
  std::strcpy(pci->bus_id, gpu == &first ? "00000000:19:00.0" : "00000000:CB:00.0");
  return 0;
}
int nvmlDeviceGetPersistenceMode(void* gpu, int* on) {
  *on = gpu == &first;
  return 0;
}
int nvmlDeviceGetEccMode(void* gpu, int* now, int* later) {
  *now = *later = gpu == &first;
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void* gpu, int error, int counter, unsigned long long* count) {
  if (gpu == &second || error != 1 || counter != 0) return 3;  // not supported
  *count = 2;
  return 0;
}
int nvmlDeviceGetClockInfo(void*, int clock, unsigned* mhz) {
  *mhz = clock == 1 ? 345 : 0;
  return 0;
}
int nvmlDeviceGetMaxClockInfo(void*, int clock, unsigned* mhz) {
  *mhz = clock == 1 ? 1980 : 0;
  return 0;
}
int nvmlDeviceGetPowerUsage(void* gpu, unsigned* milliwatts) {
  if (gpu == &second) return 3;
  *milliwatts = 642'500;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* gpu, unsigned long long* reasons) {
  *reasons = gpu == &first ? 0x1 : 0x40 | 0x80;
  return 0;
}
int nvmlDeviceGetNvLinkState(void* gpu, unsigned link, int* up) {
  if (gpu == &second || link >= 4) return 2;
  *up = link != 3;
  return 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned link, PciInfo* pci) {
  // Two links to the second GPU, the third to a switch.
  std::strcpy(pci->bus_id, link < 2 ? "00000000:CB:00.0" : "00000000:05:00.0");
  return 0;
}

}  // extern "C"
