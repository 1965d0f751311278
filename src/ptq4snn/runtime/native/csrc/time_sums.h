// Sums over time.
#pragma once
#include "pointwise.h"

namespace ptq {
namespace PTQ_ISA {

typedef int64_t Eight64 __attribute__((vector_size(64)));
typedef int32_t Eight32 __attribute__((vector_size(32)));

// Which of eight are all ones.
static inline uint32_t bits_of(const Eight64& mask) {
#if defined(PTQ_AVX512)
  return (uint32_t)_mm512_movepi64_mask((__m512i)mask);
#elif defined(PTQ_AVX2)
  __m256d halves[2];
  std::memcpy(halves, &mask, sizeof mask);
  return (uint32_t)(_mm256_movemask_pd(halves[0]) | _mm256_movemask_pd(halves[1]) << 4);
#else
  uint32_t bits = 0;
  for (int i = 0; i < kEight; ++i) bits |= (uint32_t)(mask[i] & 1) << i;
  return bits;
#endif
}

// The sums of all steps of a row of one element type, added to `sum`.
template <class S>
static void sum_steps(const View& in, int p, int steps, int64_t* sum) {
  typedef S Some __attribute__((vector_size(kEight * sizeof(S))));
  const int n = in.channels;
  const S* row = reinterpret_cast<const S*>(row_of(in, p, 0));
  const int64_t next = in.steps > 1 ? n : 0;
  constexpr int kSafe = sizeof(S) == 2 ? 1 << 15 : 1;  // steps whose sum fits 32 bits
  int c = 0;
  for (; c + kEight <= n; c += kEight) {
    Eight64 all = hot::PTQ_ISA::load<Eight64>(sum + c);
    for (int t = 0; t < steps;) {
      Eight32 some = {};
      for (int i = 0; i < kSafe && t < steps; ++i, ++t)
        some += __builtin_convertvector(hot::PTQ_ISA::load<Some>(row + t * next + c), Eight32);
      all += __builtin_convertvector(some, Eight64);
    }
    hot::PTQ_ISA::store(sum + c, all);
  }
  for (; c < n; ++c)
    for (int t = 0; t < steps; ++t) sum[c] += row[t * next + c];
}

// The state of a position is its sums so far.
static void time_sum(const Call& call, int begin, int end) {
  const View& in = call.in[0];
  const int n = call.out.channels;
  Piece piece{call.scratch};
  int64_t *own = piece.take<int64_t>(n), *row = piece.take<int64_t>(n);
  for (int p = begin; p < end; ++p) {
    int64_t* sum = call.out.format == kI64 ? reinterpret_cast<int64_t*>(row_of_mutable(call.out, p, 0)) : own;
    std::memset(sum, 0, (size_t)n * 8);
    if (call.state != nullptr) std::memcpy(sum, call.state + (int64_t)p * n * 8, (size_t)n * 8);
    if (in.format == kI16) {
      sum_steps<int16_t>(in, p, call.steps, sum);
    } else if (in.format == kI32) {
      sum_steps<int32_t>(in, p, call.steps, sum);
    } else {
      for (int t = 0; t < call.steps; ++t) {
        decode(in, p, t, row);
        for (int c = 0; c < n; ++c) sum[c] += row[c];
      }
    }
    if (call.state != nullptr) std::memcpy(call.state_to + (int64_t)p * n * 8, sum, (size_t)n * 8);
    if (sum == own) encode(call.out, p, 0, sum);
  }
}

}  // namespace PTQ_ISA
}  // namespace ptq
