// The messages of ONNX, byte by byte, and the graphs of all families: that each is whole. What they
// compute is compared by onnx_runtime_test, and for BERT by weights_torch_test.
#include "trireme/models/onnx.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/models/family.h"

namespace trireme::testing {
namespace {

using models::ForeignTensor;
using models::OnnxModel;
using models::OnnxNode;
using models::OnnxType;

std::string hexadecimal(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

TEST(OnnxMessages, AreThoseOfThePackageOnnx) {
  const OnnxModel model{
      .nodes = {{"Gemm", "n/Gemm.0", {"x", "w", ""}, {"y"}, {{"transB", std::int64_t{1}}}},
                {"LayerNormalization",
                 "n/LN.1",
                 {"y", "s"},
                 {"z"},
                 {{"axis", std::int64_t{-1}}, {"epsilon", 1.5f}}},
                {"Transpose",
                 "n/T.2",
                 {"z"},
                 {"logits"},
                 {{"perm", std::vector<std::int64_t>{1, 300}}}}},
      .inputs = {{"x", OnnxType::kInt64, {"batch", 2000}}},
      .outputs = {{"logits", OnnxType::kFloat, {"batch", 3}}},
      .constants = {{"s", OnnxType::kFloat, {}, std::string("\0\0\xc0\x3f", 4)}},
      .weights = {models::same_tensor("b", "b", {3}), models::same_tensor("w", "w", {3, 2000})},
      .dtype = DType::kBF16,
      .metadata = {{"model.family", "gpt"}}};
  // Made by onnx_bytes.py.
  EXPECT_EQ(
      hexadecimal(models::encoded(model, "m.data")),
      "0808120774726972656d653af7020a2a0a01780a01770a001201791a086e2f47656d6d2e30220447656d6d2a0d"
      "0a067472616e73421801a001020a4e0a01790a017312017a1a066e2f4c4e2e3122124c617965724e6f726d616c"
      "697a6174696f6e2a140a046178697318ffffffffffffffffff01a001022a110a07657073696c6f6e150000c03f"
      "a001010a2d0a017a12066c6f676974731a056e2f542e3222095472616e73706f73652a0e0a047065726d400140"
      "ac02a00107120774726972656d652a37080310104201626a120a086c6f636174696f6e12066d2e646174616a0b"
      "0a066f66667365741201306a0b0a066c656e67746812013670012a41080308d00f10104201776a120a086c6f63"
      "6174696f6e12066d2e646174616a0e0a066f66667365741204343039366a0f0a066c656e677468120531323030"
      "3070012a0b10014201734a040000c03f5a190a017812140a120807120e0a07120562617463680a0308d00f621d"
      "0a066c6f6769747312130a110801120d0a07120562617463680a0208034202101172130a0c6d6f64656c2e6661"
      "6d696c791203677074");
}

TEST(OnnxPlaces, LargeWeightsBeginAtPages) {
  OnnxModel model;
  for (const std::int64_t elements : {1, 3, 2000, 1024, 5, 0, 7}) {
    model.weights.push_back(models::same_tensor("w", "w", {elements}));
  }
  const models::OnnxPlaces places = models::places_of_weights(model);
  EXPECT_EQ(places.offsets, (std::vector<std::int64_t>{0, 64, 4096, 12288, 16384, 16448, 16448}));
  EXPECT_EQ(places.bytes, 16448 + 28);
}

// Each input of an operation is there when it is needed, and nothing is there that nobody needs.
void check_whole(const OnnxModel& model) {
  std::set<std::string> known, read;
  const auto define = [&](const std::string& name) {
    EXPECT_TRUE(known.insert(name).second) << name << " is there twice";
  };
  for (const models::OnnxValue& input : model.inputs) define(input.name);
  for (const ForeignTensor& weight : model.weights) define(weight.name);
  for (const models::OnnxConstant& constant : model.constants) define(constant.name);
  std::set<std::string> nodes;
  for (const OnnxNode& node : model.nodes) {
    EXPECT_TRUE(nodes.insert(node.name).second) << node.name << " is there twice";
    for (const std::string& input : node.inputs) {
      EXPECT_TRUE(known.contains(input)) << node.name << " reads " << input;
      read.insert(input);
    }
    for (const std::string& output : node.outputs) define(output);
  }
  for (const models::OnnxValue& output : model.outputs) read.insert(output.name);
  EXPECT_EQ(read, known);
  EXPECT_EQ(model.outputs.front().name, "logits");
}

// The graph computes in fp32: weights of another type are only converted, or rows of them gathered
// and then converted.
void check_conversions(const OnnxModel& model) {
  std::set<std::string> of_weights;
  for (const ForeignTensor& weight : model.weights) of_weights.insert(weight.name);
  for (const OnnxNode& node : model.nodes) {
    for (const std::string& input : node.inputs) {
      if (!of_weights.contains(input)) continue;
      if (model.dtype == DType::kF32) {
        EXPECT_NE(node.operation, "Cast") << input;
        continue;
      }
      EXPECT_TRUE(node.operation == "Cast" || node.operation == "Gather") << node.name;
      if (node.operation == "Gather") of_weights.insert(node.outputs.front());
    }
  }
}

std::map<std::string, std::string> names_and_shapes(const std::vector<ForeignTensor>& tensors) {
  std::map<std::string, std::string> all;
  for (const ForeignTensor& tensor : tensors) all[tensor.name] = tensor.shape.to_string();
  return all;
}

// GPT-NeoX has the rows of queries, keys and values head by head: a graph keeps ours.
bool ours_are_mixed(const models::ForeignModel& foreign) {
  return std::ranges::any_of(foreign.tensors,
                             [](const ForeignTensor& tensor) { return tensor.parts.size() > 3; });
}

class OnnxGraphs : public ::testing::TestWithParam<std::pair<std::string, OptionValues>> {};

TEST_P(OnnxGraphs, AreWholeAndHaveTheForeignWeights) {
  const auto& [family, keys] = GetParam();
  const models::Model model = models::resolve({family, keys}, {});
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const OnnxModel graph = model.onnx(dtype);
    check_whole(graph);
    check_conversions(graph);
    if (ours_are_mixed(model.foreign())) {
      EXPECT_TRUE(names_and_shapes(graph.weights).contains("blocks.0.attention.query.weight"));
      continue;
    }
    EXPECT_EQ(names_and_shapes(graph.weights), names_and_shapes(model.foreign().tensors));
  }
}

std::vector<std::pair<std::string, OptionValues>> all_presets() {
  std::vector<std::pair<std::string, OptionValues>> all;
  for (const models::Family* family : models::families()) {
    if (family->name().starts_with("test")) continue;
    for (const std::string_view preset : family->presets()) {
      all.emplace_back(family->name(), OptionValues{{"preset", std::string(preset)}});
    }
  }
  all.emplace_back("gpt", OptionValues{{"preset", "gpt2-124m"}, {"tied", "false"}});
  all.emplace_back("gpt", OptionValues{{"preset", "llama-160m"}, {"bias", "true"}});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Families, OnnxGraphs, ::testing::ValuesIn(all_presets()));

TEST(OnnxGraphsOfMixtures, HaveOurNames) {
  const models::Model model = models::resolve(
      {"gpt", {{"preset", "test-llama"}, {"norm", "layer"}, {"bias", "false"}}}, {});
  const OnnxModel graph = model.onnx(DType::kF32);
  check_whole(graph);
  std::int64_t elements = 0;
  for (const ForeignTensor& weight : graph.weights) elements += weight.shape.elements();
  EXPECT_EQ(elements, model.plan.parameters);
  EXPECT_TRUE(names_and_shapes(graph.weights).contains("blocks.6.mlp.gate.weight"));
}

TEST(OnnxGraphsOfWeights, OperationsAreAddedOnce) {
  const models::Model model = models::resolve({"gpt", {{"preset", "llama-160m"}}}, {});
  const OnnxModel graph = model.onnx(DType::kF32);
  EXPECT_EQ(std::ranges::count(graph.nodes, "Range", &OnnxNode::operation), 1);
  EXPECT_EQ(std::ranges::count(graph.nodes, "Cos", &OnnxNode::operation), 1);
}

}  // namespace
}  // namespace trireme::testing
