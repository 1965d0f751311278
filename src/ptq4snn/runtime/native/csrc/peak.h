// What one thread of this machine can do at most: the denominators of the roofline.
#pragma once
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cstdint>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace ptq {
namespace PTQ_ISA {

typedef uint8_t Wide8 __attribute__((vector_size(64)));
typedef uint64_t Wide64 __attribute__((vector_size(64)));

static inline double now_seconds() {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// The compiler must believe that x is used.
template <class T>
static inline void consume(T& x) {
  asm volatile("" : : "r"(&x) : "memory");
}

// Additions of bytes from the first cache to registers.
static int64_t byte_adds(Wide8* buffer) {
  Wide8 a{}, b{}, c{}, d{};
  const int rounds = 256, vectors = 64;  // 4 KiB
  for (int r = 0; r < rounds; ++r) {
    for (int i = 0; i < vectors; i += 4) {
      a += buffer[i];
      b += buffer[i + 1];
      c += buffer[i + 2];
      d += buffer[i + 3];
    }
    consume(buffer[0]);
  }
  a += b + c + d;
  consume(a);
  return (int64_t)rounds * vectors * 64;
}

#if defined(__AVX512VNNI__)
constexpr int kDots = 64;
typedef __m512i Sum;
static inline Sum dot(Sum sum, const Wide8& x, const Wide8& w) {
  return _mm512_dpbusd_epi32(sum, (__m512i)x, (__m512i)w);
}
#elif defined(__AVX512BW__)
constexpr int kDots = 64;
typedef __m512i Sum;
static inline Sum dot(Sum sum, const Wide8& x, const Wide8& w) {
  const Sum pairs = _mm512_maddubs_epi16((__m512i)x, (__m512i)w);
  return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}
#elif defined(__AVX2__)
constexpr int kDots = 32;
typedef __m256i Sum;
static inline Sum dot(Sum sum, const Wide8& x, const Wide8& w) {
  const __m256i a = _mm256_loadu_si256((const __m256i*)&x), b = _mm256_loadu_si256((const __m256i*)&w);
  return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)));
}
#else
constexpr int kDots = 32;
typedef int16_t Half __attribute__((vector_size(64)));
typedef Half Sum;
static inline Sum dot(Sum sum, const Wide8& x, const Wide8& w) { return sum + (Half)x * (Half)w; }
#endif

// Products of bytes added up, from the first cache; twelve sums hide the latency. Their addresses are not taken, or
// they would leave their registers at every `consume`.
static int64_t dots(Wide8* buffer) {
  Sum sum[12] = {};
  const int rounds = 256, vectors = 60;
  for (int r = 0; r < rounds; ++r) {
    const Wide8 w = buffer[vectors];
    for (int i = 0; i < vectors; i += 12)
#pragma GCC unroll 12
      for (int j = 0; j < 12; ++j) sum[j] = dot(sum[j], buffer[i + j], w);
    consume(buffer[0]);
  }
  Sum total = sum[0];
#pragma GCC unroll 12
  for (int j = 1; j < 12; ++j) total += sum[j];
  consume(total);
  return (int64_t)rounds * vectors * kDots;
}

static int64_t read_all(const Wide64* buffer, int64_t bytes) {
  Wide64 a{}, b{}, c{}, d{};
  for (int64_t i = 0; i + 4 <= bytes / 64; i += 4) {
    a ^= buffer[i];
    b ^= buffer[i + 1];
    c ^= buffer[i + 2];
    d ^= buffer[i + 3];
  }
  a ^= b ^ c ^ d;
  consume(a);
  return bytes;
}

// Operations (or bytes) a second: 0 byte additions, 1 multiply-adds, 2 reads from memory, 3 from the second cache.
static double peak(int kind, int milliseconds) {
  const int64_t bytes = kind == 2 ? (int64_t)256 << 20 : kind == 3 ? 512 << 10 : 4096;
  void* buffer = nullptr;
  if (kind < 0 || kind > 3 || posix_memalign(&buffer, 64, (size_t)bytes) != 0) return 0.0;
  memset(buffer, 1, (size_t)bytes);
  int64_t done = 0;
  const double begin = now_seconds(), until = begin + 1e-3 * milliseconds;
  double end;
  do {
    if (kind == 0)
      done += byte_adds(static_cast<Wide8*>(buffer));
    else if (kind == 1)
      done += dots(static_cast<Wide8*>(buffer));
    else
      done += read_all(static_cast<Wide64*>(buffer), bytes);
    end = now_seconds();
  } while (end < until);
  free(buffer);
  return (double)done / (end - begin);
}

}  // namespace PTQ_ISA
}  // namespace ptq
