// A libnccl.so.2 of a version that is too old, of which nothing but the version is there.
extern "C" int ncclGetVersion(int* version) {
  *version = 21803;
  return 0;
}
