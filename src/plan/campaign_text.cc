// What a campaign is, for people and for programs.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/text.h"
#include "trireme/plan/campaign.h"

namespace trireme::plan {
namespace {

using Use = std::pair<const char*, double>;

std::array<Use, 7> uses_of(const CampaignTimes& times) {
  return {Use{"computing", times.computing},
          Use{"evaluation", times.evaluation},
          Use{"checkpoints", times.checkpoints},
          Use{"starts", times.starts},
          Use{"repeated work", times.repeated},
          Use{"restarts", times.restarts},
          Use{"queue", times.queue}};
}

std::string date(double seconds) {
  constexpr double kYear10000 = 253402300800.0;
  if (seconds >= kYear10000) return "after the year 9999";
  return utc_text(std::llround(std::max(seconds, -kYear10000)));
}

std::string bytes_text(double bytes) {
  return size_text(static_cast<std::uint64_t>(std::min(bytes, 1e18)));
}

std::string uses_line(const Campaign& campaign) {
  std::vector<std::string> parts;
  for (const auto& [name, seconds] : uses_of(campaign.times)) {
    if (seconds <= 0.0) continue;
    parts.push_back(fmt::format("{} {} ({:.1f} %)", name, time_text(seconds),
                                100.0 * seconds / campaign.times.whole()));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string checkpoint_words(const Campaign& campaign) {
  const std::string when = campaign.checkpoint_every > 0
                               ? fmt::format("every {}", counted(campaign.checkpoint_every, "step"))
                               : "at the end of each job";
  return fmt::format("a checkpoint {}, which takes {}", when,
                     time_text(campaign.checkpoint_seconds));
}

Json json_of(const Estimate& estimate) {
  return Json::object(
      {{"low", estimate.low}, {"expected", estimate.expected}, {"high", estimate.high}});
}

}  // namespace

std::vector<std::string> campaign_lines(const CampaignInput& input, const Campaign& campaign) {
  const Estimate &seconds = campaign.seconds, &end = campaign.end;
  const double units = static_cast<double>(campaign.steps) * input.units_of_step;
  std::vector<std::string> lines = {
      fmt::format("training: {} of {} {}, {} {} in all", counted(campaign.steps, "step"),
                  short_number(input.units_of_step), input.unit, short_number(units), input.unit),
      fmt::format("jobs: {}{}; {}", counted(campaign.jobs, "job"),
                  input.job_limit
                      ? fmt::format(" of at most {}, {} each", time_text(*input.job_limit),
                                    counted(campaign.steps_of_job, "step"))
                      : ", without a time limit",
                  checkpoint_words(campaign)),
      fmt::format("takes {} ({} to {})", time_text(seconds.expected), time_text(seconds.low),
                  time_text(seconds.high)),
      fmt::format("ends {} UTC ({} to {})", date(end.expected), date(end.low), date(end.high)),
      fmt::format("goodput {:.1f} %: {}", 100.0 * campaign.goodput, uses_line(campaign))};
  if (campaign.mtbf) {
    lines.push_back(fmt::format("failures: {} expected, one in {} of the job",
                                short_number(campaign.failures), time_text(*campaign.mtbf)));
  }
  lines.push_back(fmt::format("node-hours: {}, {} per billion {}",
                              short_number(campaign.node_hours),
                              short_number(campaign.node_hours_per_billion), input.unit));
  std::string disk = "disk: " + bytes_text(campaign.disk);
  if (campaign.most_disk > campaign.disk) {
    disk +=
        fmt::format(", at most {} while a checkpoint is written", bytes_text(campaign.most_disk));
  }
  lines.push_back(std::move(disk));
  lines.insert(lines.end(), campaign.remarks.begin(), campaign.remarks.end());
  return lines;
}

Json campaign_json(const CampaignInput& input, const Campaign& campaign) {
  Json times = Json::object();
  for (const auto& [name, seconds] : uses_of(campaign.times)) {
    std::string key = name;
    std::replace(key.begin(), key.end(), ' ', '_');
    times[key] = seconds;
  }
  Json remarks = Json::array();
  for (const std::string& remark : campaign.remarks) remarks.push_back(remark);
  return Json::object({{"steps", campaign.steps},
                       {"unit", input.unit},
                       {"units", static_cast<double>(campaign.steps) * input.units_of_step},
                       {"nodes", input.nodes},
                       {"jobs", campaign.jobs},
                       {"steps_of_job", campaign.steps_of_job},
                       {"checkpoint_every", campaign.checkpoint_every},
                       {"checkpoint_s", campaign.checkpoint_seconds},
                       {"checkpoints", campaign.checkpoints},
                       {"failures", campaign.failures},
                       {"mtbf_s", campaign.mtbf ? Json(*campaign.mtbf) : Json()},
                       {"times_s", times},
                       {"whole_s", json_of(campaign.seconds)},
                       {"end", json_of(campaign.end)},
                       {"goodput", campaign.goodput},
                       {"node_hours", campaign.node_hours},
                       {"node_hours_per_billion", campaign.node_hours_per_billion},
                       {"disk_bytes", campaign.disk},
                       {"most_disk_bytes", campaign.most_disk},
                       {"remarks", remarks}});
}

}  // namespace trireme::plan
