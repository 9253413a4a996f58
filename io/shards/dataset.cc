#include "trireme/io/dataset.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"

#include "io/files/open_files.h"
#include "io/shards/sample_places.h"
#include "io/shards/shard_headers.h"
#include "io/shards/token_file.h"

namespace trireme {
namespace {

constexpr std::int64_t kMaxContext = std::int64_t{1} << 30;

std::uint64_t samples_of(const TokenShardInfo& info, const DatasetOptions& options) {
  const std::int64_t T = options.context;
  const std::int64_t count =
      options.order == SampleOrder::kShuffled ? (info.tokens - 1) / T : (info.tokens + T - 1) / T;
  if (count == 0) {
    throw DataError(
        fmt::format("{}: {} tokens are less than one sample; one of {} tokens of text needs {}",
                    info.path, info.tokens, T, T + 1));
  }
  return static_cast<std::uint64_t>(count);
}

void check_options(const DatasetOptions& options) {
  if (options.context < 1 || options.context > kMaxContext) {
    throw ConfigError(
        fmt::format("a context of {} tokens; expected 1 to {}", options.context, kMaxContext));
  }
}

}  // namespace

class TokenDataset::Impl {
 public:
  Impl(ShardHeaders<TokenShardInfo> headers, DatasetOptions options)
      : options_(std::move(options)),
        headers_(std::move(headers)),
        places_(options_.order, headers_.parts, samples_by_shard(), options_.seed),
        files_(headers_.shards) {
    const TokenShardInfo& first = headers_.shards.front();
    const TokenizerPtr& open = options_.tokenizer;
    const bool same = open && open->kind() == first.tokenizer_kind &&
                      open->model() == first.tokenizer_model &&
                      open->begin_of_text() == first.begin_of_text;
    tokenizer_ =
        same ? open
             : make_tokenizer(first.tokenizer_kind, first.tokenizer_model, first.begin_of_text);
    if (tokenizer_->vocabulary() != first.vocabulary) {
      throw DataError(
          fmt::format("{}: the header promises a vocabulary of {}, its tokenizer has {}",
                      first.path, first.vocabulary, tokenizer_->vocabulary()));
    }
    if (tokenizer_->end_of_text() != first.end_of_text) {
      throw DataError(
          fmt::format("{}: the header says that end of text is token {}, its tokenizer says {}",
                      first.path, first.end_of_text, tokenizer_->end_of_text()));
    }
  }

  Place place_of(std::uint64_t n) const {
    const SamplePlaces::Place place = places_.place_of(n);
    return {place.shard, place.sample};
  }

  // Fills one row.
  void read(std::uint64_t sample, std::span<std::int32_t> tokens,
            std::span<std::int32_t> targets) const {
    const Place place = place_of(sample);
    const std::int64_t T = options_.context;
    const std::int64_t all = headers_.shards[place.shard].tokens;
    std::vector<std::int32_t> run(static_cast<std::size_t>(T) + 1, end_of_text());
    const std::int64_t begin = static_cast<std::int64_t>(place.sample) * T;
    if (options_.order == SampleOrder::kShuffled) {
      files_.use(place.shard)->read(begin, run);
    } else {
      // Read from one token earlier: each input comes before the target that it predicts.
      const std::int64_t from = std::max<std::int64_t>(begin - 1, 0);
      const std::int64_t to = std::min(begin + T, all);
      files_.use(place.shard)
          ->read(from, std::span(run).subspan(static_cast<std::size_t>(from - begin + 1),
                                              static_cast<std::size_t>(to - from)));
    }
    if (const auto begins = options_.begins_windows ? tokenizer_->begin_of_text() : std::nullopt) {
      run.front() = *begins;
    }
    std::copy(run.begin(), run.end() - 1, tokens.begin());
    std::copy(run.begin() + 1, run.end(), targets.begin());
    const std::int64_t real =
        std::min(T, options_.order == SampleOrder::kShuffled ? T : all - begin);
    std::fill(targets.begin() + real, targets.end(), -1);
    if (options_.begins_windows) leave_out_begins(targets);
    if (real < T) std::fill(tokens.begin() + real, tokens.end(), end_of_text());
  }

