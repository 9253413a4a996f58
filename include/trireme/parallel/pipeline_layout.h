// Which stage of a pipeline holds which part of the model.
#pragma once

namespace trireme::parallel {

// The model is cut into stages * chunks parts, each some neighbouring blocks. Each stage holds
// `chunks` of them; its chunks are numbered in the order of the model.
struct PipelineLayout {
  enum class Order {
    // Part by part from the first stage to the last, and again from the first: chunk c of stage s
    // is part c * stages + s, as interleaved schedules want it.
    kLoop,
    // Chunks go from the first stage to the last, and back: every second one goes from the last
    // stage to the first. With two chunks the first stage holds both ends of the model, and the
    // last stage hands its first chunk's values to its second.
    kV,
  };

  int stages = 1;
  int chunks = 1;
  Order order = Order::kLoop;

  bool operator==(const PipelineLayout&) const = default;

  int parts() const { return stages * chunks; }
  int part(int stage, int chunk) const { return chunk * stages + mirrored(stage, chunk); }
  int stage_of(int part) const { return mirrored(part % stages, chunk_of(part)); }
  int chunk_of(int part) const { return part / stages; }
  int last_stage() const { return stage_of(parts() - 1); }  // holds the model's last part

 private:
  int mirrored(int stage, int chunk) const {
    return order == Order::kV && chunk % 2 == 1 ? stages - 1 - stage : stage;
  }
};

}  // namespace trireme::parallel
