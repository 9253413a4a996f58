// Models as other programs store them: the names of their tensors, and where each element of ours
// lies in them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/options.h"
#include "trireme/base/shape.h"

namespace trireme::models {

// The box [start, start + extent) of one of our tensors. Its element start + i is element
// offset + (the sum of i[d] * strides[d]) of a foreign tensor. A dimension that is not split has
// the strides of the foreign one, so every layout is a choice of strides.
struct ForeignPart {
  std::string ours;  // as checkpoints name it: "parameters/NAME" or "state/NAME"
  Shape shape;       // of all of our tensor
  std::vector<std::int64_t> start;
  Shape extent;
  std::int64_t offset = 0;
  std::vector<std::int64_t> strides;
};

// The parts of a foreign tensor do not overlap, and cover it.
struct ForeignTensor {
  std::string name;
  Shape shape;
  std::vector<ForeignPart> parts;
};

// All of a model. Together the parts cover each of our tensors once.
struct ForeignModel {
  std::string format;  // for messages: "GPT-2 as transformers has it"
  std::vector<ForeignTensor> tensors;
  std::string prefix = {};  // of names, which some files leave out: "transformer."
  // Endings of the names of tensors that may be there besides, and that nothing reads: they say
  // nothing that the others do not.
  std::vector<std::string> unused = {};
  // Tensors that may be there besides and should be equal to another one, as a tied head is to the
  // embedding: name, name of the other one.
  std::vector<std::pair<std::string, std::string>> copies = {};
  // The keys model.* by which a copy is a tensor of its own; empty: our models have no such thing.
  OptionValues apart = {};
  // The same for parts of the model that ours does not have, and that its outputs do not need.
  std::vector<std::string> left_out = {};
  // Endings of names, and how older files have them: "LayerNorm.weight", "LayerNorm.gamma".
  std::vector<std::pair<std::string, std::string>> older_endings = {};
  // Beginnings of names in the files of models that this one is a part of, and what they are here:
  // "model.language_model.", "model."; and those of the other parts, which are left out.
  std::vector<std::pair<std::string, std::string>> other_beginnings = {};
  std::vector<std::string> left_out_beginnings = {};
  // Returns the text of config.json, for which only an export asks; empty: there is none.
  std::function<std::string()> config = {};
};

// What a foreign description of a model says.
struct ForeignKeys {
  OptionValues keys;                  // model.*
  std::vector<std::string> not_read;  // fields that we do not know
  std::string type = {};              // for Model::foreign_as; empty: the family has one type
};

// Our parameter of the same shape and layout.
ForeignTensor same_tensor(std::string name, const std::string& parameter, const Shape& shape);
// Adds NAME.weight and, with `bias`, NAME.bias of a linear layer or a norm of theirs, whose weight
// is as ours.
void add_same_layer(std::vector<ForeignTensor>& tensors, const std::string& name,
                    const std::string& ours, const Shape& weight, bool bias = true);
// Our parameter with the same elements in the same order; the foreign tensor has other dimensions.
ForeignTensor reshaped_tensor(std::string name, const std::string& parameter, const Shape& shape,
                              const Shape& theirs);
// Our parameter is (rows, columns), the foreign tensor (columns, rows).
ForeignTensor transposed_tensor(std::string name, const std::string& parameter, const Shape& shape);
// The weight of a convolution: ours is (out, height, width, in), the foreign one (out, in, height,
// width).
ForeignTensor convolution_tensor(std::string name, const std::string& parameter,
                                 const Shape& shape);
// A row of our state of that shape.
ForeignTensor state_row(std::string name, const std::string& state, const Shape& shape,
                        std::int64_t row);
// Our parameters of shapes (rows, columns), or vectors (rows), one after the other: the foreign
// tensor is (columns, all rows), or (all rows).
ForeignTensor fused_transposed(std::string name, const std::vector<std::string>& parameters,
                               const std::vector<Shape>& shapes);

}  // namespace trireme::models
