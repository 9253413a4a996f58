#include "trireme/setup/data_request.h"

#include <utility>

namespace trireme {
namespace {

ImageTransform::Crop crop_of(const std::string& word) {
  using enum ImageTransform::Crop;
  return word == "random" ? kRandom : word == "resized" ? kRandomResized : kCentre;
}

tasks::DataRequest common_request(const Config& config) {
  return {.paths = {},
          .sample = models::sample_shape(config.model),
          .seed = static_cast<std::uint64_t>(config.run.seed),
          .masks_documents = config.data.mask_documents,
          .mask_share = config.data.mask_share,
          .threads = config.data.threads};
}

}  // namespace

tasks::DataRequest training_data(const Config& config) {
  const Config::Data& data = config.data;
  tasks::DataRequest request = common_request(config);
  request.paths = data.train;
  request.augmentation = {.size = {},
                          .crop = crop_of(data.crop),
                          .padding = data.padding,
                          .least_area = data.least_area,
                          .least_ratio = 1.0 / data.most_ratio,
                          .most_ratio = data.most_ratio,
                          .flip = data.flip,
                          .statistics = {}};
  return request;
}

tasks::DataRequest held_out_data(const Config& config, std::vector<tasks::DataMark> trained_on) {
  tasks::DataRequest request = common_request(config);
  request.paths = config.data.validation;
  request.training = false;
  request.trained_on = std::move(trained_on);
  return request;
}

}  // namespace trireme
