// Fields of packed states as bytes, eight of them at a time, where none is wider than 8 bits.
#pragma once

#include "vector.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

static inline uint64_t in_all_bytes(int x) { return 0x0101010101010101ull * (uint64_t)x; }

// Eight fields, the lowest bits first, to eight bytes.
static inline uint64_t spread(uint64_t x, int width) {
#if defined(__BMI2__)
  return _pdep_u64(x, in_all_bytes((1 << width) - 1));
#else
  uint64_t out = 0;
  for (int i = 0; i < 8; ++i) out |= ((x >> (i * width)) & ((1u << width) - 1)) << (8 * i);
  return out;
#endif
}

// The inverse; what is above the fields is left out.
static inline uint64_t gathered(uint64_t x, int width) {
#if defined(__BMI2__)
  return _pext_u64(x, in_all_bytes((1 << width) - 1));
#else
  uint64_t out = 0;
  for (int i = 0; i < 8; ++i) out |= ((x >> (8 * i)) & ((1u << width) - 1)) << (i * width);
  return out;
#endif
}

// Every byte from a number of `width` < 8 bits to one of 8: (x ^ sign) - sign without a borrow between bytes.
static inline uint64_t sign_extended(uint64_t x, int width) {
  const uint64_t sign = in_all_bytes(1 << (width - 1)), top = in_all_bytes(128);
  return (((x ^ sign) | top) - sign) ^ top;
}

typedef uint8_t u8x32 __attribute__((vector_size(32)));
typedef uint8_t u8x64 __attribute__((vector_size(64)));
typedef uint16_t u16x32 __attribute__((vector_size(64)));
typedef uint8_t u8x16 __attribute__((vector_size(16)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));

// 64 fields of 4 or 2 bits that begin with a byte.
static inline void read_nibbles(const uint8_t* in, uint8_t* out) {
  const u16x32 x = __builtin_convertvector(load<u8x32>(in), u16x32);
  store(out, (((u8x64)(x | x << 4) & 15) ^ 8) - 8);
}

static inline void read_pairs(const uint8_t* in, uint8_t* out) {
  const u32x16 x = __builtin_convertvector(load<u8x16>(in), u32x16);
  store(out, (((u8x64)(x | x << 6 | x << 12 | x << 18) & 3) ^ 2) - 2);
}

static inline void write_nibbles(const uint8_t* in, uint8_t* out) {
  const u16x32 x = (u16x32)(load<u8x64>(in) & 15);
  store(out, __builtin_convertvector(x | x >> 4, u8x32));
}

static inline void write_pairs(const uint8_t* in, uint8_t* out) {
  const u32x16 x = (u32x16)(load<u8x64>(in) & 3);
  store(out, __builtin_convertvector(x | x >> 6 | x >> 12 | x >> 18, u8x16));
}

// `n` fields of `width` bits from bit `bit` on. Those of 4 and 2 bits that begin with a byte go 64 at a time; of the
// others, up to 7 bytes behind them are read, and whole words of `out` are written.
static inline void read_fields(const uint8_t* row, int64_t bit, int width, int64_t n, uint8_t* out) {
  if (width == 8) return (void)std::memcpy(out, row + bit / 8, (size_t)n);
  int64_t i = 0;
  for (; width == 4 && bit % 8 == 0 && i + 64 <= n; i += 64, bit += 256) read_nibbles(row + bit / 8, out + i);
  for (; width == 2 && bit % 8 == 0 && i + 64 <= n; i += 64, bit += 128) read_pairs(row + bit / 8, out + i);
  for (; i < n; i += 8, bit += 8 * width) {
    const uint64_t x = load<uint64_t>(row + bit / 8) >> (bit % 8);
    store(out + i, sign_extended(spread(x, width), width));
  }
}

// The inverse: the bits before `bit` stay, up to 7 bytes behind the last field are written, as zeros.
static inline void write_fields(uint8_t* row, int64_t bit, int width, int64_t n, const uint8_t* in) {
  if (width == 8) return (void)std::memcpy(row + bit / 8, in, (size_t)n);
  int64_t i = 0;
  for (; width == 4 && bit % 8 == 0 && i + 64 <= n; i += 64, bit += 256) write_nibbles(in + i, row + bit / 8);
  for (; width == 2 && bit % 8 == 0 && i + 64 <= n; i += 64, bit += 128) write_pairs(in + i, row + bit / 8);
  for (; i < n; i += 8, bit += 8 * width) {
    const int count = n - i < 8 ? (int)(n - i) : 8;
    const uint64_t some = load<uint64_t>(in + i) & (count == 8 ? ~0ull : ((uint64_t)1 << (8 * count)) - 1);
    uint8_t* at = row + bit / 8;
    const uint64_t before = bit % 8 ? *at & ((1u << bit % 8) - 1) : 0;
    store(at, before | gathered(some, width) << (bit % 8));
  }
}

