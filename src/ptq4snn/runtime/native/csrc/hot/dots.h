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

// a0, b0, a1, b1, ...
static inline void store_pairs(u16v a, u16v b, int16_t* out) {
#if defined(PTQ_AVX512)
  const __m512i x = _mm512_unpacklo_epi16((__m512i)a, (__m512i)b), y = _mm512_unpackhi_epi16((__m512i)a, (__m512i)b);
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  _mm512_storeu_si512(out, _mm512_permutex2var_epi64(x, first, y));
  _mm512_storeu_si512(out + 32, _mm512_permutex2var_epi64(x, _mm512_add_epi64(first, _mm512_set1_epi64(4)), y));
#else
  const __m256i x = _mm256_unpacklo_epi16((__m256i)a, (__m256i)b), y = _mm256_unpackhi_epi16((__m256i)a, (__m256i)b);
  store(out, _mm256_permute2x128_si256(x, y, 0x20)), store(out + 16, _mm256_permute2x128_si256(x, y, 0x31));
#endif
}

// Pairs of int16, each with its pair of weights.
struct Pairs {
  typedef i32v V;
  static constexpr int group = 2;

  static i32v dot(i32v acc, i32v x, i32v w) {
#if defined(PTQ_VNNI)
    return (i32v)_mm512_dpwssd_epi32((__m512i)acc, (__m512i)x, (__m512i)w);
#elif defined(PTQ_AVX512)
    return (i32v)((u32v)acc + (u32v)_mm512_madd_epi16((__m512i)x, (__m512i)w));
#else
    return (i32v)((u32v)acc + (u32v)_mm256_madd_epi16((__m256i)x, (__m256i)w));
#endif
  }
};

// R output rows from row m on by N registers of channels from register v0 on.
template <int R, int N, class F, class X, class B>
static inline void dot_block(const Dots<X, B>& d, int m0, int v0) {
  typedef typename F::V V;
  constexpr int kEach = sizeof(V) / 4, kRow = kTile / kEach;  // channels of a register, registers of a tile
  V sum[R][N];
#pragma GCC unroll 12
  for (int m = 0; m < R; ++m)
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) sum[m][v] = load<V>(d.start + (v0 + v) * kEach);
  const V* w = reinterpret_cast<const V*>(d.weights) + v0;
  const int64_t k = d.k;
  for (int tap = 0; tap < d.taps; ++tap) {
    FourRows<R, X> x(d.a[tap] + m0 * k, k);
    for (int64_t i = 0; i < k; i += F::group, w += kRow, x.go_on(F::group)) {
      V row[N];
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) row[v] = w[v];
#pragma GCC unroll 12
      for (int m = 0; m < R; ++m) {
        const V value = V{} + load<int32_t>(x.at(m));
#pragma GCC unroll 4
        for (int v = 0; v < N; ++v) sum[m][v] = F::dot(sum[m][v], value, row[v]);
      }
    }
  }
#pragma GCC unroll 12
  for (int m = 0; m < R; ++m)
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) store(d.acc + (int64_t)(m0 + m) * d.stride + (v0 + v) * kEach, sum[m][v]);
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
    for (int v = 0; v < kTileVectors; ++v, out += kBytes) {
      const u16v offset = u16v{} + (uint16_t)weight_offset(bits);
      const u16v a = row_register(tile, row, bits, v), b = valid > 1 ? row_register(tile, row + 1, bits, v) : u16v{};
      const u16v less = valid > 1 ? offset : u16v{};
      store_pairs((a & 255) - offset, (b & 255) - less, out);
      store_pairs((a >> 8) - offset, (b >> 8) - less, out + kTile);
    }
  }

  static void run(const Dots<int16_t, B>& d, int) { dot_rows<Pairs>(d); }
};
#else
template <>
struct Dot<int16_t> : PlainDot<int16_t> {};
#endif

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
