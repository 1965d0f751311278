// Operations that look at one element of each input: combine, multiply, affine, clip, choice.
#pragma once
#include "hot/taps.h"
#include "rows.h"

namespace ptq {
namespace PTQ_ISA {

// Memory of the thread, handed out in aligned pieces.
struct Piece {
  uint8_t* at;
  template <class T>
  T* take(int64_t count) {
    T* out = reinterpret_cast<T*>(at);
    at += (count * (int64_t)sizeof(T) + 63) / 64 * 64;
    return out;
  }
};

constexpr int kEight = 8;
using hot::PTQ_ISA::StrideWalk;
using hot::PTQ_ISA::TapWalk;

static inline hot::Taps taps_of(const Projection& w) { return {w.taps, w.table ? nullptr : &w.window, w.table}; }

// Whether every position and step of a value is another row, as many as those of the output.
static inline bool is_like(const View& v, const View& out) {
  return v.positions == out.positions && v.steps == out.steps;
}

// out = clip(a left + b right + constant); `out` may be one of them.
template <class A, class B, class O>
static inline void add_elements(const Op& op, const A* x, const B* y, int64_t n, O* z) {
  using namespace hot::PTQ_ISA;
  const int32_t a = (int32_t)op.coefficients[0], b = (int32_t)op.coefficients[1], constant = (int32_t)op.constant;
  const int32_t low = (int32_t)op.low, high = (int32_t)op.high;
  const bool plain = a == 1 && b == 1;
  int64_t c = 0;
  for (; c + kLanes <= n; c += kLanes) {
    i32v l = load_lanes(x + c), r = load_lanes(y + c);
    if (!plain) l *= a, r *= b;
    store_lanes(z + c, smaller(larger(l + r + constant, same(low)), same(high)));
  }
  for (; c + kEight <= n; c += kEight) {
    typedef int32_t Eight __attribute__((vector_size(4 * kEight)));
    typedef A Left __attribute__((vector_size(sizeof(A) * kEight)));
    typedef B Right __attribute__((vector_size(sizeof(B) * kEight)));
    typedef O Out __attribute__((vector_size(sizeof(O) * kEight)));
    const Eight l = __builtin_convertvector(load<Left>(x + c), Eight) * a;
    const Eight sum = l + __builtin_convertvector(load<Right>(y + c), Eight) * b + constant;
    const Eight least = sum < low ? Eight{} + low : sum;
    store(z + c, __builtin_convertvector(least > high ? Eight{} + high : least, Out));
  }
  for (; c < n; ++c) {
    const int32_t sum = a * x[c] + b * y[c] + constant;
    z[c] = (O)(sum < low ? low : sum > high ? high : sum);
  }
}

// Rows of int16 or int32, added without a detour: streams.
template <class A, class B, class O>
static void add_rows(const Call& call, int begin, int end) {
  const View &x = call.in[0], &y = call.in[1], &out = call.out;
  const auto left = [&](int p) { return reinterpret_cast<const A*>(row_of(x, shared_position(x, p), 0)); };
  const auto right = [&](int p) { return reinterpret_cast<const B*>(row_of(y, shared_position(y, p), 0)); };
  const auto to = [&](int p) { return reinterpret_cast<O*>(row_of_mutable(out, p, 0)); };
  const int n = out.channels;
  if (is_like(x, out) && is_like(y, out))  // rows follow each other alike
    return add_elements(*call.op, left(begin), right(begin), (int64_t)(end - begin) * out.steps * n, to(begin));
  const int64_t x_step = x.steps > 1 ? n : 0, y_step = y.steps > 1 ? n : 0;
  for (int p = begin; p < end; ++p) {
    const A* l = left(p);
    const B* r = right(p);
    O* o = to(p);
    for (int t = 0; t < out.steps; ++t, l += x_step, r += y_step, o += n) add_elements(*call.op, l, r, n, o);
  }
}

// False: they are others.
static bool adds_rows(const Call& call, int begin, int end) {
  if (call.op->inputs != 2 || call.op->wide) return false;
  const int x = call.in[0].format, y = call.in[1].format, out = call.out.format;
  if (x == kI16 && y == kI16 && out == kI16) return add_rows<int16_t, int16_t, int16_t>(call, begin, end), true;
  if (x == kI32 && y == kI32 && out == kI32) return add_rows<int32_t, int32_t, int32_t>(call, begin, end), true;
  if (x == kI16 && y == kI32 && out == kI32) return add_rows<int16_t, int32_t, int32_t>(call, begin, end), true;
  if (x == kI32 && y == kI16 && out == kI32) return add_rows<int32_t, int16_t, int32_t>(call, begin, end), true;
  return false;
}

template <class T>
static void combine(const Call& call, int begin, int end) {
  const Op& op = *call.op;
  const int n = call.out.channels;
  if (adds_rows(call, begin, end)) return;
  const T low = (T)op.low, high = (T)op.high;
  Piece piece{call.scratch};
  T *sum = piece.take<T>(n), *row = piece.take<T>(n);
  for (int p = begin; p < end; ++p)
    for (int t = 0; t < call.out.steps; ++t) {
      for (int c = 0; c < n; ++c) sum[c] = (T)op.constant;
      for (int i = 0; i < op.inputs; ++i) {
        const T by = (T)op.coefficients[i];
        decode(call.in[i], shared_position(call.in[i], p), t, row);
        for (int c = 0; c < n; ++c) sum[c] += by * row[c];
      }
      for (int c = 0; c < n; ++c) sum[c] = sum[c] < low ? low : sum[c] > high ? high : sum[c];
      encode(call.out, p, t, sum);
    }
}

template <class T>
static void multiply(const Call& call, int begin, int end) {
  const View &a = call.in[0], &b = call.in[1];
  const int n = call.out.channels;
  Piece piece{call.scratch};
  T *x = piece.take<T>(n), *y = piece.take<T>(n);
  for (int p = begin; p < end; ++p)
    for (int t = 0; t < call.out.steps; ++t) {
      decode(a, shared_position(a, p), t, x);
      decode(b, shared_position(b, p), t, y);
      for (int c = 0; c < n; ++c) x[c] *= y[c];
      encode(call.out, p, t, x);
    }
}

template <class T>
static void affine(const Call& call, int begin, int end) {
  const int n = call.out.channels;
  const int32_t *signs = call.op->signs, *shifts = call.op->shifts;
  T* x = reinterpret_cast<T*>(call.scratch);
  for (int p = begin; p < end; ++p)
    for (int t = 0; t < call.out.steps; ++t) {
      decode(call.in[0], p, t, x);
      for (int c = 0; c < n; ++c) x[c] = x[c] * signs[c] + shifts[c];
      encode(call.out, p, t, x);
    }
}

template <class T>
static void clip(const Call& call, int begin, int end) {
  const int n = call.out.channels;
  const T low = (T)call.op->low, high = (T)call.op->high;
  T* x = reinterpret_cast<T*>(call.scratch);
  for (int p = begin; p < end; ++p)
    for (int t = 0; t < call.out.steps; ++t) {
      decode(call.in[0], p, t, x);
      for (int c = 0; c < n; ++c) x[c] = x[c] < low ? low : x[c] > high ? high : x[c];
      encode(call.out, p, t, x);
    }
}

template <class T>
static void choose(int how, int n, T* x, const T* y) {
  switch (how) {
    case kMax:
      for (int c = 0; c < n; ++c) x[c] = x[c] > y[c] ? x[c] : y[c];
      return;
    case kMin:
      for (int c = 0; c < n; ++c) x[c] = x[c] < y[c] ? x[c] : y[c];
      return;
    case kGt:
      for (int c = 0; c < n; ++c) x[c] = x[c] > y[c];
      return;
    case kGe:
      for (int c = 0; c < n; ++c) x[c] = x[c] >= y[c];
      return;
    case kLt:
      for (int c = 0; c < n; ++c) x[c] = x[c] < y[c];
      return;
    case kLe:
      for (int c = 0; c < n; ++c) x[c] = x[c] <= y[c];
      return;
    case kEq:
      for (int c = 0; c < n; ++c) x[c] = x[c] == y[c];
      return;
    default:
      for (int c = 0; c < n; ++c) x[c] = x[c] != y[c];
      return;
  }
}

template <class T>
static void choice(const Call& call, int begin, int end) {
  const int n = call.out.channels;
  Piece piece{call.scratch};
  T *x = piece.take<T>(n), *y = piece.take<T>(n);
  for (int c = 0; c < n; ++c) y[c] = (T)call.op->constant;
  for (int p = begin; p < end; ++p)
    for (int t = 0; t < call.out.steps; ++t) {
      decode(call.in[0], shared_position(call.in[0], p), t, x);
      if (call.op->inputs == 2) decode(call.in[1], shared_position(call.in[1], p), t, y);
      choose(call.op->how, n, x, y);
      encode(call.out, p, t, x);
    }
}

}  // namespace PTQ_ISA
}  // namespace ptq
