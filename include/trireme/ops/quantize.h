// Numbers in few bits, for messages between ranks: codes of 8, 4 or 2 bits with one scale for each
// block of 256 elements, or bf16. What the codes lose is kept and sent with the next message (error
// feedback: Seide et al., "1-bit stochastic gradient descent", 2014).
#pragma once

#include "trireme/base/rounding.h"
#include "trireme/ops/context.h"

namespace trireme::ops {

inline constexpr std::int64_t kQuantizedBlock = 256;

// How `elements` numbers lie in `parts` messages of equal size. Part i holds the elements from i *
// part_elements() on, so the last parts may hold fewer, or none: their missing codes are 0. A part
// is the codes of its blocks, then their scales (bf16), then zeros up to a multiple of 8 bytes.
struct Packing {
  int bits = 8;  // of a code: 8, 4 or 2; 16: bf16 without scales
  std::int64_t elements = 0;
  int parts = 1;

  std::int64_t blocks_of_part() const {
    return quotient_up(quotient_up(elements, kQuantizedBlock), parts);
  }
  std::int64_t part_elements() const { return blocks_of_part() * kQuantizedBlock; }
  std::int64_t block_bytes() const { return kQuantizedBlock * bits / 8; }  // of the codes
  std::int64_t scales_at() const { return blocks_of_part() * block_bytes(); }
  std::int64_t part_bytes() const {
    return scales_at() + (bits < 16 ? rounded_up(2 * blocks_of_part(), 8) : 0);
  }
  std::int64_t bytes() const { return parts * part_bytes(); }
  // The packing of one part for itself: of part_elements() elements, with part_bytes() bytes.
  Packing part() const { return {bits, part_elements(), 1}; }
};

// packed (packing.bytes()) uint8, at an address that is a multiple of 8 = the codes of v = x +
// error, and error = v minus the value of its code. x (n) fp32, n = packing.elements; error (n)
// fp32, or undefined: v = x, and what is lost is lost.
//
// Codes are integers c from -2^(bits-1) to 2^(bits-1) - 1 in two's complement, and stand for c * s.
// The scale s of a block is -m / 2^(bits-1), where m is the v of the largest magnitude (the
// positive one if two are as large): s is rounded away from zero to bf16, and its magnitude is at
// least 2^-126; s is 0 if m is. A code is v * (1 / s) in fp32, rounded to nearest even, at most
// 2^(bits-1) - 1. So all 2^bits levels serve, 0 stays 0, no code is further from v than 0 is
// (without which error feedback need not converge: Karimireddy et al., 2019), and with 2 bits the
// levels are -1, 0, 1 and 2 times half of m, which suits a block whose largest value stands out.
// Byte j of a block's B bytes holds elements j, B + j, 2 B + j, ..., the first in its lowest bits.
//
// Codes of finite numbers and their errors have the same bits on every device: c * s is exact, and
// so is the difference from v. Where a v of a block is not finite, or above 2^127, the block's
// scale is NaN, so that all its values are, and its errors stay as they were. With 16 bits the same
// holds for single elements that bf16 makes infinite.
void quantize(Context& ctx, const Packing& packing, const Tensor& x, const Tensor& error,
              const Tensor& packed);

// y (packing.elements) fp32 = the values of the codes in packed (packing.bytes()) uint8.
void dequantize(Context& ctx, const Packing& packing, const Tensor& packed, const Tensor& y);

}  // namespace trireme::ops
