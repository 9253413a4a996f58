#include "models/bert/onnx_graph.h"

#include "models/bert/transformers_names.h"
#include "models/transformer_graph.h"

namespace trireme::models {

OnnxModel onnx_model(const BertConfig& config, DType weights) {
  const TransformerSizes sizes = transformer_sizes(config);
  const std::int64_t width = config.width;
  const Shape table = {config.vocabulary, width};
  OnnxBuilder graph(transformers_model(config), weights);
  const auto input = [&](const char* name) {
    return graph.input(name, OnnxType::kInt64, {"batch", "length"});
  };
  const GraphValue tokens = input("tokens"), attention_mask = input("attention_mask");
  const GraphValue segments = input("segments");

  graph.enter("embedding");
  GraphPositions positions = positions_of_tokens(graph, sizes, tokens);
  const GraphValue is_token = graph.cast(attention_mask, OnnxType::kBool);
  positions.mask = graph.apply("Unsqueeze", {is_token, graph.integers({1, 2})});  // (B, 1, 1, T)
  GraphValue x = graph.gather_rows(kEmbeddingName, table, tokens);                // (B, T, C)
  x = graph.apply("Add", {x, graph.gather_rows("positions.weight", {config.context, width},
                                               position_numbers(graph, tokens))});
  x = graph.apply("Add",
                  {x, graph.gather_rows("segments.weight", {kBertSegments, width}, segments)});
  x = add_norm(graph, sizes, "embedding.norm", graph.reshape(x, {-1, width}));
  for (int layer = 0; layer < static_cast<int>(config.layers); ++layer) {
    x = add_transformer_block(graph, sizes, layer, positions, x);
  }
  graph.enter("head");
  x = graph.linears(x, {{"head.transform", {width, width}}}, true).front();
  x = add_norm(graph, sizes, "head.norm", add_gelu_erf(graph, x));
  x = graph.linear(x, kEmbeddingName, table, "head.bias");
  x = graph.apply("Reshape", {x, positions.shape({config.vocabulary})});
  return graph.finish(x, "logits", {"batch", "length", config.vocabulary});
}

}  // namespace trireme::models