  // No text says that one begins.
  void leave_out_begins(std::span<std::int32_t> targets) const {
    const auto begins = tokenizer_->begin_of_text();
    if (begins && *begins != end_of_text()) std::ranges::replace(targets, *begins, -1);
  }

  std::int32_t end_of_text() const { return tokenizer_->end_of_text(); }
  std::uint64_t samples() const { return places_.samples(); }
  std::int64_t sum(std::int64_t TokenShardInfo::*member) const {
    std::int64_t total = 0;
    for (const TokenShardInfo& info : headers_.shards) total += info.*member;
    return total;
  }
  std::string contents() const { return contents_of(headers_); }
  const DatasetOptions& options() const { return options_; }
  const TokenizerPtr& tokenizer() const { return tokenizer_; }
  const std::vector<TokenShardInfo>& shards() const { return headers_.shards; }

 private:
  std::vector<std::uint64_t> samples_by_shard() const {
    std::vector<std::uint64_t> samples;
    for (const TokenShardInfo& info : headers_.shards)
      samples.push_back(samples_of(info, options_));
    return samples;
  }

  DatasetOptions options_;
  ShardHeaders<TokenShardInfo> headers_;
  SamplePlaces places_;
  mutable OpenFiles<TokenShardInfo, TokenFile> files_;
  TokenizerPtr tokenizer_;
};

TokenDataset::TokenDataset(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TokenDataset::~TokenDataset() = default;

std::shared_ptr<const TokenDataset> TokenDataset::open(const DatasetOptions& options) {
  check_options(options);
  return std::shared_ptr<const TokenDataset>(new TokenDataset(std::make_unique<Impl>(
      read_shard_headers<TokenShardInfo>(options.data, options.split), options)));
}

std::shared_ptr<const TokenDataset> TokenDataset::open(const DatasetOptions& options,
                                                       Communicator& comm) {
  check_options(options);
  const std::string packed = comm.broadcast_text(
      comm.rank() == 0 ? pack_shard_headers<TokenShardInfo>(options.data, options.split) : "");
  return std::shared_ptr<const TokenDataset>(new TokenDataset(
      std::make_unique<Impl>(unpack_shard_headers<TokenShardInfo>(packed), options)));
}

std::uint64_t TokenDataset::samples() const {
  return impl_->samples();
}
std::int64_t TokenDataset::context() const {
  return impl_->options().context;
}
std::int64_t TokenDataset::tokens() const {
  return impl_->sum(&TokenShardInfo::tokens);
}
std::int64_t TokenDataset::original_bytes() const {
  return impl_->sum(&TokenShardInfo::original_bytes);
}
std::int32_t TokenDataset::vocabulary() const {
  return impl_->tokenizer()->vocabulary();
}
std::int32_t TokenDataset::end_of_text() const {
  return impl_->end_of_text();
}
TokenizerPtr TokenDataset::tokenizer() const {
  return impl_->tokenizer();
}
const std::vector<TokenShardInfo>& TokenDataset::shards() const {
  return impl_->shards();
}
std::string TokenDataset::contents() const {
  return impl_->contents();
}
TokenDataset::Place TokenDataset::place_of(std::uint64_t sample) const {
  return impl_->place_of(sample);
}

TokenBatch TokenDataset::read(std::span<const std::uint64_t> samples, bool with_first_key) const {
  const auto T = static_cast<std::size_t>(context());
  TokenBatch batch;
  batch.samples.assign(samples.begin(), samples.end());
  batch.tokens.resize(samples.size() * T);
  batch.targets.resize(samples.size() * T);
  if (with_first_key) batch.first_key.resize(samples.size() * T);
  for (std::size_t row = 0; row < samples.size(); ++row) {
    const auto tokens = std::span(batch.tokens).subspan(row * T, T);
    impl_->read(samples[row], tokens, std::span(batch.targets).subspan(row * T, T));
    if (!with_first_key) continue;
    // A document starts after an end of text, which belongs to the document that it ends.
    std::int32_t first = 0;
    for (std::size_t i = 0; i < T; ++i) {
      batch.first_key[row * T + i] = first;
      if (tokens[i] == end_of_text()) first = static_cast<std::int32_t>(i) + 1;
    }
  }
  return batch;
}

}  // namespace trireme
