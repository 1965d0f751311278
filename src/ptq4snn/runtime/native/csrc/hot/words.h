// Spikes as words of 64 channels: sums, logic, largest values.
#pragma once

#include "ranges.h"
#include "values.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

// Word 0 of plane 0 at (p, t); one position or one step serves all.
static inline const uint64_t* words_at(const Spikes& s, int p, int t) {
  const int64_t row = (int64_t)(s.positions > 1 ? p : 0) * s.steps + (s.steps > 1 ? t : 0);
  return s.data + row * s.planes * s.words;
}

// Words [first, last) of rows, `words` to a plane.
struct WordRange {
  int words, first, last;
};

// o = x + y of some words of a row: carry logic, plane by plane.
template <int A, int B, int O>
static inline void add_planes(const uint64_t* x, const uint64_t* y, const WordRange& r, uint64_t* o) {
  const int words = r.words;
  for (int w = r.first; w < r.last; ++w) {
    uint64_t carry = 0;
#pragma GCC unroll 3
    for (int q = 0; q < O; ++q) {
      const uint64_t i = q < A ? x[q * words + w] : 0, j = q < B ? y[q * words + w] : 0;
      o[q * words + w] = i ^ j ^ carry;
      carry = (i & j) | (carry & (i ^ j));
    }
  }
}

template <int A, int B, int O>
static void add_rows(const Spikes& a, const Spikes& b, int steps, uint64_t* out, int begin, int end,
                     const WordRange& range) {
  const int words = a.words;
  const int64_t x_step = a.steps > 1 ? A * words : 0, y_step = b.steps > 1 ? B * words : 0;
  for (int p = begin; p < end; ++p) {
    const uint64_t *x = words_at(a, p, 0), *y = words_at(b, p, 0);
    uint64_t* o = out + (int64_t)p * steps * O * words;
    for (int t = 0; t < steps; ++t, x += x_step, y += y_step, o += O * words) add_planes<A, B, O>(x, y, range, o);
  }
}

typedef void (*AddRows)(const Spikes& a, const Spikes& b, int steps, uint64_t* out, int begin, int end,
                        const WordRange& range);

static void add_spikes(const Spikes& a, const Spikes& b, int steps, int planes, uint64_t* out, int begin, int end,
                       int first_word, int last_word) {
#define PTQ_EACH(A, B) \
  { add_rows<A, B, 1>, add_rows<A, B, 2>, add_rows<A, B, 3> }
  static const AddRows kAll[3][3][3] = {{PTQ_EACH(1, 1), PTQ_EACH(1, 2), PTQ_EACH(1, 3)},
                                        {PTQ_EACH(2, 1), PTQ_EACH(2, 2), PTQ_EACH(2, 3)},
                                        {PTQ_EACH(3, 1), PTQ_EACH(3, 2), PTQ_EACH(3, 3)}};
#undef PTQ_EACH
  kAll[a.planes - 1][b.planes - 1][planes - 1](a, b, steps, out, begin, end, {a.words, first_word, last_word});
}

static void logic_spikes(Logic how, const Spikes& a, const Spikes& b, int steps, uint64_t* out, int begin, int end) {
  for (int p = begin; p < end; ++p)
    for (int t = 0; t < steps; ++t) {
      const uint64_t *x = words_at(a, p, t), *y = words_at(b, p, t);
      uint64_t* o = out + ((int64_t)p * steps + t) * a.words;
      for (int w = 0; w < a.words; ++w)
        o[w] = how == Logic::And      ? x[w] & y[w]
               : how == Logic::Or     ? x[w] | y[w]
               : how == Logic::AndNot ? x[w] & ~y[w]
                                      : x[w] ^ y[w];
    }
}

// o = max(o, x), channel by channel: x wins where the highest plane in which they differ is set in x.
static inline void take_larger(uint64_t* o, const uint64_t* x, int planes, int stride) {
  uint64_t wins = 0, decided = 0;
  for (int q = planes - 1; q >= 0; --q) {
    const uint64_t differ = (o[q * stride] ^ x[q * stride]) & ~decided;
    wins |= differ & x[q * stride];
    decided |= differ;
  }
  for (int q = 0; q < planes; ++q) o[q * stride] = (o[q * stride] & ~wins) | (x[q * stride] & wins);
}

// The largest of spikes in one plane: all steps of a position are words that follow each other.
static void any_pool(const Spikes& in, const Taps& taps, uint64_t* out, int begin, int end, int32_t* room) {
  const int64_t row = (int64_t)in.steps * in.words;
  TapWalk walk(taps, begin, room);
  for (int p = begin; p < end; ++p) {
    uint64_t* __restrict o = out + p * row;
    const int32_t* from = walk.next();
    std::memset(o, 0, (size_t)row * 8);
    for (int k = 0; k < taps.count; ++k) {
      if (from[k] < 0) continue;
      const uint64_t* x = in.data + from[k] * row;
      for (int64_t w = 0; w < row; ++w) o[w] |= x[w];
    }
  }
}

static void max_pool(const Spikes& in, const Taps& taps, uint64_t* out, int begin, int end, int32_t* room) {
  if (in.planes == 1) return any_pool(in, taps, out, begin, end, room);
  const int64_t row = (int64_t)in.planes * in.words;
  TapWalk walk(taps, begin, room);
  for (int p = begin; p < end; ++p) {
    const int32_t* from = walk.next();
    for (int t = 0; t < in.steps; ++t) {
      uint64_t* o = out + ((int64_t)p * in.steps + t) * row;
      std::memset(o, 0, (size_t)row * 8);
      for (int k = 0; k < taps.count; ++k) {
        if (from[k] < 0) continue;
        const uint64_t* x = in.data + ((int64_t)from[k] * in.steps + t) * row;
        for (int w = 0; w < in.words; ++w) take_larger(o + w, x + w, in.planes, in.words);
      }
    }
  }
}

static void spikes_to_rows(const Spikes& in, const RowsOut& out, int begin, int end) {
  char* data = static_cast<char*>(out.data);
  for (int64_t row = (int64_t)begin * in.steps; row < (int64_t)end * in.steps; ++row)
    for (int w = 0; w < in.words; ++w) {
      uint8_t bytes[64];
      int32_t values[64];
      decode_words(in.data + row * in.planes * in.words + w, in.planes, in.words, bytes);
      for (int c = 0; c < 64; ++c) values[c] = bytes[c];
      const int64_t at = row * in.channels + w * 64;
      write_values(values, min_int(64, in.channels - w * 64), out.type, data + at * size_of(out.type));
    }
}

static void rows_to_spikes(const Rows& in, int planes, uint64_t* out, int begin, int end) {
  const int words = (in.channels + 63) / 64;
  const char* data = static_cast<const char*>(in.data);
  for (int64_t row = (int64_t)begin * in.steps; row < (int64_t)end * in.steps; ++row)
    for (int w = 0; w < words; ++w) {
      const int n = min_int(64, in.channels - w * 64);
      const Rows some = {data + (row * in.channels + w * 64) * size_of(in.type), in.type, 1, 1, n};
      uint8_t bytes[64] = {};
      copy_values(Source{nullptr, &some}, 0, 1, 0, bytes);
      for (int q = 0; q < planes; ++q) out[(row * planes + q) * words + w] = plane_of(bytes, q);
    }
}

static int64_t sum_spikes(const Spikes& in) { return count_events(in, 0, in.positions, nullptr); }

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
