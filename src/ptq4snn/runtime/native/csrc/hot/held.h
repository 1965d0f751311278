// States of a block of positions as neurons read and write them: numbers of 32, 16, 8 or 4 bits, whole units of
// channels.
#pragma once

#include "vector.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

// kLanes numbers of 4 bits that begin with a byte, the lower half of it first.
static inline i32v load_nibbles(const uint8_t* p) {
#if defined(PTQ_AVX512)
  const __m512i first = _mm512_set1_epi32(load<int32_t>(p));
  const __m512i all = _mm512_mask_set1_epi32(first, 0xff00, load<int32_t>(p + 4));
  const __m512i shifts = _mm512_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0, 28, 24, 20, 16, 12, 8, 4, 0);
  return (i32v)_mm512_srai_epi32(_mm512_sllv_epi32(all, shifts), 28);
#elif defined(PTQ_AVX2)
  const __m256i all = _mm256_set1_epi32(load<int32_t>(p));
  const __m256i shifts = _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0);
  return (i32v)_mm256_srai_epi32(_mm256_sllv_epi32(all, shifts), 28);
#else
  i32v x;
  for (int i = 0; i < kLanes; ++i) x[i] = (((p[i / 2] >> (4 * (i % 2))) & 15) ^ 8) - 8;
  return x;
#endif
}

// The inverse, of numbers that fit.
static inline void store_nibbles(uint8_t* p, const i32v* x) {
#if defined(PTQ_AVX2)
#if defined(PTQ_AVX512)
  const __m128i bytes = _mm512_cvtepi32_epi8((__m512i)x[0]);
#else
  __m128i parts[4];
  std::memcpy(parts, x, sizeof parts);
  const __m128i bytes = _mm_packs_epi16(_mm_packs_epi32(parts[0], parts[1]), _mm_packs_epi32(parts[2], parts[3]));
#endif
  const __m128i low = _mm_and_si128(bytes, _mm_set1_epi8(15));
  const __m128i pairs = _mm_maddubs_epi16(low, _mm_set1_epi16(16 * 256 + 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(pairs, pairs));
#else
  for (int i = 0; i < kUnit; i += 2)
    p[i / 2] = (uint8_t)((x[i / kLanes][i % kLanes] & 15) | x[i / kLanes][i % kLanes + 1] << 4);
#endif
}

class Held {
 public:
  Held() = default;

  // `row`: bytes between two positions.
  Held(char* data, int bits, int64_t row) : from_(data), to_(data), bits_(bits), row_(row) {}

  // Widths of packed fields that are read where they are.
  static constexpr bool reads(int bits) { return bits == 32 || bits == 16 || bits == 8 || bits == 4; }

  void set(const uint8_t* from, uint8_t* to) {
    from_ = reinterpret_cast<const char*>(from), to_ = reinterpret_cast<char*>(to);
  }

  // Of a number; 0: there are none, neurons begin at 0 and nothing is kept.
  int bits() const { return from_ ? bits_ : 0; }

  int64_t place(int p, int c) const { return p * row_ + (int64_t)c * bits_ / 8; }  // in bytes

  Held behind(int p, int c) const {
    Held out = *this;
    if (from_) out.from_ += place(p, c), out.to_ += place(p, c);
    return out;
  }

  // The first kUnit channels of position p.
  template <int bits>
  void get(int p, i32v* x) const {
    const char* at = from_ + p * row_;
    for (int k = 0; k < kUnitVectors; ++k) {
      const int i = k * kLanes;
      if (bits == 4) x[k] = load_nibbles(reinterpret_cast<const uint8_t*>(at) + i / 2);
      if (bits == 8) x[k] = load_lanes(reinterpret_cast<const int8_t*>(at) + i);
      if (bits == 16) x[k] = load_lanes(reinterpret_cast<const int16_t*>(at) + i);
      if (bits == 32) x[k] = load_lanes(reinterpret_cast<const int32_t*>(at) + i);
    }
  }

  template <int bits>
  void put(int p, const i32v* x) const {
    char* at = to_ + p * row_;
    if (bits == 4) return store_nibbles(reinterpret_cast<uint8_t*>(at), x);
    for (int k = 0; k < kUnitVectors; ++k) {
      const int i = k * kLanes;
      if (bits == 8) store_lanes(reinterpret_cast<int8_t*>(at) + i, x[k]);
      if (bits == 16) store_lanes(reinterpret_cast<int16_t*>(at) + i, x[k]);
      if (bits == 32) store_lanes(reinterpret_cast<int32_t*>(at) + i, x[k]);
    }
  }

  // The same, whatever the width.
  void get_any(int p, i32v* x) const {
    with_bits([&](auto bits) { get<bits()>(p, x); });
  }
  void put_any(int p, const i32v* x) const {
    with_bits([&](auto bits) { put<bits()>(p, x); });
  }

 private:
  template <int n>
  struct Bits {
    constexpr int operator()() const { return n; }
  };

  template <class Do>
  void with_bits(const Do& act) const {
    switch (bits()) {
      case 4: return act(Bits<4>());
      case 8: return act(Bits<8>());
      case 16: return act(Bits<16>());
      case 32: return act(Bits<32>());
      default: return;
    }
  }

  const char* from_ = nullptr;
  char* to_ = nullptr;  // may be the same
  int bits_ = 32;
  int64_t row_ = 0;
};

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
