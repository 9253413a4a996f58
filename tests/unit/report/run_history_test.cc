#include "trireme/report/run_history.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/node_names.h"
#include "trireme/io/lease.h"
#include "trireme/report/metrics_log.h"
#include "trireme/report/run_page.h"

#include "support/temporary_folder.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::string step_line(std::int64_t step, double loss = 2.5) {
  return fmt::format(
      R"({{"step":{},"loss":{},"lr":0.001,"grad_norm":0.5,"tokens":{},"tokens_per_s":1000.0,)"
      R"("step_s":0.5,"wait_data_s":0.05,"comm_s":0.1,"memory_bytes":1048576}})"
      "\n",
      step, loss, step * 500);
}

std::int64_t seconds_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// A run folder as a run of 10 steps would write it.
class RunHistoryTest : public ::testing::Test {
 protected:
  RunHistoryTest() { write("config.ini", "[run]\nsteps = 10\n"); }

  std::string run() const { return scratch_.path().string(); }
  void write(const std::string& name, const std::string& text) {
    fs::create_directories((scratch_.path() / name).parent_path());
    std::ofstream(scratch_.path() / name, std::ios::trunc) << text;
  }
  void append(const std::string& text) {
    std::ofstream(scratch_.path() / "metrics.jsonl", std::ios::app) << text;
  }
  void hold(const std::string& host, std::int64_t pid, std::int64_t heartbeat) {
    write("lease",
          fmt::format(R"({{"job":"17","restarts":2,"host":"{}","pid":{},"process_start":1,)"
                      R"("heartbeat":{},"generation":3}})",
                      host, pid, heartbeat));
  }
  void remove(const std::string& name) { fs::remove_all(scratch_.path() / name); }
  void set_age(const std::string& name, int seconds) {
    fs::last_write_time(scratch_.path() / name,
                        fs::file_time_type::clock::now() - std::chrono::seconds(seconds));
  }

  testing::TemporaryFolder scratch_;
};

TEST_F(RunHistoryTest, ReadsEveryFieldOfAStep) {
  append(step_line(1) + R"({"step":1,"eval_loss":3.25})" + "\n" +
         R"({"step":2,"eval_loss":3,"eval_top1":0.25,"eval_top5":7})" + "\n" +
         R"({"step":2,"loss":null,"grad_norm":null,"skipped":true})" + "\n");
  const RunHistory history(run());
  ASSERT_EQ(history.steps().size(), 2u);
  const StepMetrics& first = history.steps()[0];
  EXPECT_EQ(first.step, 1);
  EXPECT_EQ(first.loss, 2.5);
  EXPECT_EQ(first.learning_rate, 0.001);
  EXPECT_EQ(first.gradient_norm, 0.5);
  EXPECT_EQ(first.units, 500);
  EXPECT_EQ(first.units_per_second, 1000.0);
  EXPECT_EQ(first.step_seconds, 0.5);
  EXPECT_EQ(first.wait_data_seconds, 0.05);
  EXPECT_EQ(first.exposed_comm_seconds, 0.1);
  EXPECT_EQ(first.memory_bytes, 1048576.0);
  EXPECT_FALSE(first.skipped);
  EXPECT_TRUE(history.steps()[1].skipped);
  EXPECT_TRUE(std::isnan(history.steps()[1].loss));
  EXPECT_EQ(history.unit(), (tasks::Unit{"token", "tokens"}));
  ASSERT_EQ(history.evaluations().size(), 2u);
  EXPECT_EQ(history.evaluations()[0].step, 1);
  EXPECT_EQ(history.evaluations()[0].loss, 3.25);
  EXPECT_FALSE(history.evaluations()[0].top1);
  EXPECT_EQ(history.evaluations()[1].top1, 0.25);
  EXPECT_EQ(history.evaluations()[1].top5, 1.0);  // a share is 1 at most
  EXPECT_EQ(history.total_steps(), 10);
}

