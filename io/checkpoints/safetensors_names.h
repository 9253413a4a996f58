// Names of files of a set of safetensors.
#pragma once

namespace trireme {

inline constexpr const char* kSafetensorsName = "model.safetensors";
inline constexpr const char* kSafetensorsIndexName = "model.safetensors.index.json";

}  // namespace trireme
