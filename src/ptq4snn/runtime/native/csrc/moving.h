// Operations that look at other positions or elements: quantize, pool, matmul; copies out.
#pragma once
#include "gathers.h"

namespace ptq {
namespace PTQ_ISA {

// p = clip(rint(x * inverse + zero), 0, 255). Clipped first, so that adding 1.5 * 2^52 rounds halves to even.
static inline uint8_t to_grid(float x, double inverse, double zero) {
  double y = (double)x * inverse + zero;
  y = y > 0.0 ? y : 0.0;  // NaN becomes 0
  y = y < 255.0 ? y : 255.0;
  const double magic = 6755399441055744.0;
  return (uint8_t)(int32_t)((y + magic) - magic);
}

// Inputs of kTogether positions that follow each other as floats do: read in order, written apart. False: they do not.
constexpr int kTogether = 64;

static bool quantize_together(const Call& call, IndexWalk walk, int p) {
  const Op& op = *call.op;
  const int n = call.out.channels, steps = call.out.steps;
  const int32_t* index = walk.next();
  const int64_t first = walk.moved;
  for (int i = 1; i < kTogether; ++i)
    if (walk.next() != index || walk.moved != first + i) return false;
  for (int c = 0; c < n; ++c)
    if (index[c] < 0) return false;
  uint8_t* out = row_of_mutable(call.out, p, 0);
  const int64_t apart = (int64_t)steps * n;
  for (int t = 0; t < steps; ++t)
    for (int c = 0; c < n; ++c) {
      const float* x = call.x + t * call.x_stride + first + index[c];
      const double inverse = op.inverse[op.per_channel ? c : 0], zero = op.zeros[op.per_channel ? c : 0];
      uint8_t bytes[kTogether];
      for (int i = 0; i < kTogether; ++i) bytes[i] = to_grid(x[i], inverse, zero);
      for (int i = 0; i < kTogether; ++i) out[i * apart + t * n + c] = bytes[i];
    }
  return true;
}

// All steps of a position at once: what is read is spread, what is computed and written lies in order.
static void quantize(const Call& call, int begin, int end) {
  const Op& op = *call.op;
  const int n = call.out.channels, steps = call.out.steps, count = n * steps;
  Piece piece{call.scratch};
  double *inverse = piece.take<double>(count), *zero = piece.take<double>(count);
  float* x = piece.take<float>(count);
  uint8_t* bytes = piece.take<uint8_t>(count);
  int32_t* row = piece.take<int32_t>(n);
  for (int i = 0; i < count; ++i) {
    const int g = op.per_channel ? i % n : 0;
    inverse[i] = op.inverse[g], zero[i] = op.zeros[g];
  }
  IndexWalk walk(op, begin, n);
  const bool together = call.out.format == kU8 && op.index_strides.rank > 0;
  for (int p = begin; p < end; ++p) {
    if (together && p + kTogether <= end && quantize_together(call, walk, p)) {
      p += kTogether - 1, walk.go_on(kTogether);
      continue;
    }
    const int32_t* index = walk.next();
    for (int t = 0; t < steps; ++t) {
      const float* from = call.x + t * call.x_stride + walk.moved;
      for (int c = 0; c < n; ++c) x[t * n + c] = index[c] < 0 ? 0.0f : from[index[c]];
    }
    uint8_t* __restrict out = call.out.format == kU8 ? row_of_mutable(call.out, p, 0) : bytes;
    for (int i = 0; i < count; ++i) out[i] = to_grid(x[i], inverse[i], zero[i]);
    for (int t = 0; out == bytes && t < steps; ++t) {
      for (int c = 0; c < n; ++c) row[c] = bytes[t * n + c];
      encode(call.out, p, t, row);
    }
  }
}

// Whole rows of the same format, moved.
static void move_rows(const Call& call, int begin, int end) {
  const int64_t bytes = call.out.row * call.out.steps;
  int32_t own;
  TapWalk walk(taps_of(call.op->project), begin, &own);
  for (int p = begin; p < end; ++p) {
    const int from = walk.next()[0];
    uint8_t* out = row_of_mutable(call.out, p, 0);
    if (from >= 0)
      std::memcpy(out, row_of(call.in[0], from, 0), (size_t)bytes);
    else
      std::memset(out, 0, (size_t)bytes);
  }
}

// A step of a value with time, or into one.
static void move_step(const Call& call, int begin, int end, bool takes) {
  for (int p = begin; p < end; ++p) {
    const int64_t t = call.at;
    std::memcpy(row_of_mutable(call.out, p, takes ? 0 : (int)t), row_of(call.in[0], p, takes ? (int)t : 0),
                (size_t)call.out.row);
  }
}

// Sum or maximum [n] of the rows `from` under the taps of a position, which count by `weights` or, without, once.
template <class T>
static void pool_row(const Call& call, int t, const int32_t* from, const int32_t* weights, T* out, T* row) {
  const Op& op = *call.op;
  const int n = call.out.channels, taps = op.project.taps;
  bool empty = op.how == kMax;
  for (int c = 0; c < n; ++c) out[c] = 0;
  for (int k = 0; k < taps; ++k) {
    if (from[k] < 0) {
      if (op.how == kSum || !op.pads_zero) continue;
      for (int c = 0; c < n; ++c) row[c] = 0;
    } else {
      decode(call.in[0], from[k], t, row);
    }
    if (op.how == kSum) {
      const T by = weights ? (T)weights[k] : (T)1;
      for (int c = 0; c < n; ++c) out[c] += by * row[c];
    } else {
      for (int c = 0; c < n; ++c) out[c] = empty || row[c] > out[c] ? row[c] : out[c];
      empty = false;
    }
  }
}

// The maximum of rows of one element type; S8 keeps the order of its values.
template <class S>
static void max_rows(const Call& call, int begin, int end) {
  const Op& op = *call.op;
  const int n = call.out.channels, taps = op.project.taps;
  TapWalk walk(taps_of(op.project), begin, reinterpret_cast<int32_t*>(call.scratch));
  for (int p = begin; p < end; ++p) {
    const int32_t* from = walk.next();
    for (int t = 0; t < call.out.steps; ++t) {
      S* out = reinterpret_cast<S*>(row_of_mutable(call.out, p, t));
      bool empty = true;
      for (int k = 0; k < taps; ++k) {
        if (from[k] < 0) continue;
        const S* in = reinterpret_cast<const S*>(row_of(call.in[0], from[k], t));
        for (int c = 0; c < n; ++c) out[c] = empty || in[c] > out[c] ? in[c] : out[c];
        empty = false;
      }
      if (empty) std::memset(out, 0, (size_t)call.out.row);
    }
  }
}

static bool takes_max_of_rows(const Call& call, int begin, int end) {
  const Op& op = *call.op;
  if (op.how != kMax || op.pads_zero || call.in[0].format != call.out.format) return false;
  switch (call.out.format) {
    case kU8:
    case kS8: max_rows<uint8_t>(call, begin, end); return true;
    case kI16: max_rows<int16_t>(call, begin, end); return true;
    case kI32: max_rows<int32_t>(call, begin, end); return true;
    default: return false;
  }
}

// Weighted sums of rows of one element type into rows of another, a register of channels after the other, for windows.
// Sums fit 32 bits. What the leading axes say is found once for each line of outputs.
template <class S, class O>
static void sum_rows(const Call& call, int begin, int end) {
  using namespace hot::PTQ_ISA;
  const Projection& w = call.op->project;
  const View &in = call.in[0], &out = call.out;
  hot::Window lead = w.window;
  const hot::Axis& axis = w.window.axes[--lead.rank];
  const int above = w.taps / axis.kernel;
  Piece piece{call.scratch};
  int32_t *lines = piece.take<int32_t>(above), *counts = piece.take<int32_t>(above);
  const uint8_t** rows = piece.take<const uint8_t*>(w.taps);  // under the window of an output, at step 0
  int32_t* by = piece.take<int32_t>(w.taps);
  for (int p = begin; p < end; ++p) {
    const int o = p % axis.out;
    if (p == begin || o == 0) {
      int at[hot::kMostAxes];
      coordinates(lead, p / axis.out, at);
      taps_at(lead, at, lines), weights_at(lead, at, counts);
    }
    int n = 0;
    for (int x = 0; x < axis.kernel; ++x) {
      const int from = axis.taps ? axis.taps[o * axis.kernel + x] : o * axis.stride - axis.before + x * axis.dilation;
      if ((uint32_t)from >= (uint32_t)axis.size) continue;
      const int32_t own = axis.weights ? axis.weights[o * axis.kernel + x] : 1;
      for (int i = 0; i < above; ++i)
        if (lines[i] >= 0) rows[n] = row_of(in, lines[i] * axis.size + from, 0), by[n++] = own * counts[i];
    }
    const int64_t step = in.steps > 1 ? in.row : 0;
    for (int t = 0; t < out.steps; ++t)
      for (int c = 0; c < out.channels; c += kLanes) {
        i32v sum = {};
        for (int i = 0; i < n; ++i) sum += load_lanes(reinterpret_cast<const S*>(rows[i] + t * step) + c) * by[i];
        store_lanes(reinterpret_cast<O*>(row_of_mutable(out, p, t)) + c, sum);
      }
  }
}

static bool takes_sum_of_rows(const Call& call, int begin, int end) {
  const Op& op = *call.op;
  const int in = call.in[0].format, out = call.out.format;
  if (op.how != kSum || op.wide || op.pool_weights || op.project.window.rank == 0) return false;
  if (call.out.channels % hot::PTQ_ISA::kLanes != 0) return false;
  if (in == kI16 && out == kI16) return sum_rows<int16_t, int16_t>(call, begin, end), true;
  if (in == kI16 && out == kI32) return sum_rows<int16_t, int32_t>(call, begin, end), true;
  if (in == kI32 && out == kI32) return sum_rows<int32_t, int32_t>(call, begin, end), true;
  return false;
}

template <class T>
static void pool(const Call& call, int begin, int end) {
  const Op& op = *call.op;
  const View& in = call.in[0];
  const bool same = in.format == call.out.format && in.steps == call.out.steps;
  const bool weighted = op.pool_weights || (op.project.window.rank > 0 && op.project.window.axes[0].weights);
  if (op.project.taps == 1 && same && !weighted && in.format != kS8) return move_rows(call, begin, end);
  if (takes_max_of_rows(call, begin, end) || takes_sum_of_rows(call, begin, end)) return;
  Piece piece{call.scratch};
  T *sum = piece.take<T>(call.out.channels), *row = piece.take<T>(call.out.channels);
  const int taps = op.project.taps;
  int32_t *room = piece.take<int32_t>(taps), *own = piece.take<int32_t>(taps);
  TapWalk walk(taps_of(op.project), begin, room);
  const bool by_axis = weighted && !op.pool_weights;
  for (int p = begin; p < end; ++p) {
    const int32_t* weights = op.pool_weights ? op.pool_weights + (int64_t)p * taps : by_axis ? own : nullptr;
    if (by_axis) walk.weights(own);
    const int32_t* from = walk.next();
    for (int t = 0; t < call.out.steps; ++t) {
      pool_row(call, t, from, weights, sum, row);
      encode(call.out, p, t, sum);
    }
  }
}

constexpr int kFewColumns = 64;  // of a product: up to there a zero costs less than to look for it

// Numbers between two rows of the right side: few columns are padded to whole vectors.
static inline int matmul_stride(int columns) { return columns <= kFewColumns ? (columns + 7) / 8 * 8 : columns; }

// Rows of one group, eight columns at a time.
template <class T>
static void matmul_eights(const Call& call, int t, int begin, int end, const T* b, T* a, T* sum) {
  typedef T Eight __attribute__((vector_size(8 * sizeof(T))));
  const int inner = call.in[0].channels, stride = matmul_stride(call.out.channels);
  for (int p = begin; p < end; ++p) {
    decode(call.in[0], p, t, a);
    for (int c = 0; c < stride; c += 8) {
      Eight all = {};
      for (int i = 0; i < inner; ++i) all += hot::PTQ_ISA::load<Eight>(b + (int64_t)i * stride + c) * a[i];
      hot::PTQ_ISA::store(sum + c, all);
    }
    encode(call.out, p, t, sum);
  }
}

// Rows of one group: every nonzero a[i] adds a row of b.
template <class T>
static void matmul_rows(const Call& call, int t, int begin, int end, const T* b, T* a, T* sum) {
  const int inner = call.in[0].channels, columns = call.out.channels;
  if (columns <= kFewColumns) return matmul_eights(call, t, begin, end, b, a, sum);
  for (int p = begin; p < end; ++p) {
    decode(call.in[0], p, t, a);
    for (int c = 0; c < columns; ++c) sum[c] = 0;
    for (int i = 0; i < inner; ++i) {
      if (a[i] == 0) continue;
      const T by = a[i];
      const T* row = b + (int64_t)i * columns;
      for (int c = 0; c < columns; ++c) sum[c] += by * row[c];
    }
    encode(call.out, p, t, sum);
  }
}

template <class T>
static void matmul(const Call& call, int begin, int end) {
  const View& right = call.in[1];
  const int inner = call.in[0].channels, columns = call.out.channels, stride = matmul_stride(columns);
  const int rows = call.out.positions / call.op->groups;
  Piece piece{call.scratch};
  T *a = piece.take<T>(inner), *sum = piece.take<T>(stride), *b = piece.take<T>((int64_t)inner * stride);
  std::memset(b, 0, sizeof(T) * (size_t)inner * (size_t)stride);
  for (int first = begin; first < end;) {
    const int group = first / rows;
    const int last = (group + 1) * rows < end ? (group + 1) * rows : end;
    for (int t = 0; t < call.out.steps; ++t) {
      for (int i = 0; i < inner; ++i) decode(right, group * inner + i, t, b + (int64_t)i * stride);
      matmul_rows(call, t, first, last, b, a, sum);
    }
    first = last;
  }
}

static void keep(const Call& call, int begin, int end) {
  if (call.kept == nullptr) return;
  const View& in = call.in[0];
  for (int p = begin; p < end; ++p)
    for (int t = 0; t < in.steps; ++t) decode(in, p, t, call.kept + t * call.kept_stride + (int64_t)p * in.channels);
}

}  // namespace PTQ_ISA
}  // namespace ptq
