// Pictures as the data of tasks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/io/image_dataset.h"
#include "trireme/nn/host_micro_batch.h"
#include "trireme/ops/context.h"
#include "trireme/tasks/task.h"

namespace trireme {

// A micro-batch of pictures on the host: the fields kPixels and kTargets, or only one of them or
// neither. Their contents are undefined.
nn::HostMicroBatch make_host_pictures(ops::Context& ctx, std::int64_t batch, PictureSize size,
                                      bool pixels = true, bool targets = true);

// Returns samples [begin, begin + micro) of a batch of data as a micro-batch; `size` is that of its
// pictures. Samples past the end of `data` are padding: zeros with masked targets. Without pixels
// or labels in `data` it has no such field. Outside of training it counts correct answers.
nn::MicroBatch make_micro_batch(ops::Context& ctx, const ImageBatch& data, PictureSize size,
                                std::size_t begin, std::int64_t micro, bool training);

// The marks of pictures, which checkpoints carry as extra attributes: the names of the classes, one
// on each line in the order of their numbers; what pixels are normalised by; and the size of the
// pictures, of which a model may see a part, as "24x32" for 24 rows.
inline constexpr const char* kClassesAttribute = "classes";
inline constexpr const char* kNormalisationAttribute = "normalisation";
inline constexpr const char* kPictureSizeAttribute = "picture_size";

// "mean 0.5 0.25 0.125, deviation 0.25 0.25 0.25", with all digits.
std::string normalisation_text(const PixelStatistics& statistics);
// Returns nothing for what is no such text; kNormalisationForm tells a user what is.
std::optional<PixelStatistics> read_normalisation(std::string_view text);
inline constexpr std::string_view kNormalisationForm =
    "'mean R G B, deviation R G B', numbers of 0 to 1";

namespace tasks {

// How many micro-batches of pictures are kept ready: a whole step's.
int pictures_ahead(int micro_batches);

// Returns open pictures as the data of a classification. `transform` is what steps are read with;
// evaluations take the centre. Throws ConfigError as check_transform.
std::shared_ptr<const TaskData> pictures(std::shared_ptr<const ImageDataset> data,
                                         const ImageTransform& transform, int threads);

}  // namespace tasks

}  // namespace trireme
