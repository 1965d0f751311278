// Event-driven sums: for every event the rows of weights of all taps that see it are added, each to the accumulator of
// the output position it belongs to. Events are read off the bits; there are no lists.
//
// Weights are halves of bytes, w + 8 in 0..15 (bytes are two halves, 16 h + l): 17 of them add up in a byte. Then even
// and odd bytes are widened: `sums` holds total = sum of (256 odd + even) and the sum of odd, modulo 2^16, so that
// even = total - 256 odd. The offset of the weights is taken off at the end.
#pragma once

#include "expand.h"
#include "ranges.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

#if defined(PTQ_AVX512)
constexpr int kSlots = 9;  // accumulators in registers
#elif defined(PTQ_AVX2)
constexpr int kSlots = 6;
#elif defined(__aarch64__)
constexpr int kSlots = 6;
#else
constexpr int kSlots = 3;
#endif
constexpr int kByteAdds = 17;  // 17 * 15 = 255

// The events of 64 channels at some input positions and every step, and the rows they select.
struct Stretch {
  int count, planes, steps;
  int64_t plane, step, position;  // distances in words
  int64_t out;                    // distance of the sums of two positions
  const uint8_t* rows;            // row of the first channel
  int64_t channel;                // bytes between the rows of two channels
};

// Where rows are taken from and go to: slot m adds rows at `offset[m]` to the sums `to[m]` of the first position and
// step.
struct Slots {
  int64_t offset[kSlots];
  uint16_t* to[kSlots];
};

// Sums of M slots in bytes. `together`: the rows of the slots lie side by side.
template <int M, bool together>
struct Bytes {
  u8v a[M][kTileVectors];

  void clear() {
    for (int m = 0; m < M; ++m)
      for (int v = 0; v < kTileVectors; ++v) a[m][v] = u8v{};
  }

  void twice() {
    for (int m = 0; m < M; ++m)
      for (int v = 0; v < kTileVectors; ++v) a[m][v] += a[m][v];
  }

  void add(const uint8_t* row, const Slots& s) {
#pragma GCC unroll 9
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v)
        a[m][v] += load<u8v>(row + (together ? m * kTile : s.offset[m]) + v * kBytes);
  }

  void set(const uint8_t* row, const Slots& s) {
#pragma GCC unroll 9
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v)
        a[m][v] = load<u8v>(row + (together ? m * kTile : s.offset[m]) + v * kBytes);
  }

  // The rows of all channels in x.
  void add_all(uint64_t x, const uint8_t* rows, int64_t channel, const Slots& s) {
    for (; x; x &= x - 1) add(rows + (int64_t)__builtin_ctzll(x) * channel, s);
  }

  // The same from zero; x is not zero.
  void set_all(uint64_t x, const uint8_t* rows, int64_t channel, const Slots& s) {
    set(rows + (int64_t)__builtin_ctzll(x) * channel, s);
    add_all(x & (x - 1), rows, channel, s);
  }

  // Both into the sums; each may hold as much as bytes can.
  void flush_with(const Bytes& b, const Slots& s, int64_t at) const {
#pragma GCC unroll 9
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) {
        uint16_t *total = s.to[m] + at + v * (kBytes / 2), *odd = total + 32;
        store(total, load<u16v>(total) + (u16v)a[m][v] + (u16v)b.a[m][v]);
        store(odd, load<u16v>(odd) + ((u16v)a[m][v] >> 8) + ((u16v)b.a[m][v] >> 8));
      }
  }

  // Into the sums, times 2^q.
  void flush(const Slots& s, int64_t at, int q) const {
#pragma GCC unroll 9
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) {
        uint16_t *total = s.to[m] + at + v * (kBytes / 2), *odd = total + 32;
        store(total, load<u16v>(total) + ((u16v)a[m][v] << q));
        store(odd, load<u16v>(odd) + ((u16v)a[m][v] >> 8 << q));
      }
  }
};

// The lowest n set bits of x; it has more.
static inline uint64_t lowest_bits(uint64_t x, int n) {
#if defined(__BMI2__)
  return x & (_pdep_u64((uint64_t)1 << n, x) - 1);
#else
  uint64_t rest = x;
  for (int i = 0; i < n; ++i) rest &= rest - 1;
  return x ^ rest;
#endif
}

