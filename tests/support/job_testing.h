// A small run whose job `trireme job` writes, for tests.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/job/job_script.h"

#include "support/message_of.h"

namespace trireme::testing {

class Job : public ::testing::Test {
 protected:
  Job() {
    config_.model.keys["preset"] = "test-gpt";
    config_.data.train = {{"train.h5"}};
    config_.batch.global = 8;
    config_.batch.micro = 2;
    request_.nodes = 2;
    request_.tasks_per_node = 2;
  }

  JobPlan plan(const std::string& text = "@NODES@") const {
    return plan_job({"chain", text}, config_, request_,
                    {node_mib_, gpu_mib_, loads_program(site_), groups_},
                    [](const Config&) { return models::DataFacts{.vocabulary = 67}; });
  }
  std::string refusal(const std::string& text = "@NODES@") const {
    return message_of([&] { plan(text); });
  }
  std::string script(const std::string& text) const {
    const JobTemplate job_template{"chain", text};
    return job_script(job_template, config_, request_, site_, plan(text),
                      {"/opt/my tools/trireme", "mpi=@MPI@\n"});
  }

  Config config_;
  JobRequest request_;
  Site site_;
  std::optional<std::int64_t> node_mib_ = 4000, gpu_mib_;
  std::vector<NodeGroup> groups_;
};

}  // namespace trireme::testing
