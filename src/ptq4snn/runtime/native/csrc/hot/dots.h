// Sums of products of some rows of inputs with a tile of weights, as many channels wide as there are.
#pragma once

#include "expand.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

// Inputs of some output rows: row m reads k values at a[tap] + m * k under each of its taps. Weights are
// [tap][k / group][64][group]; row m of acc begins at `start`.
template <class X, class B>
struct Dots {
  const X* const* a;
  int rows, taps, k;
  const B* weights;
  const int32_t* start;
  int32_t* acc;
  int channels;  // of the 64 that exist
  int stride;    // of acc; where it is less than a register, a row is written over the one behind it, which follows
};

template <class X>
struct Dot;  // weight type B, group, expand(tile, row, valid rows, bits, out) of one group, run(dots, most value)

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

  static void run(const Dots<X, B>& d, int) {
    const int width = (int)round_up(d.channels, kUnit);
    int32_t* acc = d.acc;
    for (int m = 0; m < d.rows; ++m, acc += d.stride) {
      std::memcpy(acc, d.start, (size_t)width * sizeof(int32_t));
      for (int tap = 0; tap < d.taps; ++tap) {
        const X* x = d.a[tap] + (int64_t)m * d.k;
        const B* w = d.weights + (int64_t)tap * d.k * kTile;
        for (int i = 0; i < d.k; ++i, w += kTile) {
          const int32_t value = x[i];
          if (value == 0) continue;
          for (int c = 0; c < width; ++c) acc[c] = (int32_t)((uint32_t)acc[c] + (uint32_t)value * (uint32_t)w[c]);
        }
      }
    }
  }
};

template <>
struct Dot<int32_t> : PlainDot<int32_t> {};

#if defined(PTQ_AVX512) || defined(PTQ_AVX2)

// Pairs of int16, each with its pair of weights.
struct Pairs {
  static constexpr int group = 2;

  static i32v dot(i32v acc, i32v x, i32v w) {
#if defined(PTQ_AVX512)
    return (i32v)_mm512_dpwssd_epi32((__m512i)acc, (__m512i)x, (__m512i)w);
#else
    return (i32v)((u32v)acc + (u32v)_mm256_madd_epi16((__m256i)x, (__m256i)w));
#endif
  }
};

// Places in R rows that are k apart: a pointer for every four of them.
template <int R, class X>
struct FourRows {
  const X* of[(R + 3) / 4];
  int64_t k, k3;

  FourRows(const X* first, int64_t k_) : k(k_), k3(3 * k_) {
    for (int i = 0; i < (R + 3) / 4; ++i) of[i] = first + 4 * i * k;
  }
  void go_on(int n) {
    for (int i = 0; i < (R + 3) / 4; ++i) of[i] += n;
  }
  const X* at(int m) const { return of[m / 4] + (m % 4 == 3 ? k3 : m % 4 * k); }
};

// R output rows from row m on by V registers of channels from register v0 on.
template <int R, int V, class F, class X, class B>
static inline void dot_block(const Dots<X, B>& d, int m0, int v0) {
  constexpr int kRow = kTile / kLanes;  // registers of a tile
  i32v sum[R][V];
#pragma GCC unroll 12
  for (int m = 0; m < R; ++m)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[m][v] = load<i32v>(d.start + (v0 + v) * kLanes);
  const i32v* w = reinterpret_cast<const i32v*>(d.weights) + v0;
  const int64_t k = d.k;
  for (int tap = 0; tap < d.taps; ++tap) {
    FourRows<R, X> x(d.a[tap] + m0 * k, k);
    for (int64_t i = 0; i < k; i += F::group, w += kRow, x.go_on(F::group)) {
      i32v row[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) row[v] = w[v];
#pragma GCC unroll 12
      for (int m = 0; m < R; ++m) {
        const i32v value = same(load<int32_t>(x.at(m)));
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sum[m][v] = F::dot(sum[m][v], value, row[v]);
      }
    }
  }
#pragma GCC unroll 12
  for (int m = 0; m < R; ++m)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) store(d.acc + (int64_t)(m0 + m) * d.stride + (v0 + v) * kLanes, sum[m][v]);
}

// All rows, R at a time, the rest by fours and one by one.
template <int R, int V, class Each>
static inline void dot_columns(int rows, const Each& each) {
  int m = 0;
  for (; m + R <= rows; m += R) each.template block<R, V>(m);
  for (; m + 4 <= rows; m += 4) each.template block<4, V>(m);
  for (; m < rows; ++m) each.template block<1, V>(m);
}

// Blocks as wide as there are channels; accumulators, weights and a value fit the registers.
template <class Each>
static inline void dot_tile(int rows, int channels, Each each) {
  const int registers = (channels + kLanes - 1) / kLanes;
  if constexpr (kBytes == 64) {
    switch (registers) {
      case 1: return dot_columns<12, 1>(rows, each);
      case 2: return dot_columns<12, 2>(rows, each);
      case 3: return dot_columns<6, 3>(rows, each);
      default: return dot_columns<6, 4>(rows, each);
    }
  } else {
    for (each.v0 = 0; each.v0 + 2 <= registers; each.v0 += 2) dot_columns<4, 2>(rows, each);
    if (each.v0 < registers) dot_columns<6, 1>(rows, each);
  }
}

