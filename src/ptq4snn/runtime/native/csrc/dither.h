// The offsets of a dithered shift; ptq4snn/numerics/dither.py has the equations and, by layout.h, the numbers.
#pragma once
#include "layout.h"

namespace ptq {

constexpr uint32_t kPhaseMask = (1u << kPhaseBits) - 1;

// phase = (element_phase(element) + step_phase(t)) & kPhaseMask. Overflow is harmless: 2^16 divides 2^32.
static constexpr uint32_t element_phase(uint32_t element) { return kPhaseStride * element; }

static constexpr uint32_t step_phase(int64_t t) {
  const uint32_t reversed = (uint32_t)(((t & 1) << 3) | ((t & 2) << 1) | ((t & 4) >> 1) | ((t & 8) >> 3));
  return (reversed << (kPhaseBits - kCycleBits)) + kPhaseHalf;
}

// What is added before a shift by n <= 16.
static constexpr int64_t dither_offset(uint32_t element, int64_t t, int n) {
  return (int64_t)(((element_phase(element) + step_phase(t)) & kPhaseMask) >> (kPhaseBits - n));
}

}  // namespace ptq
