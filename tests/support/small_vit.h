// A vision transformer small enough to train on every grid in a test, for the pictures of
// picture_model.h.
#pragma once

#include "models/vit/vit.h"
#include "support/picture_model.h"

namespace trireme::testing {

// 17 positions: a number that no count of ranks divides.
inline models::VitConfig small_vit() {
  return {.layers = 3,
          .width = 32,
          .heads = 4,
          .hidden = 48,
          .patch = 2,
          .image = kPictureSize,
          .classes = kPictureClasses,
          .label_smoothing = 0.1};
}

}  // namespace trireme::testing