template <class F, class X, class B>
struct DotBlocks {
  const Dots<X, B>& d;
  int v0;

  template <int R, int V>
  void block(int m) const {
    dot_block<R, V, F>(d, m, v0);
  }
};

template <class F, class X, class B>
static inline void dot_rows(const Dots<X, B>& d) {
  dot_tile(d.rows, d.channels, DotBlocks<F, X, B>{d, 0});
}

template <>
struct Dot<int16_t> {
  typedef int16_t B;
  static constexpr int group = 2;

  static void expand(const uint8_t* tile, int64_t row, int valid, int bits, B* out) {
    int8_t w[2][kTile] = {};
    for (int i = 0; i < valid; ++i) decode_row(tile, row + i, bits, w[i]);
    uint32_t pairs[kTile];
    for (int c = 0; c < kTile; ++c) pairs[c] = (uint16_t)w[0][c] | (uint32_t)(uint16_t)w[1][c] << 16;
    std::memcpy(out, pairs, sizeof pairs);
  }

  static void run(const Dots<int16_t, B>& d, int) { dot_rows<Pairs>(d); }
};
#else
template <>
struct Dot<int16_t> : PlainDot<int16_t> {};
#endif

#if defined(PTQ_AVX512)
// Four bytes, each with its weight.
struct Fours {
  static constexpr int group = 4;

  static i32v dot(i32v acc, i32v x, i32v w) { return (i32v)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)x, (__m512i)w); }
};

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

  static void run(const Dots<uint8_t, B>& d, int) { dot_rows<Fours>(d); }
};
#elif defined(PTQ_AVX2)
// R rows by V registers of bytes: pairs of products add up in 16 bits, `most` groups of four at a time, then in 32.
template <int R, int V>
static inline void byte_block(const Dots<uint8_t, int8_t>& d, int most, int m0, int v0) {
  constexpr int kRow = kTile / kLanes;
  i32v sum[R][V] = {};
  const int64_t stride = d.stride;
  int32_t* const acc = d.acc + m0 * stride + v0 * kLanes;
  for (int m = 0; m < R; ++m)
    for (int v = 0; v < V; ++v) store(acc + m * stride + v * kLanes, load<i32v>(d.start + (v0 + v) * kLanes));
  const auto flush = [&] {
#pragma GCC unroll 6
    for (int m = 0; m < R; ++m)
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        int32_t* to = acc + m * stride + v * kLanes;
        const u32v pairs = (u32v)_mm256_madd_epi16((__m256i)sum[m][v], _mm256_set1_epi16(1));
        store(to, load<u32v>(to) + pairs);
        sum[m][v] = i32v{};
      }
  };
  const i32v* w = reinterpret_cast<const i32v*>(d.weights) + v0;
  int left = most;
  for (int tap = 0; tap < d.taps; ++tap) {
    FourRows<R, uint8_t> x(d.a[tap] + (int64_t)m0 * d.k, d.k);
    for (int i = 0; i < d.k;) {
      const int end = min_int(d.k, i + 4 * left);
      left -= (end - i) / 4;
      for (; i < end; i += 4, w += kRow, x.go_on(4)) {
#pragma GCC unroll 6
        for (int m = 0; m < R; ++m) {
          const i32v value = same(load<int32_t>(x.at(m)));
#pragma GCC unroll 2
          for (int v = 0; v < V; ++v) {
            const __m256i products = _mm256_maddubs_epi16((__m256i)value, (__m256i)w[v]);
            sum[m][v] = (i32v)_mm256_add_epi16((__m256i)sum[m][v], products);
          }
        }
      }
      if (left == 0) flush(), left = most;
    }
  }
  flush();
}

struct ByteBlocks {
  const Dots<uint8_t, int8_t>& d;
  int most, v0;

  template <int R, int V>
  void block(int m) const {
    byte_block<R, V>(d, most, m, v0);
  }
};

template <>
struct Dot<uint8_t> {
  typedef int8_t B;
  static constexpr int group = 4;

  static void expand(const uint8_t* tile, int64_t row, int valid, int bits, B* out) {
    int8_t w[4][kTile] = {};
    for (int i = 0; i < valid; ++i) decode_row(tile, row + i, bits, w[i]);
    for (int c = 0; c < kTile; c += 16, out += 64) {
      __m128i r[4];
      for (int i = 0; i < 4; ++i) r[i] = load<__m128i>(w[i] + c);
      const __m128i a = _mm_unpacklo_epi8(r[0], r[1]), b = _mm_unpackhi_epi8(r[0], r[1]);
      const __m128i e = _mm_unpacklo_epi8(r[2], r[3]), f = _mm_unpackhi_epi8(r[2], r[3]);
      store(out, _mm_unpacklo_epi16(a, e)), store(out + 16, _mm_unpackhi_epi16(a, e));
      store(out + 32, _mm_unpacklo_epi16(b, f)), store(out + 48, _mm_unpackhi_epi16(b, f));
    }
  }

  // `most`: the largest product.
  static void run(const Dots<uint8_t, B>& d, int most) {
    dot_tile(d.rows, d.channels, ByteBlocks{d, 32767 / (2 * most), 0});
  }
};
#endif

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
