#include "models/gpt/onnx_graph.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "models/gpt/transformers_names.h"
#include "models/transformer_graph.h"

namespace trireme::models {

namespace {

// transformers' names and layouts, unless that has none, or mixes the rows of our layers (as
// GPT-NeoX does head by head): a graph has one product for layers that lie one after the other.
std::optional<ForeignModel> foreign_layers(const GptConfig& config) {
  if (!has_transformers_names(config)) return std::nullopt;
  ForeignModel model = transformers_model(config);
  constexpr std::size_t kQueryKeyValue = 3;
  const bool mixes = std::ranges::any_of(model.tensors, [](const ForeignTensor& tensor) {
    return tensor.parts.size() > kQueryKeyValue;
  });
  if (mixes) return std::nullopt;
  return model;
}

}  // namespace

OnnxModel onnx_model(const GptConfig& config, DType weights) {
  const TransformerSizes sizes = transformer_sizes(config);
  const Shape table = {config.vocabulary, config.width};
  OnnxBuilder graph(foreign_layers(config), weights);
  const GraphValue tokens = graph.input("tokens", OnnxType::kInt64, {"batch", "length"});
  graph.enter("embedding");
  const GraphValue numbers = position_numbers(graph, tokens);
  GraphValue x = graph.gather_rows(kEmbeddingName, table, tokens);  // (B, T, C)
  x = scaled_value(graph, x, config.embedding_scale);
  if (config.positions == nn::PositionKind::kLearned) {
    const GraphValue learned =
        graph.gather_rows("positions.weight", {config.context, config.width}, numbers);
    x = graph.apply("Add", {x, learned});
  }
  x = graph.reshape(x, {-1, config.width});
  std::map<std::string, GraphPositions> positions;  // by kind of layer
  for (int layer = 0; layer < static_cast<int>(config.layers); ++layer) {
    const TransformerSizes of_layer = transformer_sizes(config, layer);
    auto found = positions.find(of_layer.kind);
    if (found == positions.end()) {
      graph.enter("positions");
      found = positions.emplace(of_layer.kind, positions_of_tokens(graph, of_layer, tokens)).first;
    }
    x = add_transformer_block(graph, of_layer, layer, found->second, x);
  }
  graph.enter("head");
  x = add_norm(graph, sizes, "norm", x);
  x = graph.linear(x, config.tied ? kEmbeddingName : "head.weight", table);
  x = bent_logits(graph, x, {config.logit_scale, config.logit_cap});
  x = graph.apply("Reshape", {x, positions.begin()->second.shape({config.vocabulary})});
  return graph.finish(x, "logits", {"batch", "length", config.vocabulary});
}

}  // namespace trireme::models
