#include "support/mpi_test.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/log.h"
#include "trireme/comm/algorithms.h"

namespace trireme::testing {
namespace {

Runtime* the_runtime = nullptr;  // global, because gtest offers tests no other way to reach it

// Rank 0 reports as gtest does. The other ranks only print their failures.
class RankListener final : public ::testing::EmptyTestEventListener {
 public:
  void OnTestStart(const ::testing::TestInfo& test) override {
    test_ = fmt::format("{}.{}", test.test_suite_name(), test.name());
  }
  // gtest holds its lock here, so this must not call gtest.
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const char* file = result.file_name() == nullptr ? "" : result.file_name();
    report_line(fmt::format("rank {}: {}: {}:{}: {}", runtime().rank(), test_, file,
                            result.line_number(), result.message()));
  }

 private:
  std::string test_;
};

// Returns a table that uses MPI's own algorithms for everything.
AlgorithmTable library_table() {
  std::vector<AlgorithmTable::Rule> rules;
  for (const Collective collective : kCollectives) {
    rules.push_back({collective, std::size_t{1} << 40, Algorithm::kLibrary});
  }
  return AlgorithmTable(rules);
}

ExitStatus run_tests() {
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (runtime().rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new RankListener);
  }
  // A test that fails on only one rank may leave the others waiting.
  runtime().set_timeout(60.0);
  return static_cast<ExitStatus>(RUN_ALL_TESTS());
}

}  // namespace

Runtime& runtime() {
  return *the_runtime;
}

void mpi_test_main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::GTEST_FLAG(catch_exceptions) = false;  // the runtime ends all ranks
  RuntimeOptions options;
  if (std::getenv("TRIREME_TEST_LIBRARY") != nullptr) options.algorithms = library_table();
  options.synchronous_sends = std::getenv("TRIREME_TEST_SYNCHRONOUS") != nullptr;
  Runtime runtime(options);
  the_runtime = &runtime;
  runtime.run(run_tests);
}

}  // namespace trireme::testing
