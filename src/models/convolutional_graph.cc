// Convolutional networks as operations of ONNX, in an evaluation.
#include <cmath>

#include "models/convolutional.h"
#include "models/onnx_builder.h"

namespace trireme::models {
namespace {

using NetworkLayer = ConvolutionalNetwork::Layer;

GraphValue add_clamp(OnnxBuilder& graph, const ops::Clamp& clamp, const GraphValue& x) {
  if (!clamp.cuts()) return x;
  if (clamp.low == 0.0f && std::isinf(clamp.high)) return graph.apply("Relu", {x});
  return graph.apply("Clip", {x, graph.number(clamp.low), graph.number(clamp.high)});
}

// ConvolutionNorm::forward without its clamp.
GraphValue add_normed_convolution(OnnxBuilder& graph, const ConvolutionNorm::Sizes& sizes,
                                  const std::string& name, const GraphValue& x) {
  const std::int64_t padding = sizes.padding();
  const Shape kernel = {sizes.out, sizes.kernel, sizes.kernel, sizes.in / sizes.groups};
  const GraphValue convolved =
      graph.apply("Conv", {x, graph.parameter(name + ".convolution.weight", kernel)},
                  {{"group", sizes.groups},
                   {"kernel_shape", GraphExtents{sizes.kernel, sizes.kernel}},
                   {"pads", GraphExtents{padding, padding, padding, padding}},
                   {"strides", GraphExtents{sizes.stride, sizes.stride}}});
  const Shape vector = {sizes.out}, running = {2, sizes.out};
  return graph.apply("BatchNormalization",
                     {convolved, graph.parameter(name + ".norm.weight", vector),
                      graph.parameter(name + ".norm.bias", vector),
                      graph.state_row(name + ".norm.running", running, 0),
                      graph.state_row(name + ".norm.running", running, 1)},
                     {{"epsilon", ConvolutionNorm::kEpsilon}});
}

GraphValue add_stem(OnnxBuilder& graph, const ConvolutionalNetwork& network,
                    const GraphValue& pixels) {
  graph.enter("stem");
  const GraphValue x =
      add_clamp(graph, network.clamp,
                add_normed_convolution(graph, network.stem.convolution, "stem", pixels));
  if (!network.stem.pools) return x;
  const ops::PoolingShape pooling = network.stem.pooling(1, 1);
  const std::int64_t padding = pooling.padding;
  return graph.apply("MaxPool", {x},
                     {{"kernel_shape", GraphExtents{pooling.kernel_height, pooling.kernel_width}},
                      {"pads", GraphExtents{padding, padding, padding, padding}},
                      {"strides", GraphExtents{pooling.stride, pooling.stride}}});
}

GraphValue add_block(OnnxBuilder& graph, const ConvolutionalNetwork& network,
                     const ConvolutionalNetwork::Block& block, const GraphValue& input) {
  graph.enter(block.name);
  GraphValue other = input;
  for (const NetworkLayer& layer : block.layers) {
    if (layer.is_shortcut) other = add_normed_convolution(graph, layer.sizes, layer.name, input);
  }
  GraphValue x = input;
  for (const NetworkLayer& layer : block.layers) {
    if (layer.is_shortcut) continue;
    x = add_normed_convolution(graph, layer.sizes, layer.name, x);
    if (layer.adds) x = graph.apply("Add", {x, other});
    if (layer.clamps) x = add_clamp(graph, network.clamp, x);
  }
  return x;
}

}  // namespace

OnnxModel onnx_model(const ConvolutionalConfig& config, const ConvolutionalNetwork& network,
                     ForeignModel foreign, DType weights) {
  OnnxBuilder graph(std::move(foreign), weights);
  GraphValue x =
      graph.input("pixels", OnnxType::kFloat, {"batch", nn::kColours, config.image, config.image});
  x = add_stem(graph, network, x);
  for (const ConvolutionalNetwork::Block& block : network.blocks) {
    x = add_block(graph, network, block, x);
  }
  graph.enter("head");
  if (network.last) {
    x = add_clamp(graph, network.clamp, add_normed_convolution(graph, *network.last, "head", x));
  }
  const std::int64_t channels = network.head_channels();
  x = graph.reshape(graph.apply("GlobalAveragePool", {x}), {-1, channels});
  x = graph.linear(x, "head.classifier.weight", {config.classes, channels}, "head.classifier.bias");
  return graph.finish(x, "logits", {"batch", config.classes});
}

}  // namespace trireme::models
