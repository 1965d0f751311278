// Taps of successive output positions, computed from a window or read from a list.
#pragma once

#include "vector.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

// Coordinates of output p.
static inline void coordinates(const Window& w, int p, int* at) {
  for (int a = w.rank - 1; a >= 0; --a) at[a] = p % w.axes[a].out, p /= w.axes[a].out;
}

// Inputs under the taps of the output at `at`, -1 outside; axis by axis, from behind, so that none is lost.
static inline void taps_at(const Window& w, const int* at, int32_t* out) {
  int n = 1;
  out[0] = 0;
  for (int a = 0; a < w.rank; ++a) {
    const Axis& x = w.axes[a];
    const int first = at[a] * x.stride - x.before;
    const int32_t* listed = x.taps ? x.taps + (int64_t)at[a] * x.kernel : nullptr;
    for (int i = n - 1; i >= 0; --i) {
      const int32_t before = out[i];
      for (int k = x.kernel - 1; k >= 0; --k) {
        const int from = listed ? listed[k] : first + k * x.dilation;
        out[i * x.kernel + k] = before < 0 || (uint32_t)from >= (uint32_t)x.size ? -1 : before * x.size + from;
      }
    }
    n *= x.kernel;
  }
}

// What the taps of the output at `at` count, where the axes of a pool say so.
static inline void weights_at(const Window& w, const int* at, int32_t* out) {
  int n = 1;
  out[0] = 1;
  for (int a = 0; a < w.rank; ++a) {
    const Axis& x = w.axes[a];
    for (int i = n - 1; i >= 0; --i) {
      const int32_t before = out[i];
      for (int k = x.kernel - 1; k >= 0; --k)
        out[i * x.kernel + k] = before * (x.weights ? x.weights[(int64_t)at[a] * x.kernel + k] : 1);
    }
    n *= x.kernel;
  }
}

// The taps of one position after the other. `own` has room for `count` of them.
struct TapWalk {
  const Taps taps;
  int p, at[kMostAxes];
  int32_t* own;

  TapWalk(const Taps& t, int first, int32_t* room) : taps(t), p(first), own(room) {
    if (taps.window) coordinates(*taps.window, first, at);
  }

  // What the taps of the next position count.
  void weights(int32_t* out) const { weights_at(*taps.window, at, out); }

  // Of the next position.
  const int32_t* next() {
    const int now = p++;
    if (taps.table) return taps.table + (int64_t)now * taps.count;
    const Window& w = *taps.window;
    if (w.rank == 0) {
      own[0] = now;
      return own;
    }
    taps_at(w, at, own);
    for (int a = w.rank - 1; a >= 0 && ++at[a] == w.axes[a].out; --a) at[a] = 0;
    return own;
  }
};

// A sum of strides for one position after the other.
struct StrideWalk {
  const Strides& s;
  int at[kMostAxes];
  int64_t sum = 0;

  StrideWalk(const Strides& strides, int p) : s(strides) {
    for (int a = s.rank - 1; a >= 0; --a) {
      at[a] = p % s.sizes[a], p /= s.sizes[a];
      sum += (int64_t)at[a] * s.strides[a];
    }
  }

  // Of the next position.
  int64_t next() {
    const int64_t now = sum;
    for (int a = s.rank - 1; a >= 0; --a) {
      sum += s.strides[a];
      if (++at[a] < s.sizes[a]) break;
      sum -= (int64_t)s.sizes[a] * s.strides[a], at[a] = 0;
    }
    return now;
  }
};

// Inputs among which the outputs [begin, end) read: [first, last).
static inline void window_range(const Window& w, int begin, int end, int* first, int* last) {
  int low[kMostAxes], high[kMostAxes], from = 0, to = 0;
  *first = *last = 0;
  if (begin >= end) return;
  coordinates(w, begin, low), coordinates(w, end - 1, high);
  bool apart = false;  // behind the first axis in which they differ, all is read
  for (int a = 0; a < w.rank; ++a) {
    const Axis& x = w.axes[a];
    if (apart) low[a] = 0, high[a] = x.out - 1;
    apart = apart || low[a] != high[a];
    const int least = max_int(0, low[a] * x.stride - x.before);
    const int most = min_int(x.size - 1, high[a] * x.stride - x.before + (x.kernel - 1) * x.dilation);
    if (least > most) return;
    from = from * x.size + least, to = to * x.size + most;
  }
  *first = from, *last = to + 1;
}

// At most so many inputs are between the first and the last of any `range` outputs.
static inline int most_inputs(const Window& w, int range) {
  int64_t inside = 1, positions = 1;
  for (int a = 1; a < w.rank; ++a) inside *= w.axes[a].out, positions *= w.axes[a].size;
  const Axis& x = w.axes[0];
  const int64_t rows = range < 2 ? 1 : min_int(x.out, (int)((range - 2) / inside) + 2);
  const int64_t read = (rows - 1) * x.stride + (int64_t)(x.kernel - 1) * x.dilation + 1;
  return (int)((read < x.size ? read : x.size) * positions);
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
