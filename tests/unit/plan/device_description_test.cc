// Descriptions of devices: their files, the devices that the program knows, and what they say.
#include "trireme/plan/device_description.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

std::string refusal(const std::string& text) {
  try {
    read_device(text, "my.json");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// A file, line by line, so that a test can leave out or replace one.
std::vector<std::pair<std::string, std::string>> lines_of_a_file() {
  return {{"name", "\"mine\""},
          {"kind", "\"gpu\""},
          {"source", "\"measured here\""},
          {"evidence", "\"measured\""},
          {"multiprocessors", "100"},
          {"memory", "8e10"},
          {"memory_rate", "2e12"},
          {"peak", "{\"fp32\": 1e13, \"bf16\": 1e14}"},
          {"vector_peak", "1e13"},
          {"host_rate", "3e10"},
          {"constants", "{\"product\": 0.7}"}};
}

std::string file_with(const std::string& key, const std::string& value) {
  std::string text = "{";
  bool replaced = false;
  const auto add = [&](const std::string& name, const std::string& content) {
    text += (text.size() > 1 ? ",\n\"" : "\"") + name + "\": " + content;
  };
  for (const auto& [name, content] : lines_of_a_file()) {
    if (name == key) {
      if (!value.empty()) add(name, value);
      replaced = true;
    } else {
      add(name, content);
    }
  }
  if (!replaced && !value.empty()) add(key, value);
  return text + "}";
}

TEST(DeviceFile, IsRead) {
  const DeviceDescription device = read_device(file_with("", ""), "my.json");
  EXPECT_EQ(device.name, "mine");
  EXPECT_EQ(device.title, "mine");
  EXPECT_TRUE(device.gpu);
  EXPECT_EQ(device.evidence, Evidence::kMeasured);
  EXPECT_EQ(device.multiprocessors, 100);
  EXPECT_EQ(device.memory, 8e10);
  EXPECT_EQ(device.memory_rate, 2e12);
  EXPECT_EQ(device.peak, (std::map<DType, double>{{DType::kF32, 1e13}, {DType::kBF16, 1e14}}));
  EXPECT_EQ(device.constants.product, 0.7);
  EXPECT_EQ(device.constants.memory, DeviceDescription::Constants().memory);
}

TEST(DeviceFile, ReadsBackAsWritten) {
  for (DeviceDescription device : known_devices()) {
    EXPECT_EQ(read_device(write_device(device), "copy"), device) << device.name;
    device.operations = {{"matmul", DType::kBF16, {3, 5, 7, 1}, 210.0, 1.0 / 3.0, 1.1e-6},
                         {"embedding", DType::kI32, {12, 1, 0, 0}, 0.0, 4096.0, 2e-6}};
    EXPECT_EQ(read_device(write_device(device), "copy"), device) << device.name;
  }
  DeviceDescription host = known_device("h100");
  host.gpu = false;
  host.multiprocessors = 0;
  host.threads = 7;
  host.ranks = 3;
  host.beside_communication = 0.6;
  host.beside_computation = 0.2;
  EXPECT_EQ(read_device(write_device(host), "copy"), host);
}

TEST(DeviceFile, EachMissingFigureIsNamed) {
  for (const auto& [key, value] : lines_of_a_file()) {
    const std::string said = refusal(file_with(key, ""));
    if (key == "constants") {
      EXPECT_EQ(said, "");
      continue;
    }
    EXPECT_EQ(said.find("my.json: " + key + " is missing: give "), 0u) << key << ": " << said;
    EXPECT_EQ(said.find('\n'), std::string::npos);
  }
}

TEST(DeviceFile, SenselessFiguresAreNamed) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"name", "7", "my.json: name is not a name as h100"},
      {"kind", "\"tpu\"", "my.json: kind is tpu: expected gpu or cpu"},
      {"evidence", "\"hearsay\"",
       "my.json: evidence is hearsay: expected measured, published or data sheet"},
      {"multiprocessors", "1.5", "my.json: multiprocessors is 1.5: expected a whole number"},
      {"multiprocessors", "0",
       "my.json: multiprocessors is 0: expected 1 to 100000 multiprocessors"},
      {"memory", "80", "my.json: memory is 80: expected 1e+07 to 1e+16 bytes"},
      {"memory", "\"80 GB\"", "my.json: memory is no number: expected 1e+07 to 1e+16 bytes"},
      {"memory_rate", "-1", "my.json: memory_rate is -1: expected 1e+07 to 1e+16 bytes/s"},
      {"peak", "{}", "my.json: peak.fp32 is missing: no type has a peak"},
      {"peak", "{\"fp32\": 312}", "my.json: peak.fp32 is 312: expected 1e+07 to 1e+19 FLOP/s"},
      {"peak", "{\"bf61\": 1e14}", "my.json: peak.bf61 is unknown; did you mean bf16?"},
      {"vector_peak", "null", "my.json: vector_peak is no number: expected 1e+07 to 1e+19 FLOP/s"},
      {"host_rate", "12",
       "my.json: host_rate is 12: expected 100000 to 1e+16 bytes/s, or 0 for none"},
      {"launch", "2", "my.json: launch is 2: expected 0 to 0.1 seconds"},
      {"interval", "-0.1", "my.json: interval is -0.1: expected 0 to 10 of a step"},
      {"constants", "{\"product\": 1.2}",
       "my.json: constants.product is 1.2: expected 0.01 to 1 of the peak"},
      {"constants", "{\"produce\": 1}",
       "my.json: constants.produce is unknown; did you mean product?"},
      {"memroy_rate", "1e12", "my.json: memroy_rate is unknown; did you mean memory_rate?"},
      {"threads", "4", "my.json: threads is of processors: leave it out"},
      {"ranks", "2", "my.json: ranks is of processors: leave it out"},
      {"beside_computation", "0",
       "my.json: beside_computation is 0: expected 0.001 to 1 of the speed alone"},
      {"sources", "{\"memory\": 3}", "my.json: sources.memory is not a text"},
      {"operations", "7", "my.json: operations is no list of measured operations"},
      {"operations", "[{\"operation\": \"add\", \"dtype\": \"fp23\"}]",
       "my.json: operations[0].dtype is fp23: expected a type as fp32"},
      {"operations",
       "[{\"operation\": \"add\", \"dtype\": \"fp32\", \"sizes\": [-1], \"flops\": 0, \"bytes\": "
       "1, "
       "\"seconds\": 1}]",
       "my.json: operations[0].sizes holds what is no size: expected whole numbers from 0 to 1e18"},
      {"operations",
       "[{\"operation\": \"add\", \"dtype\": \"fp32\", \"sizes\": [], \"flops\": 0, \"bytes\": 1, "
       "\"seconds\": 0}]",
       "my.json: operations[0].seconds is 0: expected 1e-12 to 1e+06 seconds"}};
  for (const auto& [key, value, said] : cases) {
    EXPECT_EQ(refusal(file_with(key, value)), said) << key << " " << value;
  }
  EXPECT_EQ(refusal("{").find("my.json: "), 0u);
  EXPECT_EQ(refusal("[]"), "my.json: the description is no object of keys and values");
}

