// Jobs that cannot be, or are not what their user may think.
#include <fstream>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/limits.h"
#include "trireme/tensor/cuda.h"

#include "support/job_testing.h"
#include "support/temporary_folder.h"

namespace trireme {
namespace {

using testing::Job;
using testing::message_of;

// bad input: `job`: a file of `--schedule.file`, `--cuda.products`, `--comm.network`,
// `--grid.order` or `--nccl.tuner` is missing, or cannot be what it should be | ... as of the start
// | 2
TEST_F(Job, FilesThatItNamesAreReadBefore) {
  const testing::TemporaryFolder folder;
  const std::string file = (folder.path() / "named").string();
  const auto says = [&](const std::string& words) {
    EXPECT_NE(refusal().find(words), std::string::npos) << refusal();
  };
  config_.comm.network = file;
  says("/named: cannot be read");
  config_.comm.network = "auto";
  config_.grid.order = file;
  says("/named: cannot be read");
  config_.grid.order = "auto";
  config_.nccl.tuner = file;
  says("/named: cannot be read");
  config_.nccl.tuner = "off";
  config_.cuda.products = file;
  says("/named: cannot be read");
  std::ofstream(file) << "";
  says("cuda.products " + file + ": ");
  std::ofstream(file) << "{}\n";
  says("/named: has no trireme_products: it is no file of trireme bench products");
  std::filesystem::remove(file);
  config_.cuda.products.clear();
  config_.schedule.name = "table";
  config_.schedule.file = file;
  says("/named: cannot be read");
  std::ofstream(file) << "10 1\n5 0\n";
  says("/named");
  std::ofstream(file) << "0 1\n5 0\n";
  EXPECT_EQ(refusal(), "no error");
}

TEST_F(Job, RefusesGridsThatTheTasksDoNotFill) {
  config_.grid[Axis::kTensor] = 3;
  // bad input: `job`: a grid that nodes x tasks do not fill | 2 nodes x 2 tasks: a grid with
  // tensor=3 needs a multiple of 3 ranks, and there are 4: 3 or 6 would fit; 3 nodes would do |
  // 2
  EXPECT_EQ(refusal(),
            "2 nodes x 2 tasks: a grid with tensor=3 needs a multiple of 3 ranks, and there are "
            "4: 3 or 6 would fit; 3 nodes would do");
  request_.nodes = 5;
  EXPECT_EQ(refusal(),
            "5 nodes x 2 tasks: a grid with tensor=3 needs a multiple of 3 ranks, and there are "
            "10: 9 or 12 would fit; 3 or 6 nodes would do");
  config_.grid.ask_for({2, 1, 1});
  request_.nodes = 4;
  EXPECT_EQ(refusal(),
            "4 nodes x 2 tasks: grid 2 x 1 x 1 needs 2 ranks, and there are 8: take 2, or set "
            "grid.data=8; 1 node would do");
  config_.grid = {};
  config_.grid.islands = 3;
  EXPECT_EQ(refusal(),
            "4 nodes x 2 tasks: grid.islands is 3, which does not divide 8 ranks into equal "
            "islands; 2 would; 3 or 6 nodes would do");
  config_.grid = {};
  config_.grid[Axis::kTensor] = 8;
  request_.nodes = 4;
  request_.tasks_per_node = 4;
  config_.model.keys["heads"] = "4";
  EXPECT_EQ(refusal(),
            "4 heads cannot be split over 8 tensor ranks: grid.tensor must divide model.heads");
}

// bad input: `job`: heads, stages, batches, vocabulary or device that cannot be | as `train` | 2
TEST_F(Job, RefusesModelsAndBatchesThatDoNotFit) {
  request_.nodes = 8;
  EXPECT_EQ(refusal(),
            "8 nodes x 2 tasks: 4 micro-batches a step (batch.global 8 / batch.micro 2) are fewer "
            "than 16 data replicas: each needs one at least");
  config_.grid[Axis::kPipeline] = 16;
  EXPECT_EQ(refusal(),
            "more stages than blocks: grid.pipeline is 16, but the model has 9 blocks; "
            "grid.pipeline can be 1 to 9");
  config_.grid[Axis::kPipeline] = 1;
  config_.batch.global = 9;
  EXPECT_EQ(
      refusal(),
      "batch.global is 9, which is no multiple of batch.micro, 2: set batch.global to 8 or 10, or "
      "batch.micro to 1");
  config_.batch.global = 8;
  config_.data.train.clear();
  EXPECT_EQ(refusal(), "data.train is missing: name what to train on, as in --data.train train.h5");
  config_.data.train = {{"train.h5"}};
  config_.model.keys["vocabulary"] = "50";
  EXPECT_EQ(refusal(),
            "model.vocabulary is 50, but the data has 67 tokens: leave it out, and it follows "
            "the data");
}

// The login node needs none itself.
TEST_F(Job, GpusTakeAProgramWithCuda) {
  const bool has_cuda = !cuda::build_info().toolkit.empty();
  // bad input: `job`: a template for GPUs, by a program without CUDA | template several_nodes_gpu
  // asks for GPUs, but this program was built without CUDA: ... | 2
  EXPECT_EQ(refusal("@NODES@ @GRES@")
                    .find("template chain asks for GPUs, but this program was "
                          "built without CUDA: write the job with one that has") == 0,
            !has_cuda);
  config_.run.device = "cpu";
  EXPECT_EQ(refusal("@NODES@ @GRES@"), "no error");
  config_.run.device = "auto";
  site_.modules = "gcc trireme/1.0-cuda";
  EXPECT_EQ(refusal("@NODES@ @GRES@"), "no error");
  EXPECT_NE(script("@NODES@ @GRES@ @TRIREME@ train").find(" trireme train"), std::string::npos);
  site_.modules.clear();
  config_.run.device = "cuda";
  EXPECT_EQ(refusal(), cuda::build_info().toolkit.empty()
                           ? "run.device is cuda, but this program was built without CUDA: use cpu "
                             "or auto"
                           : "no error");
}

TEST_F(Job, TheDataMayBeOutOfSight) {
  const auto vocabulary = [&] {
    return models::resolve(config_.model, facts_to_check(config_)).data.vocabulary;
  };
  config_.data.train = {{"/no/such/folder/train.h5"}};
  config_.model.keys.erase("vocabulary");
  config_.model.keys.erase("preset");
  EXPECT_EQ(vocabulary(), 50257);
  EXPECT_NO_THROW(plan_job({"own", "@NODES@"}, config_, request_, {}, facts_to_check));
  config_.model.keys["vocabulary"] = "100";
  EXPECT_EQ(vocabulary(), 100);
  config_.model.keys.erase("vocabulary");
  config_.model.keys["preset"] = "llama-160m";
  EXPECT_EQ(vocabulary(), 32000);
}

TEST_F(Job, TakesAsManyNodesAsThereAre) {
  config_.batch.global = 16;
  request_.nodes = {2, 4};
  EXPECT_EQ(script("#SBATCH --nodes=@NODES@\n@FEWEST_NODES@ @MODEL_RANKS@\n"),
            "#SBATCH --nodes=2-4\n1 1\n");
  EXPECT_EQ(plan().points.at(0).grid, (GridShape{8, 1, 1}));
  config_.grid.islands = 2;
  EXPECT_EQ(script("@NODES@ @MODEL_RANKS@\n"), "2-4 2\n");
  EXPECT_EQ(plan().points.at(0).grid, (GridShape{4, 1, 1}));
  config_.grid.islands = 1;
  groups_ = {{"batch", 3, 8, 4000}};
  EXPECT_EQ(refusal(), "no error");
  groups_ = {{"batch", 1, 8, 4000}};
  EXPECT_EQ(refusal(), "--nodes 2-4: partition batch has 1 node");
  groups_.clear();
  // bad input: `job`: a range of nodes where only one number will do | --nodes 2-4: template
  // scaling measures fixed numbers of nodes: ... | 2
  EXPECT_EQ(refusal("@NODES@ @NODE_COUNTS@"),
            "--nodes 2-4: template chain measures fixed numbers of nodes: --nodes 4, and --counts "
            "says which of them");
  config_.grid[kDataAxes] = 4;
  EXPECT_EQ(refusal(),
            "--nodes 2-4: 2 nodes would be a grid of 4 x 1 x 1 (data x pipeline x tensor), and 4 "
            "nodes one of 4 x 2 x 1 (data x pipeline x tensor): only the data dimension can follow "
            "the nodes, so leave grid.data out");
  config_.grid = {};
  config_.grid[Axis::kTensor] = 2;
  config_.grid[Axis::kPipeline] = 3;  // six ranks, of eight, or six, or four
  // bad input: `job`: a range of nodes, on some of which no run could start | --nodes 2-8: no run
  // could start on 5-8 of them: 5 nodes x 2 tasks: 8 micro-batches a step (...) are fewer than 10
  // data replicas: ...; --nodes 2-4 would do | 2
  EXPECT_EQ(refusal(),
            "--nodes 2-4: no run could start on 2 of them: 2 nodes x 2 tasks: no replica of 6 "
            "ranks has room; --nodes 3-4 would do");
  request_.nodes = {3, 4};
  EXPECT_EQ(plan().points.at(0).grid, (GridShape{1, 3, 2}));
  EXPECT_EQ(plan().of_nodes, "--nodes 3-4: a start that gets 4 of them leaves some out");
  request_.nodes = {2, 4};
  config_.grid[Axis::kPipeline] = 5;
  EXPECT_NE(refusal().find("4 nodes x 2 tasks: a grid with pipeline=5 and tensor=2 needs"),
            std::string::npos);
  request_.nodes = {100, static_cast<int>(limits::kRanks)};
  request_.tasks_per_node = 65536;
  EXPECT_NE(refusal().find(" ranks are too many"), std::string::npos) << refusal();
  NodeRange range;
  EXPECT_EQ(read_value("3-12", range, between(1, 99)), "");
  EXPECT_EQ(write_value(range), "3-12");
  EXPECT_NE(read_value("4-2", range, between(1, 99)), "");
  EXPECT_NE(read_value("0-2", range, between(1, 99)), "");
  EXPECT_NE(read_value("2-", range, between(1, 99)), "");
  EXPECT_NE(read_value("-2", range, between(1, 99)), "");
}

// Every number of nodes is looked at, not only the ends of the range.
TEST_F(Job, TellsOnWhichNodesNoRunCouldStart) {
  config_.batch.global = 16;
  request_.nodes = {2, 8};
  EXPECT_EQ(refusal(),
            "--nodes 2-8: no run could start on 5-8 of them: 5 nodes x 2 tasks: 8 micro-batches a "
            "step (batch.global 16 / batch.micro 2) are fewer than 10 data replicas: each needs "
            "one at least; --nodes 2-4 would do");
  EXPECT_EQ(refusal("@NODES@ @ISLANDS@"),
            "template chain needs --islands: the numbers of the "
            "run's members, as in 1-8");
  request_.nodes = {2, 4};
  EXPECT_EQ(plan().of_nodes, "");
  config_.batch.runs = 4;  // which 6 replicas do not divide
  EXPECT_EQ(refusal(),
            "--nodes 2-4: no run could start on 3-4 of them: 3 nodes x 2 tasks: batch.runs is 4, "
            "but 8 micro-batches a step (batch.global / batch.micro) on 6 data replicas can be 6 "
            "runs; --nodes 2 would do");
  config_.batch.runs.reset();
  config_.grid.ask_for({4, 1, 1});
  EXPECT_EQ(refusal(),
            "--nodes 2-4: no run could start on 3-4 of them: 3 nodes x 2 tasks: grid 4 x 1 x 1 "
            "needs 4 ranks, and there are 6: take 4, or set grid.data=6; --nodes 2 would do");
  config_.grid = {};
  config_.grid[Axis::kTensor] = 4;
  request_.nodes = {2, 5};
  EXPECT_EQ(plan().of_nodes, "--nodes 2-5: a start that gets 3, 5 of them leaves some out");
  request_.nodes = {3, 6};
  request_.min_nodes = 3;
  EXPECT_EQ(refusal(),
            "--nodes 3-6: no run could start on 3 of them: 3 nodes x 2 tasks: 2 can be used, "
            "fewer than --min-nodes 3; --nodes 4-6 would do");
  request_.min_nodes = 1;
  EXPECT_EQ(job_remarks({.points = {}, .of_nodes = "some"}), std::vector<std::string>{"some"});
  // Sync batch norms: so many replicas as divide the micro-batches, and the other nodes are left
  // out.
  config_.grid = {};
  config_.model = {"mobilenet_v2", {{"preset", "mobilenet_v2-cifar"}, {"batch_norm", "sync"}}};
  request_.nodes = {1, 4};
  EXPECT_EQ(plan().of_nodes, "--nodes 1-4: a start that gets 3 of them leaves some out");
}

TEST_F(Job, MembersOfARunAreAnArrayOfJobs) {
  const std::string islands = "@NODES@ @ISLANDS@ @RUN_FOLDER@";
  request_.islands.array = "1-8";
  config_.sync.outer = "nesterov";
  EXPECT_EQ(script(islands + " @LOG@\n# @OPTIONS@\n").find("2 1-8 run %x-%A_%a.out\n"), 0);
  EXPECT_EQ(script(islands + "\n# @OPTIONS@\n").find("member"), std::string::npos);
  // bad input: `job`: a quorum above the members | sync.quorum is 9, but with --islands 1-8 the run
  // has 8 members at most: give less | 2
  config_.sync.quorum = 9;
  EXPECT_EQ(refusal(islands),
            "sync.quorum is 9, but with --islands 1-8 the run has 8 members at most: give less");
  request_.islands.array = "3,9-10";
  EXPECT_EQ(refusal(islands), "no error");
  config_.sync.quorum = 1;
  request_.islands.array = "1-8";
  // bad input: `job`: `--islands` is missing, is none, or is for a template that is one job |
  // --islands 1-8 is given, but template chain has one job for a run: use islands | 2
  EXPECT_EQ(refusal(),
            "--islands 1-8 is given, but template chain has one job for a run: use islands");
  config_.grid.islands = 2;
  // bad input: `job`: members of a run with islands of their own, or with a name of their own |
  // grid.islands is 2, but a job with sync.member is one island: leave it out; sync.member is a,
  // but template islands names the members itself, island-1 and so on: leave it out | 2
  EXPECT_EQ(refusal(islands),
            "grid.islands is 2, but a job with sync.member is one island: leave it out");
  config_.grid.islands = 1;
  config_.sync.member = "a";
  EXPECT_EQ(refusal(islands),
            "sync.member is a, but template chain names the members itself, island-1 and so on: "
            "leave it out");
  request_.islands.array.clear();
  EXPECT_EQ(refusal("@NODES@ @RUN_FOLDER@"),
            "sync.member is a, but the job of template chain carries its run alone, and islands "
            "does not: leave it out");
  EXPECT_EQ(refusal(), "no error");  // a template of one's own may know what it does
}

TEST_F(Job, NumbersOfMembersAreThoseOfAnArray) {
  const auto read = [](std::string_view text) {
    IslandNumbers numbers;
    const std::string problem = read_value(text, numbers, between(1, 1000));
    EXPECT_EQ(problem.empty(), !write_value(numbers).empty());
    return problem.empty() ? write_value(numbers) : "problem";
  };
  EXPECT_EQ(read("8"), "1-8");
  EXPECT_EQ(read("1"), "1-1");
  EXPECT_EQ(read("9-10"), "9-10");
  EXPECT_EQ(read("9-9"), "9-9");
  EXPECT_EQ(read("5,1,3"), "1,3,5");
  EXPECT_EQ(read("7,1-4"), "1-4,7");
  for (const char* none : {"", "0", "-1", "1-", "4-2", "1,,2", "1,", "1-4,3", "2,2", "a", "1-1001",
                           "1:3", "0-4", "1-8%2"}) {
    EXPECT_EQ(read(none), "problem") << none;
  }
}

TEST_F(Job, RefusesMoreThanAPartitionHas) {
  groups_ = {{"batch", 3, 8, 4000}, {"batch", 1, 16, 4000}};
  config_.batch.global = 24;
  request_.nodes = 4;
  request_.cpus_per_task = 4;
  EXPECT_EQ(refusal(), "no error");
  request_.nodes = 5;
  // bad input: `job`: more nodes or CPUs than the partition has | --nodes 3: partition long has 2
  // nodes | 2
  EXPECT_EQ(refusal(), "--nodes 5: partition batch has 4 nodes");
  request_.nodes = 2;
  request_.cpus_per_task = 5;
  EXPECT_EQ(refusal(), "--nodes 2: partition batch has 1 node of 10 CPUs or more");
  request_.cpus_per_task = 9;
  EXPECT_EQ(refusal(),
            "2 tasks of 9 cores need 18 CPUs on a node, but no node of partition batch has more "
            "than 16: fewer --tasks-per-node or --cpus-per-task");
  groups_.push_back({"big", 2, 64, 4000});  // the job may go to either
  EXPECT_EQ(refusal(), "no error");
}

TEST_F(Job, RefusesATimeLimitThatLeavesNoTime) {
  const char* chain = "@NODES@ @GRACE@";
  request_.time = "2";
  // bad input: `job`: a time limit that is none, or not above `--grace` and `checkpoint.margin` |
  // --grace 120: the job has only 120 seconds (--time 2), and would be stopped as it starts: ... |
  // 2
  EXPECT_EQ(refusal(chain),
            "--grace 120: the job has only 120 seconds (--time 2), and would be stopped as it "
            "starts: more --time, or less --grace");
  EXPECT_EQ(refusal(), "no error");  // nothing is signalled there
  request_.time = "0:10";
  EXPECT_EQ(refusal(),
            "checkpoint.margin 10: the job has only 10 seconds (--time 0:10), and would make one "
            "step each time it starts: more --time, or less checkpoint.margin");
  request_.time = "infinite";
  EXPECT_EQ(refusal(chain), "no error");
  request_.grace = 70000;
  EXPECT_EQ(refusal(chain), "--grace 70000: Slurm takes at most 65535 seconds");
  request_.time = "1h";
  EXPECT_EQ(refusal(),
            "--time 1h: expected minutes, minutes:seconds, hours:minutes:seconds, days-hours or "
            "days-hours:minutes, as in 90 or 1-12:00");
}

TEST_F(Job, RemarksWhatTheUserShouldKnow) {
  // bad input: `job`: data in a folder that is not here; `grid.data` that leaves ranks to the
  // pipeline | a line that says so | 0
  const auto remarks = [&] { return job_remarks(plan()); };
  config_.data.train = {{"/dev/train.h5"}};
  // bad input: `job`: data that is missing from a folder that is here | data.train data/more.h5:
  // there is no such file in ...; `trireme prepare` makes it | 3
  EXPECT_EQ(message_of<DataError>(remarks),
            "data.train /dev/train.h5: there is no such file in /dev; `trireme prepare` makes it");
  config_.data.train = {{"/no/such/train.h5"}};
  config_.data.validation = {{"/no/such/more.h5"}};
  EXPECT_EQ(remarks(), std::vector<std::string>(
                           {"data.train /no/such/train.h5: there is no folder /no/such on this "
                            "host; the nodes must see it",
                            "data.validation /no/such/more.h5: there is no folder /no/such on this "
                            "host; the nodes must see it"}));
  config_.data.train = {{"/dev/null"}};
  config_.data.validation.clear();
  EXPECT_EQ(remarks(), std::vector<std::string>());
  config_.grid[kDataAxes] = 2;
  EXPECT_EQ(remarks(), std::vector<std::string>(
                           {"grid.data is 2, so the 4 ranks are used as a grid of 2 x 2 x "
                            "1 (data x pipeline x tensor): grid.pipeline became 2; "
                            "without grid.data there would be 4 replicas"}));
  config_.grid[Axis::kPipeline] = 1;
  EXPECT_NE(remarks().at(0).find("grid.tensor became 2; without grid.data there would be 4"),
            std::string::npos);
  config_.grid[Axis::kTensor] = 2;
  EXPECT_EQ(remarks(), std::vector<std::string>());
}

TEST_F(Job, RefusesSweepsThatAreNone) {
  EXPECT_EQ(refusal("@NODES@ @POINTS@"),
            "template chain needs --sweep KEY=VALUE,VALUE: what to vary");
  for (const char* sweep : {"optim.lr", "optim.lr=", "=1", "run.seed=1 x"}) {
    request_.sweep = sweep;
    // bad input: `job`: a sweep that is none, of an unknown key, or for a template that is one run
    // | job.sweep '...': expected key=value,value, as in optim.lr=1e-3,3e-4 | 2
    EXPECT_NE(refusal("@NODES@ @POINTS@").find("expected key=value,value, as in"),
              std::string::npos)
        << refusal("@NODES@ @POINTS@");
  }
  request_.sweep = "optim.lrr=1";
  EXPECT_EQ(refusal("@NODES@ @POINTS@"), "unknown flag --optim.lrr; did you mean --optim.lr?");
  request_.sweep = "grid.tensor=1,3";
  EXPECT_NE(refusal("@NODES@ @POINTS@").find("a grid with tensor=3 needs"), std::string::npos);
  EXPECT_EQ(refusal("@NODES@"), "--sweep is given, but template chain is one run: use sweep");
  // bad input: `job`: a sweep over families of models | job.sweep: model.family cannot vary, since
  // the other keys model.* follow from it: make a job with --model.family gpt and one with
  // --model.family resnet | 2
  request_.sweep = "model.family=gpt,resnet";
  EXPECT_EQ(
      refusal("@NODES@ @POINTS@"),
      "job.sweep: model.family cannot vary, since the other keys model.* follow from it: make "
      "a job with --model.family gpt and one with --model.family resnet");
  // bad input: `job`: a sweep over folders | job.sweep: run.folder cannot vary: each point has a
  // folder of its own in it, as run/point-0 | 2
  request_.sweep = "run.folder=a,b";
  EXPECT_EQ(refusal("@NODES@ @POINTS@"),
            "job.sweep: run.folder cannot vary: each point has a folder of its own in it, as "
            "run/point-0");
  request_.sweep = "run.start_from=$TMPDIR/a,b";
  EXPECT_NE(refusal("@NODES@ @POINTS@").find("only the job itself knows its $TMPDIR"),
            std::string::npos);
  request_.sweep = "run.seed=";
  for (int i = 0; i < 1001; ++i) request_.sweep += std::to_string(i) + ",";
  EXPECT_EQ(refusal("@NODES@ @POINTS@"), "job.sweep has more than 1000 points");
}

TEST_F(Job, RefusesNodeCountsAndNodesThatTheTemplateCannotUse) {
  for (const char* counts : {"0", "3", "1,x", "-1"}) {
    request_.counts = counts;
    EXPECT_NE(refusal("@NODES@ @NODE_COUNTS@").find("is not a number of nodes from 1 to 2"),
              std::string::npos);
  }
  // bad input: `job`: node counts beyond the job's nodes; several nodes for `single_node` |
  // template single_node is for one node, but --nodes is 2: use several_nodes | 2
  EXPECT_EQ(refusal("one"), "template chain is for one node, but --nodes is 2: use several_nodes");
}

TEST_F(Job, RefusesValuesThatCannotStandInAScript) {
  request_.name = "my job";
  EXPECT_EQ(message_of([&] { check_job_keys(request_); }),
            "job.name = my job: the character ' ' cannot stand there; letters, digits and "
            "_-+=.,:/%@[] can");
  request_.name = "job";
  request_.partition = "a;b";
  EXPECT_NE(message_of([&] { check_job_keys(request_); }).find("job.partition = a;b"),
            std::string::npos);
  request_.partition.reset();
  request_.srun = "--label; rm";
  EXPECT_NE(message_of([&] { check_job_keys(request_); }).find("job.srun = --label; rm"),
            std::string::npos);
  request_.srun.clear();
  site_.variables = "UCX_TLS";
  EXPECT_EQ(message_of([&] { script("@NODES@"); }),
            "environment.variables: 'UCX_TLS' is not NAME=VALUE, as in UCX_TLS=tcp,self");
}

}  // namespace
}  // namespace trireme
