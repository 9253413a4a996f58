#include "models/gpt/onnx_graph.h"

#include "models/gpt/transformers_names.h"
#include "models/transformer_graph.h"

namespace trireme::models {

OnnxModel onnx_model(const GptConfig& config, DType weights) {
  const TransformerSizes sizes = transformer_sizes(config);
  const Shape table = {config.vocabulary, config.width};
  OnnxBuilder graph(
      has_transformers_names(config) ? std::optional(transformers_model(config)) : std::nullopt,
      weights);
  const GraphValue tokens = graph.input("tokens", OnnxType::kInt64, {"batch", "length"});
  graph.enter("embedding");
  const GraphPositions positions = positions_of_tokens(graph, sizes, tokens);
  GraphValue x = graph.gather_rows(kEmbeddingName, table, tokens);  // (B, T, C)
  if (config.positions == nn::PositionKind::kLearned) {
    const GraphValue learned = graph.gather_rows("positions.weight", {config.context, config.width},
                                                 position_numbers(graph, tokens));
    x = graph.apply("Add", {x, learned});
  }
  x = graph.reshape(x, {-1, config.width});
  for (int layer = 0; layer < static_cast<int>(config.layers); ++layer) {
    x = add_transformer_block(graph, sizes, layer, positions, x);
  }
  graph.enter("head");
  x = add_norm(graph, sizes, "norm", x);
  x = graph.linear(x, config.tied ? kEmbeddingName : "head.weight", table);
  x = graph.apply("Reshape", {x, positions.shape({config.vocabulary})});
  return graph.finish(x, "logits", {"batch", "length", config.vocabulary});
}

}  // namespace trireme::models
