// Inputs of any form as plain rows of one type.
#pragma once

#include "vector.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

static inline int size_of(Type t) { return t == Type::I16 ? 2 : t == Type::I32 ? 4 : 1; }
static inline int steps_of(const Source& s) { return s.spikes ? s.spikes->steps : s.rows->steps; }

#if defined(PTQ_AVX2) && !defined(PTQ_AVX512)
// 32 bytes: all ones where a bit is set.
static inline __m256i bit_masks(uint32_t half) {
  const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
  const __m256i x = _mm256_shuffle_epi8(_mm256_set1_epi32((int32_t)half), byte);
  return _mm256_cmpeq_epi8(_mm256_and_si256(x, bit), bit);
}
#endif

// The values of 64 channels from their words, `stride` words apart for each plane.
static inline void decode_words(const uint64_t* words, int planes, int stride, uint8_t* out) {
#if defined(PTQ_AVX512)
  __m512i x = _mm512_maskz_set1_epi8(words[0], 1);
  for (int q = 1; q < planes; ++q)
    x = _mm512_mask_or_epi32(x, 0xffff, x, _mm512_maskz_set1_epi8(words[(int64_t)q * stride], (char)(1 << q)));
  _mm512_storeu_si512(out, x);
#elif defined(PTQ_AVX2)
  for (int h = 0; h < 2; ++h) {
    __m256i x = _mm256_setzero_si256();
    for (int q = 0; q < planes; ++q) {
      const __m256i masks = bit_masks((uint32_t)(words[(int64_t)q * stride] >> (32 * h)));
      x = _mm256_or_si256(x, _mm256_and_si256(masks, _mm256_set1_epi8((char)(1 << q))));
    }
    store(out + 32 * h, x);
  }
#else
  for (int byte = 0; byte < 8; ++byte) {  // bits of a byte to the lowest bits of eight bytes
    uint64_t x = 0;
    for (int q = 0; q < planes; ++q) {
      const uint64_t b = (words[(int64_t)q * stride] >> (8 * byte)) & 255;
      const uint64_t low = ((b & 127) * 0x0002040810204081ull) & 0x0101010101010101ull;
      x |= (low | (b >> 7) << 56) << q;
    }
    std::memcpy(out + 8 * byte, &x, 8);
  }
#endif
}

// Bit q of 64 bytes.
static inline uint64_t plane_of(const uint8_t* bytes, int q) {
#if defined(PTQ_AVX512)
  return _mm512_test_epi8_mask(_mm512_loadu_si512(bytes), _mm512_set1_epi8((char)(1 << q)));
#elif defined(PTQ_AVX2)
  uint64_t word = 0;
  for (int h = 0; h < 2; ++h) {  // the bit becomes the highest of its byte
    const __m256i x = _mm256_sll_epi16(load<__m256i>(bytes + 32 * h), _mm_cvtsi32_si128(7 - q));
    word |= (uint64_t)(uint32_t)_mm256_movemask_epi8(x) << (32 * h);
  }
  return word;
#else
  uint64_t word = 0;
  for (int g = 0; g < 8; ++g) {  // the lowest bits of eight bytes meet in the highest byte
    uint64_t eight;
    std::memcpy(&eight, bytes + 8 * g, 8);
    word |= ((((eight >> q) & 0x0101010101010101ull) * 0x0102040810204080ull) >> 56) << (8 * g);
  }
  return word;
#endif
}

template <class X>
static inline void copy_spikes(const Spikes& s, int64_t row, X* out) {
  const uint64_t* words = s.data + row * s.planes * s.words;
  for (int w = 0; w < s.words; ++w) {
    uint8_t bytes[64];
    decode_words(words + w, s.planes, s.words, bytes);
    const int n = min_int(64, s.channels - w * 64);
    for (int c = 0; c < n; ++c) out[w * 64 + c] = (X)bytes[c];
  }
}

template <class X, class S>
static inline void convert(const S* in, int64_t n, int offset, X* out) {
  int64_t c = 0;
  for (; c + kUnit <= n; c += kUnit)  // known lengths become vector code without a rest
    for (int i = 0; i < kUnit; ++i) out[c + i] = (X)((int)in[c + i] + offset);
  for (; c < n; ++c) out[c] = (X)((int)in[c] + offset);
}

// Values of `count` rows from `row` = position * steps + step on, each plus `offset`.
template <class X>
static inline void copy_values(const Source& s, int64_t row, int64_t count, int offset, X* out) {
  if (s.spikes) {
    for (int64_t i = 0; i < count; ++i) copy_spikes(*s.spikes, row + i, out + i * s.spikes->channels);
    return;
  }
  const Rows& r = *s.rows;
  const int64_t n = count * r.channels;
  const char* data = static_cast<const char*>(r.data) + row * r.channels * size_of(r.type);
  switch (r.type) {
    case Type::U8: return convert(reinterpret_cast<const uint8_t*>(data), n, offset, out);
    case Type::S8: return convert(reinterpret_cast<const uint8_t*>(data), n, offset - 128, out);
    case Type::I8: return convert(reinterpret_cast<const int8_t*>(data), n, offset, out);
    case Type::I16: return convert(reinterpret_cast<const int16_t*>(data), n, offset, out);
    case Type::I32: return convert(reinterpret_cast<const int32_t*>(data), n, offset, out);
  }
}

static inline void write_values(const int32_t* in, int n, Type type, void* out) {
  switch (type) {
    case Type::U8: return convert(in, n, 0, static_cast<uint8_t*>(out));
    case Type::S8: return convert(in, n, 128, static_cast<uint8_t*>(out));
    case Type::I8: return convert(in, n, 0, static_cast<int8_t*>(out));
    case Type::I16: return convert(in, n, 0, static_cast<int16_t*>(out));
    case Type::I32: return convert(in, n, 0, static_cast<int32_t*>(out));
  }
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