// Rows without a gap between them, all of `width` bits, as one; nothing behind them is touched.
static inline void read_block(const uint8_t* in, int width, int64_t n, uint8_t* out) {
  const int64_t whole = n / 64 * 64;
  read_fields(in, 0, width, whole, out);
  uint8_t last[64 + 8], bytes[64];
  std::memcpy(last, in + whole * width / 8, (size_t)((n - whole) * width / 8));
  read_fields(last, 0, width, n - whole, bytes);
  std::memcpy(out + whole, bytes, (size_t)(n - whole));
}

static inline void write_block(uint8_t* out, int width, int64_t n, const uint8_t* in) {
  const int64_t whole = n / 64 * 64;
  write_fields(out, 0, width, whole, in);
  uint8_t last[64 + 8], bytes[64];
  std::memcpy(bytes, in + whole, (size_t)(n - whole));
  write_fields(last, 0, width, n - whole, bytes);
  std::memcpy(out + whole * width / 8, last, (size_t)((n - whole) * width / 8));
}

#if defined(PTQ_AVX512)
// The bytes at places 0..127 of a and b.
static inline __m512i bytes_at(__m512i a, __m512i at, __m512i b) {
#if defined(PTQ_VBMI)
  return _mm512_permutex2var_epi8(a, at, b);
#else
  // Words hold two bytes: those of the even and of the odd places, and of each the byte that is meant
  const __m512i even = _mm512_permutex2var_epi16(a, _mm512_srli_epi16(at, 1), b);
  const __m512i odd = _mm512_permutex2var_epi16(a, _mm512_srli_epi16(at, 9), b);
  const __mmask64 high = 0xaaaaaaaaaaaaaaaa, second = _mm512_test_epi8_mask(at, _mm512_set1_epi8(1));
  const __m512i kept = _mm512_mask_mov_epi8(even, high, odd);
  const __m512i turned = _mm512_or_si512(_mm512_srli_epi16(even, 8), _mm512_slli_epi16(odd, 8));
  return _mm512_mask_mov_epi8(kept, second ^ high, turned);
#endif
}
#endif

// Moves bytes: out[i] = in[from[i]], i < n. `in` and `out` have whole tables of 128.
struct Moves {
  int n;
  const int32_t* from;
  uint8_t *low, *table;  // where the machine has such an instruction: place in its table of 128, and which

  static constexpr int kMost = 1 << 15;

  void take(int count, Arena& arena) {
    n = count, from = nullptr;
    low = arena.take<uint8_t>((size_t)round_up(count, 128)), table = arena.take<uint8_t>((size_t)round_up(count, 128));
  }

  void set(const int32_t* order) {
    from = order;
    for (int i = 0; i < n; ++i) low[i] = (uint8_t)(order[i] % 128), table[i] = (uint8_t)(order[i] / 128);
    for (int i = n; i < round_up(n, 64); ++i) low[i] = table[i] = 0;
  }

  void operator()(const uint8_t* in, uint8_t* out) const {
#if defined(PTQ_AVX512)
    for (int i = 0; i < n; i += 64) {
      const __m512i at = _mm512_loadu_si512(low + i), of = _mm512_loadu_si512(table + i);
      __m512i found = _mm512_setzero_si512();
      for (int t = 0; t * 128 < n; ++t) {
        const __m512i a = _mm512_loadu_si512(in + t * 128), b = _mm512_loadu_si512(in + t * 128 + 64);
        const __mmask64 here = _mm512_cmpeq_epi8_mask(of, _mm512_set1_epi8((char)t));
        found = _mm512_mask_mov_epi8(found, here, bytes_at(a, at, b));
      }
      _mm512_storeu_si512(out + i, found);
    }
#else
    for (int i = 0; i < n; ++i) out[i] = in[from[i]];
#endif
  }
};

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
