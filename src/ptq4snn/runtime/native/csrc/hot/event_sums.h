// From sums of halves of bytes (event.h) to sums of weights.
#pragma once

#include "vector.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

// n rows as int16 in place, channels in order, modulo 2^16. H halves, each of `rows` rows; every event has added
// `offset`.
template <int H>
static void finish_rows(uint16_t* low, int64_t rows, const int32_t* events, int64_t n, uint16_t offset) {
  const int64_t next = rows * kTile;
  for (int64_t r = 0; r < n; ++r, low += kTile) {
    const uint16_t less = (uint16_t)(offset * (uint32_t)events[r]);
    for (int v = 0; v < kTileVectors; ++v) {
      uint16_t *even = low + v * (kBytes / 2), *odd = even + 32;
      u16v o = load<u16v>(odd), e = load<u16v>(even) - (o << 8);
      if (H == 2) {
        const u16v high = load<u16v>(odd + next);
        e += (load<u16v>(even + next) - (high << 8)) << 4;
        o += high << 4;
      }
      store(even, e - less);
      store(odd, o - less);
    }
  }
}

// n rows times 2^shift into int32, and back to zero. They hold one chunk, at most 9 * 64 * 7 events: 16 bits are
// enough.
static inline void drain_rows(uint16_t* in, int64_t n, int shift, int32_t* out) {
  for (int64_t r = 0; r < n; ++r, in += kTile, out += kTile)
    for (int c = 0; c < 32; ++c) {
      const int32_t odd = in[32 + c], even = (uint16_t)(in[c] - (odd << 8));
      out[c] += even << shift;
      out[32 + c] += odd << shift;
      in[c] = in[32 + c] = 0;
    }
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