TEST_F(RunHistoryTest, TellsPicturesInSamples) {
  const tasks::Unit unit{"sample", "samples"};
  {
    MetricsLog log(run(), 0, unit, false);
    StepMetrics step;
    step.step = 1;
    step.loss = 2.0;
    step.units = 128;
    step.units_per_second = 640.0;
    step.step_seconds = 0.2;
    log.write(step);
    log.write(Evaluation{.step = 1, .loss = 1.5, .seconds = 3.0, .top1 = 0.25, .top5 = 0.75});
  }
  std::ifstream file(run() + "/metrics.jsonl");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(text.find(R"("samples":128,"samples_per_s":640.0,)"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("eval_s":3.0,"eval_top1":0.25,"eval_top5":0.75})"), std::string::npos)
      << text;
  EXPECT_EQ(text.find("token"), std::string::npos) << text;
  const RunHistory history(run());
  EXPECT_EQ(history.unit(), unit);
  ASSERT_EQ(history.steps().size(), 1u);
  EXPECT_EQ(history.steps()[0].units, 128);
  EXPECT_EQ(history.steps()[0].units_per_second, 640.0);
  ASSERT_EQ(history.evaluations().size(), 1u);
  EXPECT_EQ(history.evaluations()[0].top1, 0.25);
  EXPECT_EQ(history.evaluations()[0].top5, 0.75);
  const std::string page = page_of_run(history, {});
  for (const char* told : {"640 samples/s", "nats a sample", "top-1 25.0 %, top-5 75.0 %",
                           ">Accuracy<", "step 1: top-1 25.0 %"}) {
    EXPECT_NE(page.find(told), std::string::npos) << told;
  }
  EXPECT_EQ(page.find("token"), std::string::npos);
}

TEST_F(RunHistoryTest, TellsTheLossesOfIslands) {
  write("config.ini", "[grid]\nislands = 2\n[batch]\nglobal = 8\n");
  {
    MetricsLog log(run(), 0, {"token", "tokens"}, false);
    StepMetrics step;
    step.step = 1;
    step.loss = 3.25;
    step.losses_of_islands = {3.0, std::nan("")};
    log.write(step);
  }
  const RunHistory history(run());
  ASSERT_EQ(history.steps().size(), 1u);
  const std::vector<double>& losses = history.steps()[0].losses_of_islands;
  ASSERT_EQ(losses.size(), 2u);
  EXPECT_EQ(losses[0], 3.0);
  EXPECT_TRUE(std::isnan(losses[1]));
  const std::string page = page_of_run(history, {});
  for (const char* told :
       {"3.0000 nan", "1 x 1 x 1 (data x pipeline x tensor) on each of 2 islands",
        "8 sequences a step of each island"}) {
    EXPECT_NE(page.find(told), std::string::npos) << told;
  }
}

// Whoever reads the file while a start cuts it back sees all lines of before, or all of after.
TEST_F(RunHistoryTest, AStartReplacesTheMetricsInsteadOfWritingOverThem) {
  const auto content = [](const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string path = run() + "/metrics.jsonl", linked = run() + "/metrics-before";
  append(step_line(1) + step_line(2) + step_line(3));
  for (const std::int64_t step : {1, 0}) {
    const std::string before = content(path);
    fs::create_hard_link(path, linked);
    { MetricsLog log(run(), step, {}, false); }
    EXPECT_EQ(content(path), step == 0 ? "" : step_line(1));
    EXPECT_EQ(content(linked), before);
    fs::remove(linked);
  }
}

// Steps of the event files, in their order: those of losses, and those of evaluations as negatives.
std::vector<std::int64_t> steps_in_events(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  std::vector<std::int64_t> steps;
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    for (std::size_t at = 0; at + 12 <= bytes.size();) {
      std::uint64_t length = 0;
      std::memcpy(&length, bytes.data() + at, sizeof(length));
      const std::string event = bytes.substr(at + 12, length);
      const std::int64_t step =
          static_cast<unsigned char>(event[10]);  // after the time, in one byte
      if (event.find("\x04loss") != std::string::npos) steps.push_back(step);
      if (event.find("\x09"
                     "eval_loss") != std::string::npos)
        steps.push_back(-step);
      at += 16 + length;
    }
  }
  return steps;
}

TEST_F(RunHistoryTest, EventFilesGetWhatStartsWithoutThemHaveLeftOut) {
  const auto train = [&](std::int64_t first, std::int64_t last, bool tensorboard) {
    MetricsLog log(run(), first - 1, {}, tensorboard);
    for (StepMetrics step; first <= last; ++first) {
      step.step = first;
      log.write(step);
    }
    log.write(Evaluation{.step = last});
  };
  const std::string events = run() + "/tensorboard";
  train(1, 2, true);
  train(3, 4, false);
  train(4, 5, true);  // the checkpoint is of step 3
  EXPECT_EQ(steps_in_events(events), (std::vector<std::int64_t>{1, 2, -2, 3, 4, 5, -5}));
  train(6, 6, true);
  EXPECT_EQ(steps_in_events(events), (std::vector<std::int64_t>{1, 2, -2, 3, 4, 5, -5, 6, -6}));
  // One that cannot be read stays, and nothing goes on without it.
  fs::create_directory(events + "/events.out.tfevents.9999999999.a");
  EXPECT_THROW(train(7, 7, true), RunFolderError);
  EXPECT_TRUE(fs::exists(events + "/events.out.tfevents.9999999999.a"));
}

TEST_F(RunHistoryTest, TakesALineOnceItIsComplete) {
  const std::string line = step_line(2);
  append(step_line(1) + line.substr(0, 20));
  RunHistory history(run());
  EXPECT_EQ(history.step(), 1);
  append(line.substr(20, line.size() - 21));
  history.update();
  EXPECT_EQ(history.step(), 1);
  append("\n" + step_line(3));
  history.update();
  EXPECT_EQ(history.steps().size(), 3u);
  EXPECT_EQ(history.step(), 3);
  EXPECT_EQ(history.rewrites(), 0);
}

// bad input: `top`: metrics with a line half written, or that are no numbers; a lease with control
// characters | shows what is good; sends no control characters to the terminal | 0
TEST_F(RunHistoryTest, LeavesOutWhatIsNoLineOfOurs) {
  append("{\"step\":1,\"lo\n\n[]\n7\n{\"step\":\"one\",\"loss\":1}\n\xff\xfe\n" + step_line(2));
  const RunHistory history(run());
  ASSERT_EQ(history.steps().size(), 1u);
  EXPECT_EQ(history.step(), 2);
}

TEST_F(RunHistoryTest, ReadsOnlyWhatWasAppended) {
  append(step_line(1, 5.0) + step_line(2));
  RunHistory history(run());
  // The first line in the file changes; who reads on from the second never sees it.
  write("metrics.jsonl", step_line(1, 6.0) + step_line(2) + step_line(3));
  history.update();
  ASSERT_EQ(history.steps().size(), 3u);
  EXPECT_EQ(history.steps()[0].loss, 5.0);
}

TEST_F(RunHistoryTest, StartsAnewWhereAResumedRunCutsBack) {
  append(step_line(1) + step_line(2) + step_line(3) + R"({"step":3,"eval_loss":3.0})" + "\n");
  RunHistory history(run());
  write("metrics.jsonl", step_line(1));  // shorter
  history.update();
  EXPECT_EQ(history.step(), 1);
  EXPECT_TRUE(history.evaluations().empty());
  EXPECT_EQ(history.rewrites(), 1);
  // Longer than before: it went on since.
  write("metrics.jsonl", step_line(1, 7.25) + step_line(2, 8.25) + step_line(3, 9.25));
  history.update();
  ASSERT_EQ(history.steps().size(), 3u);
  EXPECT_EQ(history.steps()[0].loss, 7.25);
  EXPECT_EQ(history.rewrites(), 2);
}

TEST_F(RunHistoryTest, StepsToldTwiceCountAsToldLast) {
  append(step_line(1) + step_line(2, 1.0) + step_line(3) + step_line(2, 4.0));
  const RunHistory history(run());
  ASSERT_EQ(history.steps().size(), 2u);
  EXPECT_EQ(history.steps()[1].loss, 4.0);
}

TEST_F(RunHistoryTest, AveragesBySecondsNotBySteps) {
  StepMetrics fast, slow;
  fast.step_seconds = 1.0;
  fast.units_per_second = 400.0;
  slow.step_seconds = 3.0;
  slow.units_per_second = 200.0;
  slow.wait_data_seconds = 1.0;
  slow.exposed_comm_seconds = 0.5;
  const std::vector<StepMetrics> steps = {fast, slow};
  const StepAverages averages = average(steps);
  EXPECT_EQ(averages.steps, 2);
  EXPECT_EQ(averages.step_seconds, 2.0);
  EXPECT_EQ(averages.units_per_second, 250.0);
  EXPECT_EQ(averages.wait_data_share, 0.25);
  EXPECT_EQ(averages.exposed_comm_share, 0.125);
  EXPECT_EQ(average({}).step_seconds, 0.0);
}

TEST_F(RunHistoryTest, AMemberHasFinishedWhenItSaysSo) {
  write("config.ini", "[run]\nsteps = 10\n[sync]\nmember = a\nevery = 5\n");
  for (int step = 1; step <= 12; ++step) append(step_line(step));
  write("checkpoints/step-00000012.h5", "");
  RunHistory history(run());
  EXPECT_EQ(history.state(), RunState::kStopped);
  EXPECT_EQ(history.total_steps(), 12);
  // How many fit the time is not known before.
  write("config.ini", "[run]\nsteps = 10\n[sync]\nmember = a\n");
  write("checkpoints/step-00000012.h5", "");
  history.update();
  EXPECT_EQ(history.total_steps(), std::nullopt);
  write("events.jsonl", R"({"time":1,"step":12,"event":"finish"})"
                        "\n");
  remove("checkpoints");
  write("checkpoints/step-00000004.h5", "");
  history.update();
  EXPECT_EQ(history.state(), RunState::kFinished);
}

TEST_F(RunHistoryTest, SaysWhatBecomesOfTheRun) {
  append(step_line(1) + step_line(2));
  RunHistory history(run());
  EXPECT_EQ(history.state(), RunState::kStopped);
  EXPECT_FALSE(history.seconds_left());
  EXPECT_FALSE(history.heartbeat_age());

  hold("elsewhere", 42, seconds_now() - 60);
  history.update();
  EXPECT_EQ(history.state(), RunState::kRunning);
  EXPECT_EQ(history.seconds_left(), 8 * 0.5);
  EXPECT_EQ(history.lease()->job, "17");
  EXPECT_NEAR(*history.heartbeat_age(), 60.0, 30.0);

  hold("elsewhere", 42, seconds_now() - 2 * static_cast<std::int64_t>(lease_silence_seconds()));
  history.update();
  EXPECT_EQ(history.state(), RunState::kSilent);
  EXPECT_FALSE(history.seconds_left());

  hold(host_name(), ::getpid(), seconds_now());  // but it says that another process had this number
  history.update();
  EXPECT_EQ(history.state(), RunState::kSilent);

  // A clock ahead of ours.
  hold("elsewhere", 42, seconds_now() + 1000);
  history.update();
  EXPECT_EQ(history.state(), RunState::kRunning);
  EXPECT_EQ(history.heartbeat_age(), 0.0);

  remove("lease");
  for (int step = 3; step <= 10; ++step) append(step_line(step));
  history.update();
  EXPECT_EQ(history.state(), RunState::kFinished);
  write("checkpoints/step-00000005.h5", "");
  history.update();
  EXPECT_EQ(history.state(), RunState::kStopped);  // it ended before it could save the last one
  write("checkpoints/step-00000010.h5", "");
  history.update();
  EXPECT_EQ(history.state(), RunState::kFinished);
  // More steps were asked for.
  write("config.ini", "[run]\nsteps = 20\n");
  history.update();
  EXPECT_EQ(history.state(), RunState::kStopped);
}

TEST_F(RunHistoryTest, FindsTheNewestCheckpointWithoutOpeningIt) {
  RunHistory history(run());
  EXPECT_FALSE(history.checkpoint());
  write("checkpoints/step-00000002.h5", "not HDF5");
  write("checkpoints/step-00000004.h5", "nor this");
  write("checkpoints/step-00000006.h5.1.partial", "");
  set_age("checkpoints/step-00000004.h5", 5000);
  history.update();
  ASSERT_TRUE(history.checkpoint());
  EXPECT_EQ(history.checkpoint()->step, 4);
  EXPECT_EQ(history.checkpoint()->path, run() + "/checkpoints/step-00000004.h5");
  EXPECT_EQ(history.checkpoint()->bytes, 8);
  EXPECT_NEAR(history.checkpoint()->age, 5000.0, 60.0);
  EXPECT_EQ(history.step(), 4);  // all there is to tell by
  append(step_line(1));
  set_age("metrics.jsonl", 300);
  history.update();
  EXPECT_NEAR(*history.metrics_age(), 300.0, 60.0);
}

TEST_F(RunHistoryTest, KeepsWhatItKnowsWhereAFileCannotBeRead) {
  hold("elsewhere", 42, seconds_now());
  append(step_line(1));
  RunHistory history(run());
  write("lease", "{");
  write("config.ini", "[run]\nst");
  remove("metrics.jsonl");
  history.update();
  EXPECT_EQ(history.total_steps(), 10);
  EXPECT_EQ(history.lease()->pid, 42);
  EXPECT_EQ(history.steps().size(), 1u);
}

TEST_F(RunHistoryTest, RefusesWhatIsNoRun) {
  const auto message = [](const std::string& folder) -> std::string {
    try {
      RunHistory history(folder);
    } catch (const RunFolderError& error) {
      return error.what();
    }
    return "none";
  };
  // bad input: `top`: a folder that is not there, or goes away | run: there is no such folder;
  // expected the folder of a run | 5
  EXPECT_EQ(message(run() + "/none"),
            run() + "/none: there is no such folder; expected the folder of a run");
  EXPECT_EQ(message(run() + "/config.ini"),
            run() + "/config.ini: not a folder; expected the folder of a run");
  fs::create_directories(scratch_.path() / "other");
  // bad input: `top`: a file, or a folder of something else | ...: not a run folder: it holds
  // neither config.ini nor metrics.jsonl | 5
  EXPECT_EQ(message(run() + "/other"),
            run() + "/other: not a run folder: it holds neither config.ini nor metrics.jsonl");
  RunHistory history(run());
  for (const fs::directory_entry& entry : fs::directory_iterator(scratch_.path()))
    fs::remove_all(entry.path());
  EXPECT_THROW(history.update(), RunFolderError);
}

}  // namespace
}  // namespace trireme