// One step of any number of events: 17 at a time into the sums, plane by plane.
template <int M, bool together>
static __attribute__((noinline)) void scatter_many(const Stretch& in, const uint64_t* words, const uint8_t* rows,
                                                   const Slots& slots, int64_t at) {
  for (int q = in.planes - 1; q >= 0; --q)
    for (uint64_t x = words[q * in.plane]; x;) {
      const uint64_t some = __builtin_popcountll(x) > kByteAdds ? lowest_bits(x, kByteAdds) : x;
      Bytes<M, together> bytes;
      bytes.set_all(some, rows, in.channel, slots);
      bytes.flush(slots, at, q);
      x ^= some;
    }
}

// Values in two planes: the second plane is doubled in bytes of its own, which also take what the others cannot.
template <int M, bool together>
static void scatter_values(const Stretch& in, const Slots& slots, const uint64_t* first, int64_t to) {
  const uint8_t* const rows = in.rows + (together ? slots.offset[0] : 0);
  const int64_t channel = in.channel, plane = in.plane;
  const bool two = in.planes == 2;
  for (int i = 0; i < in.count; ++i) {
    const uint64_t* words = first + i * in.position;
    int64_t at = to + i * in.out;
    for (int t = 0; t < in.steps; ++t, at += kTile, words += in.step) {
      const uint64_t x = words[0], twos = words[plane];
      const int n = __builtin_popcountll(x), over = n > kByteAdds ? n - kByteAdds : 0;
      if (!two || over + 2 * __builtin_popcountll(twos) > kByteAdds) {
        scatter_many<M, together>(in, words, rows, slots, at);
        continue;
      }
      Bytes<M, together> bytes;
      if (twos == 0 && over == 0) {
        if (x == 0) continue;
        bytes.set_all(x, rows, channel, slots);
        bytes.flush(slots, at, 0);
        continue;
      }
      const uint64_t some = over ? lowest_bits(x, kByteAdds) : x;
      Bytes<M, together> others;
      others.clear();
      others.add_all(twos, rows, channel, slots);
      others.twice();
      others.add_all(x ^ some, rows, channel, slots);
      bytes.clear();
      bytes.add_all(some, rows, channel, slots);
      bytes.flush_with(others, slots, at);
    }
  }
}

// Spikes in one plane.
template <int M, bool together>
static void scatter(const Stretch& in, const Slots& slots, const uint64_t* first, int64_t to) {
  const uint8_t* const rows = in.rows + (together ? slots.offset[0] : 0);
  const int64_t channel = in.channel, step = in.step;
  for (int i = 0; i < in.count; ++i) {
    const uint64_t* words = first + i * in.position;
    int64_t at = to + i * in.out;
    for (int t = 0; t < in.steps; ++t, at += kTile, words += step) {
      const uint64_t x = words[0];
      if (__builtin_popcountll(x) > kByteAdds) {
        scatter_many<M, together>(in, words, rows, slots, at);
      } else if (x) {
        Bytes<M, together> bytes;
        bytes.set_all(x, rows, channel, slots);
        bytes.flush(slots, at, 0);
      }
    }
  }
}

// From the words of the first position on, to the sums `to` numbers behind those of the slots.
typedef void (*Scatter)(const Stretch&, const Slots&, const uint64_t* first, int64_t to);

template <bool together>
static inline Scatter scatter_of(int slots, int planes) {
#define PTQ_BOTH(M) \
  { scatter<M, together>, scatter_values<M, together> }
  static const Scatter kAll[][2] = {
    {nullptr, nullptr},
    PTQ_BOTH(1),
    PTQ_BOTH(2),
    PTQ_BOTH(3),
#if defined(PTQ_AVX512) || defined(PTQ_AVX2) || defined(__aarch64__)
    PTQ_BOTH(4),
    PTQ_BOTH(5),
    PTQ_BOTH(6),
#endif
#if defined(PTQ_AVX512)
    PTQ_BOTH(7),
    PTQ_BOTH(8),
    PTQ_BOTH(9),
#endif
  };
#undef PTQ_BOTH
  return kAll[slots][planes > 1];
}

static inline Scatter scatter_for(const Slots& slots, int used, int planes) {
  bool together = true;
  for (int m = 1; m < used; ++m) together &= slots.offset[m] - slots.offset[m - 1] == kTile;
  return together ? scatter_of<true>(used, planes) : scatter_of<false>(used, planes);
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
