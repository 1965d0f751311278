// Dense sums: every input value times its row of weights. Values are bytes (AVX-512 VNNI), int16 or int32.
//
// Inputs are copied to rows [position][step][k], k = channels padded to the group of values that one instruction
// takes; padding taps read a row of their own. Weights of a tile are [tap][k / group][64][group].
#pragma once

#include "expand.h"
#include "ranges.h"
#include "values.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

constexpr int kDotRows = 6;  // output rows a time: 24 accumulators and 4 rows of weights fill the registers

template <class X>
struct Dot;  // weight type B, group, expand(tile, row, valid rows, bits, out) of one group, run(...)

// Without a dot instruction: one value at a time; zeros are skipped.
template <class X>
struct PlainDot {
  typedef int16_t B;
  static constexpr int group = 1;

  static void expand(const uint8_t* tile, int64_t row, int, int bits, B* out) {
    int8_t w[kTile];
    decode_row(tile, row, bits, w);
    for (int c = 0; c < kTile; ++c) out[c] = w[c];
  }

  static void run(const X* const* a, int rows, int taps, int k, const B* b, int32_t* acc) {
    for (int m = 0; m < rows; ++m, acc += kTile)
      for (int tap = 0; tap < taps; ++tap) {
        const X* x = a[tap * kDotRows + m];
        const B* w = b + (int64_t)tap * k * kTile;
        for (int i = 0; i < k; ++i, w += kTile) {
          const int32_t value = x[i];
          if (value == 0) continue;
          for (int c = 0; c < kTile; ++c) acc[c] = (int32_t)((uint32_t)acc[c] + (uint32_t)value * (uint32_t)w[c]);
        }
      }
  }
};

template <>
struct Dot<int32_t> : PlainDot<int32_t> {};

#if defined(PTQ_AVX512) || defined(PTQ_AVX2)

#if defined(PTQ_AVX512)
static inline i32v dot_pairs(i32v acc, i32v x, i32v w) {
  return (i32v)_mm512_dpwssd_epi32((__m512i)acc, (__m512i)x, (__m512i)w);
}
#else
static inline i32v dot_pairs(i32v acc, i32v x, i32v w) {
  return (i32v)((u32v)acc + (u32v)_mm256_madd_epi16((__m256i)x, (__m256i)w));
}
#endif

// R output rows by V registers of channels from register v0 on.
template <int R, int V, class X, class B, class F>
static inline void dot_block(const X* const* a, int taps, int k, int group, const B* b, int v0, int32_t* acc, F dot) {
  constexpr int kRow = kTile / kLanes;  // registers of a tile
  i32v sum[R][V];
  for (int m = 0; m < R; ++m)
    for (int v = 0; v < V; ++v) sum[m][v] = load<i32v>(acc + m * kTile + (v0 + v) * kLanes);
  const i32v* w = reinterpret_cast<const i32v*>(b) + v0;
  for (int tap = 0; tap < taps; ++tap) {
    const X* const* x = a + tap * kDotRows;
    for (int i = 0; i < k; i += group, w += kRow) {
      i32v row[V];
      for (int v = 0; v < V; ++v) row[v] = w[v];
#pragma GCC unroll 8
      for (int m = 0; m < R; ++m) {
        const i32v value = same(load<int32_t>(x[m] + i));
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) sum[m][v] = dot(sum[m][v], value, row[v]);
      }
    }
  }
  for (int m = 0; m < R; ++m)
    for (int v = 0; v < V; ++v) store(acc + m * kTile + (v0 + v) * kLanes, sum[m][v]);
}

template <class X, class B, class F>
static inline void dot_rows(const X* const* a, int rows, int taps, int k, int group, const B* b, int32_t* acc, F dot) {
  constexpr int kV = kBytes == 64 ? 4 : 2;  // registers of channels a time
  constexpr int kR = kBytes == 64 ? 6 : 3;  // rows a time
  for (int v = 0; v < kTile / kLanes; v += kV) {
    int m = 0;
    for (; m + kR <= rows; m += kR) dot_block<kR, kV>(a + m, taps, k, group, b, v, acc + m * kTile, dot);
    for (; m < rows; ++m) dot_block<1, kV>(a + m, taps, k, group, b, v, acc + m * kTile, dot);
  }
}

template <>
struct Dot<int16_t> {
  typedef int16_t B;
  static constexpr int group = 2;

  static void expand(const uint8_t* tile, int64_t row, int valid, int bits, B* out) {
    int8_t w[2][kTile] = {};
    for (int i = 0; i < valid; ++i) decode_row(tile, row + i, bits, w[i]);
    for (int c = 0; c < kTile; ++c) out[2 * c] = w[0][c], out[2 * c + 1] = w[1][c];
  }

  static void run(const int16_t* const* a, int rows, int taps, int k, const B* b, int32_t* acc) {
    dot_rows(a, rows, taps, k, group, b, acc, dot_pairs);
  }
};
#else
template <>
struct Dot<int16_t> : PlainDot<int16_t> {};
#endif

#if defined(PTQ_AVX512)
static inline i32v dot_bytes(i32v acc, i32v x, i32v w) {
  return (i32v)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)x, (__m512i)w);
}

// Byte order of a row from which interleaving gives 16 channels in order: at 16 L + 4 q + d channel 16 q + 4 L + d.
static inline __m512i byte_order() {
  alignas(64) uint8_t order[kTile];
  for (int j = 0; j < kTile; ++j) {
    const int c = 16 * ((j >> 2) & 3) + 4 * (j >> 4) + (j & 3);
    order[j] = (uint8_t)(c < 32 ? 2 * c : 2 * (c - 32) + 1);
  }
  return _mm512_load_si512(order);
}

