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

using hot::PTQ_ISA::kUnit;
using hot::PTQ_ISA::StrideWalk;
using hot::PTQ_ISA::TapWalk;

static inline hot::Taps taps_of(const Projection& w) { return {w.taps, w.table ? nullptr : &w.window, w.table}; }

// Whether every position and step of a value is another row, as many as those of the output.
static inline bool is_like(const View& v, const View& out) {
  return v.positions == out.positions && v.steps == out.steps;
}

// out = clip(a left + b right + constant); `out` may be one of them.
template <class S>
static inline void add_elements(const Op& op, const uint8_t* left, const uint8_t* right, int64_t n, uint8_t* out) {
  const int32_t a = (int32_t)op.coefficients[0], b = (int32_t)op.coefficients[1], constant = (int32_t)op.constant;
  const int32_t low = (int32_t)op.low, high = (int32_t)op.high;
  const S *x = reinterpret_cast<const S*>(left), *y = reinterpret_cast<const S*>(right);
  S* z = reinterpret_cast<S*>(out);
  const auto one = [=](int32_t l, int32_t r) {
    const int32_t sum = a * l + b * r + constant;
    return (S)(sum < low ? low : sum > high ? high : sum);
  };
  int64_t c = 0;
  for (; c + kUnit <= n; c += kUnit) {  // known lengths become vector code without a rest
    S some[kUnit];
    for (int i = 0; i < kUnit; ++i) some[i] = one(x[c + i], y[c + i]);
    std::memcpy(z + c, some, sizeof some);
  }
  for (; c < n; ++c) z[c] = one(x[c], y[c]);
}

// Rows of one element type, added without a detour: streams.
template <class S>
static void add_rows(const Call& call, int begin, int end) {
  const View &x = call.in[0], &y = call.in[1], &out = call.out;
  const int n = out.channels;
  if (is_like(x, out) && is_like(y, out))  // rows follow each other alike
    return add_elements<S>(*call.op, row_of(x, begin, 0), row_of(y, begin, 0), (int64_t)(end - begin) * out.steps * n,
                           row_of_mutable(out, begin, 0));
  for (int p = begin; p < end; ++p)
    for (int t = 0; t < out.steps; ++t)
      add_elements<S>(*call.op, row_of(x, shared_position(x, p), t), row_of(y, shared_position(y, p), t), n,
                      row_of_mutable(out, p, t));
}

template <class T>
static void combine(const Call& call, int begin, int end) {
  const Op& op = *call.op;
  const int format = call.out.format, n = call.out.channels;
  if (op.inputs == 2 && !op.wide && call.in[0].format == format && call.in[1].format == format) {
    if (format == kI16) return add_rows<int16_t>(call, begin, end);
    if (format == kI32) return add_rows<int32_t>(call, begin, end);
  }
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
