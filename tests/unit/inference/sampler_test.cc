#include "trireme/inference/sampler.h"

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/inference/generator.h"

namespace trireme {
namespace {

constexpr int kDraws = 20000;

// Share of each token in many draws.
std::map<std::int32_t, double> shares(const std::vector<float>& logits,
                                      const SamplingOptions& options) {
  std::map<std::int32_t, double> counts;
  for (int i = 0; i < kDraws; ++i) {
    ++counts[sample_token(logits, options, sampling_uniform(5, 0, static_cast<std::uint64_t>(i)))];
  }
  for (auto& [token, share] : counts) share /= kDraws;
  return counts;
}

std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + 3.0));
  return logits;
}

// Five standard deviations of a share of kDraws.
double tolerance(double p) {
  return 5.0 * std::sqrt(p * (1.0 - p) / kDraws);
}

void expect_shares(const std::vector<float>& logits, const SamplingOptions& options,
                   const std::map<std::int32_t, double>& expected) {
  const auto observed = shares(logits, options);
  EXPECT_EQ(observed.size(), expected.size());
  for (const auto& [token, p] : expected) {
    ASSERT_TRUE(observed.contains(token)) << "token " << token;
    EXPECT_NEAR(observed.at(token), p, tolerance(p)) << "token " << token;
  }
}

const std::vector<float> kLogits = logits_of({0.1, 0.4, 0.05, 0.3, 0.15});

TEST(Sampler, DrawsByProbability) {
  expect_shares(kLogits, {}, {{0, 0.1}, {1, 0.4}, {2, 0.05}, {3, 0.3}, {4, 0.15}});
}

TEST(Sampler, TemperatureRaisesProbabilitiesToItsInverse) {
  double sum = 0.0;
  const std::vector<double> p = {0.1, 0.4, 0.05, 0.3, 0.15};
  for (const double x : p) sum += x * x;
  std::map<std::int32_t, double> expected;
  for (std::size_t i = 0; i < p.size(); ++i) expected[static_cast<int>(i)] = p[i] * p[i] / sum;
  expect_shares(kLogits, {.temperature = 0.5}, expected);
}

TEST(Sampler, TopKKeepsTheLikeliest) {
  expect_shares(kLogits, {.top_k = 2}, {{1, 0.4 / 0.7}, {3, 0.3 / 0.7}});
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  expect_shares(kLogits, {.top_p = 0.69}, {{1, 0.4 / 0.7}, {3, 0.3 / 0.7}});
  expect_shares(kLogits, {.top_p = 0.71}, {{1, 0.4 / 0.85}, {3, 0.3 / 0.85}, {4, 0.15 / 0.85}});
  expect_shares(kLogits, {.top_p = 0.01}, {{1, 1.0}});
  // After top_k the probabilities are those of its tokens: 4/7 reach 0.57, which 0.4 does not.
  expect_shares(kLogits, {.top_k = 2, .top_p = 0.57}, {{1, 1.0}});
  // After the temperature too: of the squares, 0.16 / 0.285 reach a half.
  expect_shares(kLogits, {.temperature = 0.5, .top_p = 0.5}, {{1, 1.0}});
}

TEST(Sampler, GreedyTakesTheLowestOfEquals) {
  const std::vector<float> tied = {1.0f, 7.0f, 7.0f, 2.0f};
  for (const double uniform : {1e-9, 0.5, 1.0}) {
    EXPECT_EQ(sample_token(tied, {.temperature = 0.0}, uniform), 1);
    EXPECT_EQ(sample_token(tied, {.top_k = 1}, uniform), 1);
  }
}

TEST(Sampler, ExtremesStayInRange) {
  std::vector<float> wide(1000, -80.0f);
  wide[999] = 80.0f;
  EXPECT_EQ(sample_token(wide, {.temperature = 1e-3}, 1.0), 999);
  EXPECT_EQ(sample_token(wide, {}, 1.0), 999);
  EXPECT_EQ(sample_token(kLogits, {}, 1.0), 4);
  EXPECT_EQ(sample_token(kLogits, {}, 1e-12), 0);
  EXPECT_EQ(sample_token(kLogits, {.top_k = 1000}, 1e-12), 0);
  EXPECT_THROW(sample_token(std::vector{1.0f, std::numeric_limits<float>::quiet_NaN()}, {}, 0.5),
               InternalError);
}

TEST(Sampler, DrawsDifferBySeedPromptAndPosition) {
  std::set<double> draws;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    for (std::uint64_t prompt = 0; prompt < 3; ++prompt) {
      for (std::uint64_t position = 0; position < 3; ++position) {
        const double draw = sampling_uniform(seed, prompt, position);
        EXPECT_EQ(draw, sampling_uniform(seed, prompt, position));
        EXPECT_GT(draw, 0.0);
        EXPECT_LE(draw, 1.0);
        draws.insert(draw);
      }
    }
  }
  EXPECT_EQ(draws.size(), 27u);
}

TEST(Utf8Stream, ShowsWholeCharactersOnly) {
  const std::string text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";  // 1, 2, 3 and 4 bytes
  Utf8Stream stream;
  std::vector<std::string> shown;
  for (const char byte : text) {
    const std::string now = stream.add({&byte, 1});
    if (!now.empty()) shown.push_back(now);
  }
  EXPECT_EQ(shown,
            (std::vector<std::string>{"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "z"}));
  EXPECT_EQ(stream.rest(), "");
}

TEST(Utf8Stream, LosesNothing) {
  const std::string text = "\x80\xff\xe2\x82X\xc3\xc3\xa9\xf0\x9f";  // mostly not UTF-8
  Utf8Stream stream;
  std::string shown;
  for (const char byte : text) shown += stream.add({&byte, 1});
  EXPECT_LT(shown.size(), text.size());  // the last character is not complete
  EXPECT_EQ(shown + stream.rest(), text);
  EXPECT_EQ(stream.rest(), "");
}

}  // namespace
}  // namespace trireme
