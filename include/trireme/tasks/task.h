// Tasks: what a model is trained for. A task says what the data are, how samples become a
// micro-batch, in which unit progress is told, and which measures an evaluation has.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/io/batch_reader.h"
#include "trireme/io/dataset.h"
#include "trireme/io/image_transform.h"
#include "trireme/models/family.h"
#include "trireme/nn/evaluation_sums.h"
#include "trireme/nn/host_micro_batch.h"
#include "trireme/ops/context.h"
#include "trireme/tasks/unit.h"

namespace trireme::tasks {

// What data are, for those who compare them: a checkpoint keeps it.
struct DataMark {
  std::string attribute;  // of checkpoints
  std::string setting;    // what a user calls it
  std::string value;
  bool is_told = false;  // a difference is told, and no reason to stop
};
// What they say under that attribute; empty: nothing.
std::string mark_of(const std::vector<DataMark>& marks, std::string_view attribute);

// A model, as its checkpoint tells of the data that it was trained on.
struct TrainedOn {
  std::string origin;                // the checkpoint, for messages
  models::DataFacts facts = {};      // that the model has room for
  std::vector<DataMark> marks = {};  // TaskData::encoding of the data; perhaps others too
};

// A figure of an evaluation, with its name for people.
struct Measure {
  std::string name, value;
};

// What is opened, and how it is read.
struct DataRequest {
  std::vector<WeightedPath> paths;
  bool training = true;    // shuffled, from the split `train`; else in order, `validation`
  bool any_split = false;  // all shards of a folder, whatever their split
  Shape sample;            // of a sample's input: models::sample_shape
  std::uint64_t seed = 1;  // of the order, and of what is drawn for samples
  // Text: attention does not cross the borders of documents; a masked sample ends with its own.
  bool masks_documents = false;
  double mask_share = 0.15;  // masked texts: of the tokens that are hidden
  // Text: that of other data that are open, which need not be made again if these have the same.
  TokenizerPtr tokenizer = {};
  // Pictures, in training: what happens to them. Sizes and normalisation follow from the model and
  // the data.
  ImageTransform augmentation = {};
  int threads = 1;  // pictures: how many read and transform them
  // TaskData::encoding of the data that the model was trained on, for uses other than training.
  // What they say of the input counts, not what these data say: pictures are normalised by it.
  std::vector<DataMark> trained_on = {};
};

// What micro-batches are read for.
struct ReadFor {
  bool training = true;
  // Whether this rank's blocks read the model's input, and the targets: those of the first and of
  // the last stage do. A task may leave out what nobody reads.
  bool inputs = true, targets = true;
};

// Reads the micro-batches of a run's steps ahead of their use, on threads of its own.
class StepReader {
 public:
  virtual ~StepReader() = default;
  // Waits until the next step, which the plan must have, begins to be there. Rethrows what a thread
  // threw there.
  virtual void read() = 0;
  // Waits for the rest of the step and returns its micro-batches, in the order of its samples. Call
  // it once for each step. Rethrows what a thread threw.
  virtual std::vector<nn::MicroBatch> micro_batches(ops::Context& ctx) = 0;
  virtual double wait_seconds() const = 0;  // that both have waited for data, in total
};

// Data that are open.
class TaskData {
 public:
  virtual ~TaskData() = default;
  virtual std::uint64_t samples() const = 0;    // in one pass over all
  virtual models::DataFacts facts() const = 0;  // for the model
  virtual std::string description() const = 0;  // "3.2M tokens, vocabulary 300"
  virtual std::string contents() const = 0;     // without paths; equal for equal data
  // How they were encoded, in a way that a model depends on.
  virtual std::vector<DataMark> encoding() const = 0;
  // Throws DataError where a model trained on these data cannot be evaluated on `other`.
  virtual void check_fits(const TaskData& other) const = 0;
  // Throws DataError where these data cannot be what the model sees.
  virtual void check_trained(const TrainedOn& model) const = 0;
  // What differs from the data of that model and is no reason to stop; empty: nothing.
  virtual std::string remark_on(const TrainedOn& /*model*/) const { return ""; }
  virtual std::vector<std::string> paths() const = 0;  // of the files
  // The tokenizer of texts; null for other data.
  virtual TokenizerPtr tokenizer() const { return nullptr; }
  // What an evaluation of all of these data tells, a row for each figure.
  virtual std::vector<Measure> figures(const nn::EvaluationSums& sums) const = 0;

  // `plan` gives the samples of each step, which the reader cuts into micro-batches of `micro`; all
  // steps have equally many. The last micro-batch of a step may have fewer samples: then it is
  // filled up with padding, which counts nowhere. The plan is also asked for the first step before
  // this returns. The reader keeps the data open.
  virtual std::unique_ptr<StepReader> read_steps(BatchPlan plan, std::int64_t micro,
                                                 const ReadFor& what) const = 0;
};

// Stateless.
class Task {
 public:
  virtual ~Task() = default;
  virtual std::string_view name() const = 0;
  // Collective over comm. Throws the errors of the data's reader, the same on every rank.
  virtual std::shared_ptr<const TaskData> open(const DataRequest& request,
                                               Communicator& comm) const = 0;
  // Returns what data that are not opened say about a model, by the first shard of `paths` that is
  // a file on this host: the ranks of a run may see other file systems. Nothing where there is
  // none. Reads only a header. Throws DataError for a file that is damaged or no such shard.
  virtual models::DataFacts facts_on_this_host(const std::vector<WeightedPath>& paths) const = 0;
  // The unit of progress, and how many of them a sample is.
  virtual Unit unit() const = 0;
  virtual std::int64_t units_of_sample(const Shape& sample) const = 0;
  // What users call samples, and what they say of the size of one: "sequences", "128".
  virtual std::string_view samples_name() const = 0;
  virtual std::string size_of(const Shape& sample) const = 0;
  // What an evaluation says: "loss 2.3026 over 640 tokens, perplexity 10.00".
  virtual std::string measures(const nn::EvaluationSums& sums) const = 0;
  // How many micro-batches a reader of steps holds at most, besides those that it has returned,
  // where a step has so many on this rank: for dry runs. 0 where that is little.
  virtual int most_read_ahead(const DataRequest& /*request*/, int /*micro_batches*/) const {
    return 0;
  }
  // A micro-batch of the samples that open(request) would read for `what`, whose contents are
  // undefined: for dry runs. Reads nothing.
  virtual nn::HostMicroBatch blank_batch(ops::Context& ctx, const DataRequest& request,
                                         std::int64_t micro, const ReadFor& what) const = 0;
  // A micro-batch of a training step that needs no data. `number` tells micro-batches apart.
  virtual nn::MicroBatch made_up_batch(ops::Context& ctx, const models::Model& model, int number,
                                       std::int64_t micro) const = 0;
};

// "32 sequences of 128".
std::string samples_text(const Task& task, std::int64_t samples, const Shape& sample);

// The registry. Throws ConfigError for an unknown name; the message lists the tasks.
const Task& find_task(std::string_view name);
// The task that models of the family are trained for.
const Task& task_of(const models::ModelRequest& model);

}  // namespace trireme::tasks
