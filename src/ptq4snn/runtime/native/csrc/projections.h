// Projections in int64, for sums that do not fit int32; corrections of sums over time.
#pragma once
#include "pointwise.h"

namespace ptq {
namespace PTQ_ISA {

// sum += by * weights `first` ... `first + count - 1`: bytes, or nibbles where bits <= 4.
static inline void add_weights(const Projection& w, int64_t first, int count, int64_t by, int64_t* sum) {
  const uint8_t* bytes = static_cast<const uint8_t*>(w.weights);
  if (w.bits > 4) {
    const int8_t* row = reinterpret_cast<const int8_t*>(bytes) + first;
    for (int o = 0; o < count; ++o) sum[o] += by * row[o];
    return;
  }
  for (int o = 0; o < count; ++o) {
    const int64_t k = first + o;
    const int nibble = (bytes[k >> 1] >> (4 * (k & 1))) & 15;
    sum[o] += by * ((nibble ^ 8) - 8);
  }
}

static inline const int32_t* bias_of(const Projection& w, int p) {
  return w.bias + (w.bias_row ? w.bias_row[p] : 0) * padded(w.cout);
}

static void rescale_row(const Projection& w, int64_t* y) {
  if (w.rescale_m == nullptr) return;
  for (int c = 0; c < w.cout; ++c) {
    const int64_t r = rshift_even(y[c] * w.rescale_m[c], w.rescale_n[c]);
    y[c] = r < w.lo ? w.lo : r > w.hi ? w.hi : r;
  }
}

// Wq x of one row of inputs under one tap, added to sum [cout].
static void add_tap(const Projection& w, int tap, const int64_t* x, int64_t* sum) {
  const int each = w.cin / w.groups, outs = w.cout / w.groups;
  for (int g = 0; g < w.groups; ++g)
    for (int i = 0; i < each; ++i) {
      const int64_t by = x[g * each + i];
      if (by == 0) continue;
      const int64_t first = ((int64_t)tap * each + i) * w.cout + (int64_t)g * outs;
      add_weights(w, first, outs, by, sum + g * outs);
    }
}

static void project_any(const Call& call, int begin, int end) {
  const Projection& w = call.op->project;
  Piece piece{call.scratch};
  int64_t *x = piece.take<int64_t>(w.cin), *y = piece.take<int64_t>(w.cout);
  TapWalk walk(taps_of(w), begin, piece.take<int32_t>(w.taps));
  for (int p = begin; p < end; ++p) {
    const int32_t* from = walk.next();
    for (int t = 0; t < call.out.steps; ++t) {
      std::memset(y, 0, (size_t)w.cout * 8);
      for (int k = 0; k < w.taps; ++k) {
        if (from[k] < 0) continue;
        decode(call.in[0], from[k], t, x);
        add_tap(w, k, x, y);
      }
      const int32_t* bias = bias_of(w, p);
      for (int c = 0; c < w.cout; ++c) y[c] = y[c] * ((int64_t)1 << w.shift) + bias[c];
      rescale_row(w, y);
      encode(call.out, p, t, y);
    }
  }
}

// The input summed other steps than at calibration: W x shrinks or grows to the same unit, the bias stays.
static void over_time(const Call& call, int begin, int end) {
  const Op& op = *call.op;
  const Projection& w = op.project;
  const int64_t total = call.first_step + call.steps;
  const double by = (double)op.steps / (double)total;
  int64_t* y = reinterpret_cast<int64_t*>(call.scratch);
  for (int p = begin; p < end; ++p)
    for (int t = 0; t < call.out.steps; ++t) {
      decode(call.in[0], p, t, y);
      const int32_t* bias = bias_of(w, p);
      for (int c = 0; c < w.cout && total != op.steps; ++c) {
        const double b = (double)bias[c];
        y[c] = nearest(((double)y[c] - b) * by + b);
      }
      rescale_row(w, y);
      encode(call.out, p, t, y);
    }
}

}  // namespace PTQ_ISA
}  // namespace ptq
