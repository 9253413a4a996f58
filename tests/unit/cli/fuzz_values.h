// Values that are wrong, or on the edge of it.
#pragma once

#include <string>

#include "fuzz_cases.h"

namespace trireme::fuzz {

std::string number(Draws& draws);
// A number or a text. It may stand in an argument: without a byte 0.
std::string value(Draws& draws);
// The bytes with a few changes: bits flipped, bytes replaced, taken out, doubled, or the end cut.
std::string damaged(std::string bytes, Draws& draws);

}  // namespace trireme::fuzz
