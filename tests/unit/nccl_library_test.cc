// NCCL's library as it is on this machine: opening it, and what it says without a GPU.
#include "comm/nccl/nccl_library.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

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
