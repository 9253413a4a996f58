#include "models/vit/onnx_graph.h"

#include "models/transformer_graph.h"
#include "models/vit/transformers_names.h"

namespace trireme::models {

OnnxModel onnx_model(const VitConfig& config, DType weights) {
  const TransformerSizes sizes = transformer_sizes(config);
  const std::int64_t width = config.width, patch = config.patch;
  OnnxBuilder graph(transformers_model(config), weights);
  const GraphValue pixels =
      graph.input("pixels", OnnxType::kFloat, {"batch", nn::kColours, config.image, config.image});
  graph.enter("embedding");
  GraphValue x = graph.apply(
      "Conv",
      {pixels, graph.parameter("embedding.patches.weight", {width, patch, patch, nn::kColours}),
       graph.parameter("embedding.patches.bias", {width})},
      {{"kernel_shape", GraphExtents{patch, patch}},
       {"strides", GraphExtents{patch, patch}}});  // (B, C, rows, columns)
  x = graph.transpose(graph.reshape(x, {0, width, -1}), {0, 2, 1});
  const GraphValue samples =
      graph.apply("Gather", {graph.apply("Shape", {pixels}), graph.integers({0})});
  const GraphValue token_shape =
      graph.apply("Concat", {samples, graph.integers({1, width})}, {{"axis", std::int64_t{0}}});
  const GraphValue token = graph.apply(
      "Expand", {graph.parameter("embedding.class_token", {width}), token_shape});  // (B, 1, C)
  x = graph.apply("Concat", {token, x}, {{"axis", std::int64_t{1}}});
  x = graph.apply("Add", {x, graph.parameter("positions.weight", {config.positions(), width})});
  x = graph.reshape(x, {-1, width});
  const GraphPositions positions = fixed_positions(graph, sizes);
  for (int layer = 0; layer < static_cast<int>(config.layers); ++layer) {
    x = add_transformer_block(graph, sizes, layer, positions, x);
  }
  graph.enter("head");
  x = graph.apply("Gather", {graph.reshape(x, {-1, config.positions(), width}), graph.integer(0)},
                  {{"axis", std::int64_t{1}}});  // (B, C): the class token
  x = add_norm(graph, sizes, "norm", x);
  x = graph.linear(x, "head.classifier.weight", {config.classes, width}, "head.classifier.bias");
  return graph.finish(x, "logits", {"batch", config.classes});
}

}  // namespace trireme::models
