// Event-driven sums that slide along a row of the image, for few events: three taps of a kernel row meet at
// neighbouring outputs, so an output's sum stays in bytes while three input positions pass, and goes to memory once
// instead of three times.
#pragma once

#include "event.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

constexpr bool kCanSlide = kSlots >= 6;
constexpr double kFewEvents = 14;  // mean value of a word up to which sliding was measured to be faster

// Sums in bytes of one output column, R outputs of it.
template <int R>
struct Column {
  u8v a[R][kTileVectors];

  void clear() {
#pragma GCC unroll 3
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) a[r][v] = u8v{};
  }

  void add(const uint8_t* row) {
#pragma GCC unroll 3
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) a[r][v] += load<u8v>(row + 3 * r * kTile + v * kBytes);
  }

  void flush(uint16_t* const* to, int64_t at) const {
#pragma GCC unroll 3
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) {
        uint16_t *total = to[r] + at + v * (kBytes / 2), *odd = total + 32;
        store(total, load<u16v>(total) + (u16v)a[r][v]);
        store(odd, load<u16v>(odd) + ((u16v)a[r][v] >> 8));
      }
  }
};

// The columns that the current position adds to: the last one it can reach, its own, the next one.
template <int R>
struct Columns {
  Column<R> last, own, next;

  void add_all(uint64_t x, const uint8_t* rows, int64_t channel, bool twice) {
    for (; x; x &= x - 1) {
      const uint8_t* row = rows + (int64_t)__builtin_ctzll(x) * channel;
      for (int i = 0; i <= (int)twice; ++i) next.add(row), own.add(row + kTile), last.add(row + 2 * kTile);
    }
  }
};

// R rows of three taps; one step after the other.
template <int R, bool values>
static void slide(const Stretch& in, const Slots& slots, const uint64_t* first, int64_t start) {
  const uint8_t* const rows = in.rows + slots.offset[0];
  const int64_t channel = in.channel, out = in.out;
  uint16_t* own[R];
  for (int r = 0; r < R; ++r) own[r] = slots.to[3 * r + 1];
  for (int t = 0; t < in.steps; ++t) {
    const uint64_t* words = first + t * in.step;
    int64_t at = start + t * kTile;
    Columns<R> c;
    c.last.clear(), c.own.clear();
    int held = 0, before = 0;  // events in the last column, at the position before
    for (int i = 0; i < in.count; ++i, words += in.position, at += out) {
      const uint64_t x = words[0], twos = values ? words[in.plane] : 0;
      const int n = __builtin_popcountll(x) + 2 * __builtin_popcountll(twos);
      if (held + n > kByteAdds) {
        c.last.flush(own, at - out), c.own.flush(own, at);
        c.last.clear(), c.own.clear();
        held = before = 0;
        if (n > kByteAdds) {
          scatter_many<3 * R, true>(in, words, rows, slots, start + t * kTile + i * out);
          continue;
        }
      }
      c.next.clear();
      c.add_all(x, rows, channel, false);
      if (values) c.add_all(twos, rows, channel, true);
      c.last.flush(own, at - out);
      c.last = c.own, c.own = c.next;
      held = before + n, before = n;
    }
    c.last.flush(own, at - out), c.own.flush(own, at);
  }
}

// Whether the slots are rows of three taps side by side whose outputs lie side by side, the last tap's first, and move
// on by one: what a position adds to, its neighbour adds to as well.
static inline bool can_slide(const Stretch& in, const Slots& slots, int used) {
  const int64_t column = (int64_t)in.steps * kTile;
  bool slides = in.out == column;
  for (int m = 1; m < used; ++m) {
    slides &= slots.offset[m] == slots.offset[0] + m * kTile;
    slides &= m % 3 == 0 || slots.to[m] == slots.to[m - 1] - column;
  }
  return slides;
}

// For `used` slots, or null.
static inline Scatter slide_for(const Stretch& in, const Slots& slots, int used) {
  if constexpr (kCanSlide) {
    const int planes = in.planes;
    if (planes > 2 || !can_slide(in, slots, used)) return nullptr;
#if defined(PTQ_AVX512)
    if (used == 9) return planes == 1 ? slide<3, false> : slide<3, true>;
#endif
    if (used == 6) return planes == 1 ? slide<2, false> : slide<2, true>;
    if (used == 3) return planes == 1 ? slide<1, false> : slide<1, true>;
  }
  return nullptr;
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
