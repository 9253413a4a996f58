// What the data of all tasks on texts have in common.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/io/dataset.h"
#include "trireme/tasks/task.h"

namespace trireme::tasks {

// Opens the shards of a request, as samples of so many tokens. Collective over comm.
// `begins_windows` is that of DatasetOptions. Throws the errors of TokenDataset::open.
std::shared_ptr<const TokenDataset> open_text(const DataRequest& request, std::int64_t context,
                                              Communicator& comm, bool begins_windows = false);

class TextData : public TaskData {
 public:
  std::uint64_t samples() const final { return data_->samples(); }
  models::DataFacts facts() const final { return {.vocabulary = vocabulary_}; }
  std::string description() const final;
  std::string contents() const final { return data_->contents(); }
  std::vector<DataMark> encoding() const final { return encoding_; }
  void check_fits(const TaskData& other) const final;
  void check_trained(const TrainedOn& model) const final;
  std::string remark_on(const TrainedOn& model) const final;
  std::vector<std::string> paths() const final;
  TokenizerPtr tokenizer() const final { return data_->tokenizer(); }

 protected:
  // `vocabulary`: of the model, where the task adds tokens to the tokenizer's.
  TextData(std::shared_ptr<const TokenDataset> data, std::optional<std::int32_t> vocabulary);

  const TokenDataset& data() const { return *data_; }
  const std::shared_ptr<const TokenDataset>& shared_data() const { return data_; }

 private:
  std::shared_ptr<const TokenDataset> data_;
  std::int32_t vocabulary_;
  std::vector<DataMark>
      encoding_;  // made once, since it hashes all tokens and each checkpoint asks
};

}  // namespace trireme::tasks
