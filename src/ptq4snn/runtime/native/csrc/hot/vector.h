// Vectors of one ISA level. Everything is in a namespace of its own, so that no inline function of one level can be
// linked into another; for the same reason nothing of the standard library's templates is used.
#pragma once

#include <cstdint>
#include <cstring>

#include "../layer.h"

#ifndef PTQ_ISA
#error "PTQ_ISA names the instruction set level"
#endif

#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define PTQ_AVX512 1
#endif
#if defined(PTQ_AVX512) && defined(__AVX512VNNI__)
#define PTQ_VNNI 1
#endif
#if defined(PTQ_AVX512) && defined(__AVX512VBMI__)
#define PTQ_VBMI 1
#endif
#if defined(__AVX2__)
#define PTQ_AVX2 1
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace ptq {
namespace hot {
namespace PTQ_ISA {

#if defined(PTQ_AVX512)
constexpr int kBytes = 64;
#elif defined(PTQ_AVX2)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif

constexpr int kLanes = kBytes / 4;            // int32 lanes of a register
constexpr int kUnit = 16;                     // channels that a neuron kernel keeps in registers
constexpr int kUnitVectors = kUnit / kLanes;  // registers of a unit
constexpr int kTileVectors = kTile / kBytes;  // registers of a tile of bytes

typedef uint8_t u8v __attribute__((vector_size(kBytes)));
typedef uint16_t u16v __attribute__((vector_size(kBytes)));
typedef int16_t i16v __attribute__((vector_size(kBytes)));
typedef int32_t i32v __attribute__((vector_size(kBytes)));
typedef uint32_t u32v __attribute__((vector_size(kBytes)));
typedef int16_t i16h __attribute__((vector_size(kBytes / 2)));
typedef float f32v __attribute__((vector_size(kBytes)));

template <class V>
static inline V load(const void* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

template <class V>
static inline void store(void* p, const V& v) {
  __builtin_memcpy(p, &v, sizeof v);
}

static inline i32v same(int32_t x) { return i32v{} + x; }

// kLanes numbers of a row as int32.
static inline i32v load_lanes(const int32_t* p) { return load<i32v>(p); }
static inline i32v load_lanes(const int16_t* p) {
#if defined(PTQ_AVX512)
  return (i32v)_mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(PTQ_AVX2)
  return (i32v)_mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  return __builtin_convertvector(load<i16h>(p), i32v);
#endif
}

typedef int8_t i8q __attribute__((vector_size(kBytes / 4)));

static inline i32v load_lanes(const int8_t* p) {
#if defined(PTQ_AVX512)
  return (i32v)_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(PTQ_AVX2)
  return (i32v)_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  return __builtin_convertvector(load<i8q>(p), i32v);
#endif
}

// The inverse, of numbers that fit.
static inline void store_lanes(int32_t* p, const i32v& x) { store(p, x); }
static inline void store_lanes(int16_t* p, const i32v& x) {
#if defined(PTQ_AVX512)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16((__m512i)x));
#elif defined(PTQ_AVX2)
  store(p, _mm_packs_epi32(_mm256_castsi256_si128((__m256i)x), _mm256_extracti128_si256((__m256i)x, 1)));
#else
  store(p, __builtin_convertvector(x, i16h));
#endif
}
static inline void store_lanes(int8_t* p, const i32v& x) {
#if defined(PTQ_AVX512)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8((__m512i)x));
#elif defined(PTQ_AVX2)
  const __m256i low = _mm256_shuffle_epi8((__m256i)x, _mm256_set1_epi64x(0x0c080400));  // of every four bytes the first
  const __m128i both = _mm_unpacklo_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), both);
#else
  store(p, __builtin_convertvector(x, i8q));
#endif
}
static inline void store_lanes(uint8_t* p, const i32v& x) { store_lanes(reinterpret_cast<int8_t*>(p), x); }

// The first n of them.
template <class O>
static inline void store_some(O* p, const i32v& x, int n) {
#if defined(PTQ_AVX512)
  const __mmask16 kept = (__mmask16)((1u << n) - 1);
  switch (sizeof(O)) {
    case 1: return _mm512_mask_cvtepi32_storeu_epi8(p, kept, (__m512i)x);
    case 2: return _mm512_mask_cvtepi32_storeu_epi16(p, kept, (__m512i)x);
    default: return _mm512_mask_storeu_epi32(p, kept, (__m512i)x);
  }
#else
  O all[kLanes];
  store_lanes(all, x);
  std::memcpy(p, all, sizeof(O) * (size_t)n);
#endif
}

// Comparisons: a mask, its bits, and values where it is not set.
#if defined(PTQ_AVX512)
typedef __mmask16 Mask;
static inline Mask at_least(const i32v& a, const i32v& b) { return _mm512_cmpge_epi32_mask((__m512i)a, (__m512i)b); }
static inline Mask below(const f32v& a, const f32v& b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ); }
static inline uint32_t lane_bits(Mask m) { return m; }
static inline i32v where(Mask m, const i32v& a) { return (i32v)_mm512_maskz_mov_epi32(m, (__m512i)a); }
static inline f32v where(Mask m, const f32v& a) { return (f32v)_mm512_maskz_mov_ps(m, (__m512)a); }
static inline f32v product_where(Mask m, const f32v& a, const f32v& b) {
  return (f32v)_mm512_maskz_mul_ps(m, (__m512)a, (__m512)b);
}
static inline Mask negated(Mask m) { return (Mask)~m; }
static inline i32v larger(const i32v& a, const i32v& b) { return (i32v)_mm512_max_epi32((__m512i)a, (__m512i)b); }
static inline i32v smaller(const i32v& a, const i32v& b) { return (i32v)_mm512_min_epi32((__m512i)a, (__m512i)b); }
static inline f32v larger(const f32v& a, const f32v& b) { return (f32v)_mm512_max_ps((__m512)a, (__m512)b); }
static inline f32v smaller(const f32v& a, const f32v& b) { return (f32v)_mm512_min_ps((__m512)a, (__m512)b); }
#else
typedef i32v Mask;
static inline Mask at_least(const i32v& a, const i32v& b) { return a >= b; }
static inline Mask below(const f32v& a, const f32v& b) { return (i32v)(a < b); }
static inline i32v where(const Mask& m, const i32v& a) { return m & a; }
static inline f32v where(const Mask& m, const f32v& a) { return (f32v)(m & (i32v)a); }
static inline f32v product_where(const Mask& m, const f32v& a, const f32v& b) { return where(m, a * b); }
static inline Mask negated(const Mask& m) { return ~m; }
static inline i32v larger(const i32v& a, const i32v& b) { return a > b ? a : b; }
static inline i32v smaller(const i32v& a, const i32v& b) { return a < b ? a : b; }
static inline f32v larger(const f32v& a, const f32v& b) { return a > b ? a : b; }
static inline f32v smaller(const f32v& a, const f32v& b) { return a < b ? a : b; }

static inline uint32_t lane_bits(const Mask& mask) {
#if defined(PTQ_AVX2)
  return (uint32_t)_mm256_movemask_ps((__m256)mask);
#elif defined(__x86_64__)
  return (uint32_t)_mm_movemask_ps((__m128)mask);
#elif defined(__aarch64__)
  const u32v weights = {1, 2, 4, 8};
  return vaddvq_u32((uint32x4_t)((u32v)mask & weights));
#else
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= (uint32_t)(mask[i] & 1) << i;
  return bits;
#endif
}
#endif

// The integers nearest to y * by, halves to even, between lo and hi; `by` has kLanes numbers, products are
// exact.
typedef double f64v __attribute__((vector_size(kBytes)));

static inline i32v scaled(const i32v& y, const double* by, const f64v& lo, const f64v& hi) {
#if !defined(PTQ_AVX512)
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
#endif
#if defined(PTQ_AVX512)
  const auto half = [&](__m256i part, const double* with) {
    const __m512d x = _mm512_mul_pd(_mm512_cvtepi32_pd(part), _mm512_loadu_pd(with));
    const __m512d in = _mm512_min_pd(_mm512_max_pd(x, (__m512d)lo), (__m512d)hi);
    return _mm512_cvt_roundpd_epi32(in, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  };
  const __m256i low = half(_mm512_castsi512_si256((__m512i)y), by);
  const __m256i high = half(_mm512_extracti64x4_epi64((__m512i)y, 1), by + 8);
  return (i32v)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
#elif defined(PTQ_AVX2)
  const auto half = [&](__m128i part, const double* with) {
    const __m256d x = _mm256_mul_pd(_mm256_cvtepi32_pd(part), _mm256_loadu_pd(with)), round = _mm256_set1_pd(kRound);
    const __m256d in = _mm256_min_pd(_mm256_max_pd(x, (__m256d)lo), (__m256d)hi);
    return _mm256_cvttpd_epi32(_mm256_sub_pd(_mm256_add_pd(in, round), round));
  };
  return (i32v)_mm256_set_m128i(half(_mm256_extracti128_si256((__m256i)y, 1), by + 4),
                                half(_mm256_castsi256_si128((__m256i)y), by));
#else
  i32v out;
  for (int i = 0; i < kLanes; ++i) {
    double x = y[i] * by[i];
    x = x < lo[0] ? lo[0] : x;
    x = x > hi[0] ? hi[0] : x;
    out[i] = (int32_t)((x + kRound) - kRound);
  }
  return out;
#endif
}

static inline f32v to_float(const i32v& a) { return __builtin_convertvector(a, f32v); }
static inline i32v to_int(const f32v& a) { return __builtin_convertvector(a, i32v); }

// a * b + c where every part is an exact integer: fused or not gives the same.
static inline f32v multiply_add(const f32v& a, const f32v& b, const f32v& c) {
#if defined(PTQ_AVX512)
  return (f32v)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(PTQ_AVX2)
  return (f32v)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return a * b + c;
#endif
}

static inline int min_int(int a, int b) { return a < b ? a : b; }
static inline int max_int(int a, int b) { return a > b ? a : b; }
static inline int parts(int n, int most) { return (n + most - 1) / most; }
static inline int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

// Left shift without overflow.
static inline int32_t shl(int32_t x, int n) { return (int32_t)((uint32_t)x << n); }

// a / 2^n, halves to even; 0 <= n <= 62.
static inline int64_t rshift_even(int64_t a, int n) {
  if (n == 0) return a;
  const int64_t half = ((int64_t)1 << (n - 1)) - 1;
  const int64_t odd = (a >> n) & 1;
  return (int64_t)((uint64_t)a + (uint64_t)(half + odd)) >> n;
}

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

// A bump allocator over the caller's scratch. With a null base it only counts.
struct Arena {
  char* base;
  size_t used;

  template <class T>
  T* take(size_t count) {
    T* p = base ? reinterpret_cast<T*>(base + used) : nullptr;
    used += (count * sizeof(T) + 63) / 64 * 64;
    return p;
  }
};

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
