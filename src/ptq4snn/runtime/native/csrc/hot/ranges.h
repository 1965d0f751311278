// Which inputs a range of outputs reads, and how many events are in them.
#pragma once

#include "taps.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

static inline int positions_of(const Source& s) { return s.spikes ? s.spikes->positions : s.rows->positions; }

static inline Spikes image_of(Spikes s, const Images& images, int i) {
  s.data += i * images.in / 8;
  return s;
}

// Positions of the input among which [begin, end) reads: [first, last).
static inline void input_range(const Layer& l, const Source& s, int begin, int end, int* first, int* last) {
  *first = begin, *last = end;
  if (l.window->rank == 0) return;
  if (end - begin < l.positions) return window_range(*l.window, begin, end, first, last);
  *first = 0, *last = positions_of(s);
}

// At most so many positions of the input are between the first and the last that `range` outputs read.
static inline int input_room(const Layer& l, const Source& s, int range) {
  if (l.window->rank == 0) return range;
  return range < l.positions ? most_inputs(*l.window, range) : positions_of(s);
}

static inline Taps taps_of(const Layer& l) { return {l.taps, l.window, nullptr}; }

// Sums of the values of rows of `width` words, into `out` where it is not null; the sum of all.
template <int planes, bool single>
static int64_t count_planes(const uint64_t* words, int64_t rows, int width, int32_t* out) {
  int64_t sum = 0;
  if (single) width = 1;
  for (int64_t r = 0; r < rows; ++r, words += planes * width) {
    int row = 0;
    for (int w = 0; w < width; ++w)
      for (int q = 0; q < planes; ++q) row += __builtin_popcountll(words[q * width + w]) << q;
    if (out) out[r] = row;
    sum += row;
  }
  return sum;
}

// Values at positions [first, last): the sum of every row, where `out` is not null, and of all.
static int64_t count_events(const Spikes& s, int first, int last, int32_t* out) {
  const int64_t before = (int64_t)first * s.steps, rows = (int64_t)(last - first) * s.steps;
  const uint64_t* words = s.data + before * s.planes * s.words;
  const bool one = s.words == 1;
  if (s.planes == 1)
    return one ? count_planes<1, true>(words, rows, 1, out) : count_planes<1, false>(words, rows, s.words, out);
  if (s.planes == 2)
    return one ? count_planes<2, true>(words, rows, 1, out) : count_planes<2, false>(words, rows, s.words, out);
  return count_planes<3, false>(words, rows, s.words, out);
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