TEST(KnownDevices, HaveFourConstantsAndSources) {
  ASSERT_GE(known_devices().size(), 12u);
  for (const DeviceDescription& device : known_devices()) {
    EXPECT_FALSE(device.source.empty()) << device.name;
    for (const char* constant : {"product", "memory", "attention", "start"}) {
      EXPECT_EQ(device.sources.count("constants." + std::string(constant)), 1u)
          << device.name << " " << constant;
    }
    // Who has not compared a device with anything says little of it.
    EXPECT_TRUE(device.evidence != Evidence::kDataSheet || device.interval >= 0.5) << device.name;
    EXPECT_EQ(device.peak.count(DType::kF32), 1u) << device.name;
    EXPECT_LE(device.vector_peak, device.peak.at(DType::kF32)) << device.name;
  }
}

TEST(KnownDevices, UnknownNamesHaveANearest) {
  EXPECT_EQ(known_device("h200").title, "NVIDIA H200 SXM 141 GB");
  try {
    known_device("a100-8");
    FAIL();
  } catch (const ConfigError& error) {
    const std::string said = error.what();
    EXPECT_EQ(said.find("device a100-8 is unknown; did you mean a100-80? there are a100-40, "), 0u)
        << said;
  }
}

TEST(KnownDevices, Tf32ReplacesThePeakOfFp32) {
  EXPECT_EQ(with_tf32(known_device("a100-40")).peak.at(DType::kF32), 1.56e14);
  EXPECT_EQ(with_tf32(known_device("v100-32")), known_device("v100-32"));
}

}  // namespace
}  // namespace trireme::plan
