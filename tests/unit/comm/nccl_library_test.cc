// NCCL's library as it is on this machine: opening it, and what it says without a GPU.
#include "comm/nccl/nccl_library.h"

#include <cstdlib>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/tensor/cuda.h"

#include "support/message_of.h"

namespace trireme {
namespace {

// What an old library would be: old_nccl.cc, which stands before the real one in another run of
// this program (TRIREME_OLD_NCCL).
TEST(NcclLibrary, AnOldOneIsNamed) {
  if (std::getenv("TRIREME_OLD_NCCL") == nullptr) GTEST_SKIP() << "with an old library alone";
  const auto fault = testing::message_of<NcclError>([] { nccl::load_library(); });
  EXPECT_TRUE(fault.starts_with("NCCL 2.18.3 (")) << fault;
  EXPECT_NE(fault.find("libnccl.so.2) is too old, 2.26.0 or newer is needed"), std::string::npos)
      << fault;
  for (const cuda::LibraryInfo& library : cuda::find_libraries()) {
    if (library.name != "NCCL") continue;
    EXPECT_EQ(library.version, "2.18.3");
    EXPECT_EQ(library.oldest, "2.26.0");
    return;
  }
  FAIL() << "find_libraries() lists no NCCL";
}

TEST(NcclLibrary, HasEverythingThatIsCalled) {
  std::shared_ptr<nccl::Library> library;
  try {
    library = nccl::load_library();
  } catch (const NcclError& error) {
    EXPECT_NE(std::string(error.what()).find("--comm.backend mpi"), std::string::npos)
        << error.what();
    GTEST_SKIP() << error.what();
  }
  EXPECT_GE(library->version(), nccl::kOldestVersion);
  EXPECT_NE(library->path().find("libnccl.so"), std::string::npos) << library->path();
  EXPECT_EQ(library->has_windows(), library->version() >= 22700);
  EXPECT_FALSE(library->words(nccl::Result::kSystemError, nullptr).empty());
  EXPECT_EQ(library->words(nccl::Result::kSystemError, nullptr).find('\n'), std::string::npos);
}

TEST(NcclLibrary, VersionsAreWrittenAsNcclDoes) {
  EXPECT_EQ(nccl::version_text(22809), "2.28.9");
  EXPECT_EQ(nccl::version_text(21903), "2.19.3");
}

}  // namespace
}  // namespace trireme
