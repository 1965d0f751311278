// Products of bytes: four to a lane (VNNI), or pairs that add up in 16 bits (AVX-512 without it, AVX2).
#pragma once

#include "dots.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

#if defined(PTQ_AVX2)

// Half a register of AVX-512, for eight channels: some machines add two in the time of a whole one.
typedef int32_t i32x8 __attribute__((vector_size(32)));

#if defined(PTQ_VNNI)
// Four bytes, each with its weight.
struct Fours {
  typedef i32v V;
  static constexpr int group = 4;

  static i32v dot(i32v acc, i32v x, i32v w) { return (i32v)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)x, (__m512i)w); }
};

struct FewFours {
  typedef i32x8 V;
  static constexpr int group = 4;

  static V dot(V acc, V x, V w) { return (V)_mm256_dpbusd_epi32((__m256i)acc, (__m256i)x, (__m256i)w); }
};

static inline void run_bytes(const Dots<uint8_t, int8_t>& d, int) {
  if (d.channels > 8) return dot_rows<Fours>(d);
  dot_columns<12, 1>(d.rows, DotBlocks<FewFours, uint8_t, int8_t>{d, 0});
}

#else
// Of four bytes with their weights two sums in 16 bits; both of them in 32.
struct FewBytes {
  typedef i32x8 V;

  static V products(V x, V w) { return (V)_mm256_maddubs_epi16((__m256i)x, (__m256i)w); }
  static V added(V a, V b) { return (V)_mm256_add_epi16((__m256i)a, (__m256i)b); }
  static V widened(V a) { return (V)_mm256_madd_epi16((__m256i)a, _mm256_set1_epi16(1)); }
};

#if defined(PTQ_AVX512)
struct Bytes64 {
  typedef i32v V;

  static V products(V x, V w) { return (V)_mm512_maddubs_epi16((__m512i)x, (__m512i)w); }
  static V added(V a, V b) { return (V)_mm512_add_epi16((__m512i)a, (__m512i)b); }
  static V widened(V a) { return (V)_mm512_madd_epi16((__m512i)a, _mm512_set1_epi16(1)); }
};
#else
typedef FewBytes Bytes64;
#endif

// R rows by N registers of bytes: pairs of products add up in 16 bits, `most` groups of four at a time, then in 32.
template <int R, int N, class F>
static inline void byte_block(const Dots<uint8_t, int8_t>& d, int most, int m0, int v0) {
  typedef typename F::V V;
  constexpr int kEach = sizeof(V) / 4, kRow = kTile / kEach;  // channels of a register, registers of a tile
  V sum[R][N] = {};
  const int64_t stride = d.stride;
  int32_t* const acc = d.acc + m0 * stride + v0 * kEach;
  for (int m = 0; m < R; ++m)
    for (int v = 0; v < N; ++v) store(acc + m * stride + v * kEach, load<V>(d.start + (v0 + v) * kEach));
  const auto flush = [&] {
#pragma GCC unroll 12
    for (int m = 0; m < R; ++m)
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) {
        int32_t* to = acc + m * stride + v * kEach;
        store(to, load<V>(to) + F::widened(sum[m][v]));
        sum[m][v] = V{};
      }
  };
  const V* w = reinterpret_cast<const V*>(d.weights) + v0;
  int left = most;
  for (int tap = 0; tap < d.taps; ++tap) {
    FourRows<R, uint8_t> x(d.a[tap] + (int64_t)m0 * d.k, d.k);
    for (int i = 0; i < d.k;) {
      const int end = min_int(d.k, i + 4 * left);
      left -= (end - i) / 4;
      for (; i < end; i += 4, w += kRow, x.go_on(4)) {
#pragma GCC unroll 12
        for (int m = 0; m < R; ++m) {
          const V value = V{} + load<int32_t>(x.at(m));
#pragma GCC unroll 4
          for (int v = 0; v < N; ++v) sum[m][v] = F::added(sum[m][v], F::products(value, w[v]));
        }
      }
      if (left == 0) flush(), left = most;
    }
  }
  flush();
}

template <class F>
struct ByteBlocks {
  const Dots<uint8_t, int8_t>& d;
  int most, v0;

  template <int R, int N>
  void block(int m) const {
    byte_block<R, N, F>(d, most, m, v0);
  }
};

// `most`: the largest product.
static inline void run_bytes(const Dots<uint8_t, int8_t>& d, int most) {
  const int groups = 32767 / (2 * most);
  if (kBytes == 64 && d.channels <= 8) return dot_columns<12, 1>(d.rows, ByteBlocks<FewBytes>{d, groups, 0});
  dot_tile(d.rows, d.channels, ByteBlocks<Bytes64>{d, groups, 0});
}
#endif

// Four rows, of which `valid` are there, as [64 channels][4].
#if defined(PTQ_VBMI)
// Byte order of a row from which interleaving gives 16 channels in order: at 16 L + 4 q + d channel 16 q + 4 L + d.
static inline __m512i byte_order() {
  alignas(64) uint8_t order[kTile];
  for (int j = 0; j < kTile; ++j) {
    const int c = 16 * ((j >> 2) & 3) + 4 * (j >> 4) + (j & 3);
    order[j] = (uint8_t)(c < 32 ? 2 * c : 2 * (c - 32) + 1);
  }
  return _mm512_load_si512(order);
}

static inline __m512i row_bytes(const uint8_t* tile, int64_t row, int bits) {
  if (!is_nibbles(bits))  // minus 128
    return _mm512_xor_si512(_mm512_loadu_si512(tile + row * kTile), _mm512_set1_epi8((char)128));
  __m512i x = _mm512_loadu_si512(tile + (row / 2) * kTile);
  if (row % 2) x = _mm512_srli_epi16(x, 4);
  return _mm512_sub_epi8(_mm512_and_si512(x, _mm512_set1_epi8(15)), _mm512_set1_epi8(8));
}

static inline void interleave_rows(const uint8_t* tile, int64_t row, int valid, int bits, int8_t* out) {
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
#else
static inline void interleave_rows(const uint8_t* tile, int64_t row, int valid, int bits, int8_t* out) {
  int16_t* to = reinterpret_cast<int16_t*>(out);
  for (int v = 0; v < kTileVectors; ++v, to += kBytes) {
    u16v r[4];
    for (int i = 0; i < 4; ++i)
      r[i] = i < valid ? (u16v)((u8v)row_register(tile, row + i, bits, v) - (uint8_t)weight_offset(bits)) : u16v{};
    store_pairs((r[0] & 255) | r[1] << 8, (r[2] & 255) | r[3] << 8, to);
    store_pairs(r[0] >> 8 | (r[1] & 0xff00), r[2] >> 8 | (r[3] & 0xff00), to + kTile);
  }
}
#endif

template <>
struct Dot<uint8_t> {
  typedef int8_t B;
  static constexpr int group = 4;

  static void expand(const uint8_t* tile, int64_t row, int valid, int bits, B* out) {
    interleave_rows(tile, row, valid, bits, out);
  }

  static void run(const Dots<uint8_t, B>& d, int most) { run_bytes(d, most); }
};

#endif

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