template <>
struct Dot<uint8_t> {
  typedef int8_t B;
  static constexpr int group = 4;

  static __m512i row_bytes(const uint8_t* tile, int64_t row, int bits) {
    if (!is_nibbles(bits))  // minus 128
      return _mm512_xor_si512(_mm512_loadu_si512(tile + row * kTile), _mm512_set1_epi8((char)128));
    __m512i x = _mm512_loadu_si512(tile + (row / 2) * kTile);
    if (row % 2) x = _mm512_srli_epi16(x, 4);
    return _mm512_sub_epi8(_mm512_and_si512(x, _mm512_set1_epi8(15)), _mm512_set1_epi8(8));
  }

  static void expand(const uint8_t* tile, int64_t row, int valid, int bits, B* out) {
    const __m512i order = byte_order();
    __m512i r[4];
    for (int i = 0; i < 4; ++i)
      r[i] = i < valid ? _mm512_permutexvar_epi8(order, row_bytes(tile, row + i, bits)) : _mm512_setzero_si512();
    const __m512i a = _mm512_unpacklo_epi8(r[0], r[1]), b = _mm512_unpackhi_epi8(r[0], r[1]);
    const __m512i c = _mm512_unpacklo_epi8(r[2], r[3]), d = _mm512_unpackhi_epi8(r[2], r[3]);
    _mm512_storeu_si512(out, _mm512_unpacklo_epi16(a, c));
    _mm512_storeu_si512(out + 64, _mm512_unpackhi_epi16(a, c));
    _mm512_storeu_si512(out + 128, _mm512_unpacklo_epi16(b, d));
    _mm512_storeu_si512(out + 192, _mm512_unpackhi_epi16(b, d));
  }

  static void run(const uint8_t* const* a, int rows, int taps, int k, const B* b, int32_t* acc) {
    dot_rows(a, rows, taps, k, group, b, acc, dot_bytes);
  }
};
#endif

// One dense projection: inputs copied, weights of a tile expanded, rows of sums made.
template <class X>
struct Dense {
  typedef Dot<X> D;
  const Layer& l;
  const Source& source;
  int first, last, steps, k, offset;  // input positions, steps of the input, padded channels, added to every value
  X *values, *pad;
  typename D::B* weights;
  int32_t* start;  // [64] what sums begin at: the offset taken off
  const X** pointers;

  // `range` bounds the positions of the input; with a null arena this only counts.
  Dense(const Layer& layer, const Source& s, int first_, int last_, Arena& arena) : l(layer), source(s) {
    first = first_, last = last_, steps = steps_of(s);
    k = (int)round_up(l.cin, D::group);
    offset = sizeof(X) == 1 && s.rows && s.rows->type != Type::U8 ? 128 : 0;
    values = arena.take<X>((size_t)(last - first) * steps * k);
    pad = arena.take<X>((size_t)k);
    weights = arena.take<typename D::B>((size_t)l.taps * k * kTile);
    start = arena.take<int32_t>(kTile);
    pointers = arena.take<const X*>((size_t)l.taps * kDotRows);
  }

  void copy_inputs() {
    for (int i = 0; i < k; ++i) pad[i] = (X)offset;
    for (int64_t row = 0; row < (int64_t)(last - first) * steps; ++row) {
      X* out = values + row * k;
      copy_values(source, (int64_t)first * steps + row, offset, out);
      for (int c = l.cin; c < k; ++c) out[c] = 0;
    }
  }

  void expand(int tile) {
    const uint8_t* packed = static_cast<const uint8_t*>(l.weights) + tile_bytes((int64_t)l.taps * l.cin, l.bits) * tile;
    typename D::B* out = weights;
    for (int tap = 0; tap < l.taps; ++tap)
      for (int c = 0; c < k; c += D::group, out += kTile * D::group)
        D::expand(packed, packed_row(l.taps, l.cin, tap, c), min_int(D::group, l.cin - c), l.bits, out);
    std::memset(start, 0, kTile * sizeof(int32_t));
    if (offset == 0) return;
    for (int64_t r = 0; r < (int64_t)l.taps * l.cin; ++r) {
      int8_t w[kTile];
      decode_row(packed, r, l.bits, w);
      for (int c = 0; c < kTile; ++c) start[c] = (int32_t)((uint32_t)start[c] - (uint32_t)(offset * w[c]));
    }
  }

  const X* value(int p, int t, int tap) const {
    const int from = l.tap_table ? l.tap_table[(int64_t)p * l.taps + tap] : p;
    return from < 0 ? pad : values + ((int64_t)(from - first) * steps + t) * k;
  }

  // Sums of positions [begin, end) at the input's steps into acc [position][step][64].
  void run(int begin, int end, int32_t* acc) {
    const int64_t rows = (int64_t)(end - begin) * steps;
    int p = begin, t = 0;  // of the next row
    for (int64_t row = 0; row < rows; row += kDotRows) {
      const int n = (int)(rows - row < kDotRows ? rows - row : kDotRows);
      for (int m = 0; m < n; ++m) {
        for (int tap = 0; tap < l.taps; ++tap) pointers[tap * kDotRows + m] = value(p, t, tap);
        std::memcpy(acc + (row + m) * kTile, start, kTile * sizeof(int32_t));
        if (++t == steps) {
          t = 0;
          ++p;
        }
      }
      D::run(pointers, n, l.taps, k, weights, acc + row * kTile);
    }
  }
};

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
