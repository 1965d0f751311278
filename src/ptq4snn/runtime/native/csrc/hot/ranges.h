// Which inputs a range of outputs reads, and how many events are in them.
#pragma once

#include "vector.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

// Positions of the input that [begin, end) reads: [first, last).
static inline void input_range(const Layer& l, int begin, int end, int* first, int* last) {
  if (!l.tap_table) {
    *first = begin, *last = end;
    return;
  }
  int lo = INT32_MAX, hi = -1;
  for (int64_t i = (int64_t)begin * l.taps; i < (int64_t)end * l.taps; ++i) {
    const int p = l.tap_table[i];
    if (p < 0) continue;
    lo = p < lo ? p : lo;
    hi = p > hi ? p : hi;
  }
  *first = hi < 0 ? 0 : lo;
  *last = hi + 1;
}

// Sum of the values of one row of words.
static inline int32_t count_values(const uint64_t* words, int planes, int stride) {
  if (planes * stride == 1) return __builtin_popcountll(*words);
  int32_t sum = 0;
  for (int q = 0; q < planes; ++q)
    for (int w = 0; w < stride; ++w) sum += __builtin_popcountll(*words++) << q;
  return sum;
}

// Sum of the values at positions [first, last).
static int64_t count_events(const Spikes& s, int first, int last) {
  int64_t sum = 0;
  const int64_t row = (int64_t)s.planes * s.words;
  for (int64_t r = (int64_t)first * s.steps; r < (int64_t)last * s.steps; ++r)
    sum += count_values(s.data + r * row, s.planes, s.words);
  return sum;
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
