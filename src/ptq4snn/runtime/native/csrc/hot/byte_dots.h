// Products of bytes: four to a lane (AVX-512 VNNI), or pairs that add up in 16 bits (AVX2).
#pragma once

#include "dots.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

#if defined(PTQ_AVX512)
// Four bytes, each with its weight.
struct Fours {
  typedef i32v V;
  static constexpr int group = 4;

  static i32v dot(i32v acc, i32v x, i32v w) { return (i32v)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)x, (__m512i)w); }
};

// The same for eight channels: half a register, of which some machines add two in the time of a whole one.
struct FewFours {
  typedef int32_t V __attribute__((vector_size(32)));
  static constexpr int group = 4;

  static V dot(V acc, V x, V w) { return (V)_mm256_dpbusd_epi32((__m256i)acc, (__m256i)x, (__m256i)w); }
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

  static void run(const Dots<uint8_t, B>& d, int) {
    if (d.channels > 8) return dot_rows<Fours>(d);
    dot_columns<12, 1>(d.rows, DotBlocks<FewFours, uint8_t, B>{d, 0});
  }
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
