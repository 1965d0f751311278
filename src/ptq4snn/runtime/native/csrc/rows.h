// Rows of any format to and from plain integers. T is int32_t or int64_t.
#pragma once
#include <cstring>

#include "hot/values.h"
#include "types.h"

#ifndef PTQ_ISA
#error "PTQ_ISA names the instruction set level"
#endif

namespace ptq {
namespace PTQ_ISA {

static inline const uint8_t* row_of(const View& v, int p, int t) {
  const int step = v.steps > 1 ? t : 0;  // a value without time is the same at every step
  return v.data + ((int64_t)p * v.steps + step) * v.row;
}

static inline uint8_t* row_of_mutable(const View& v, int p, int t) { return const_cast<uint8_t*>(row_of(v, p, t)); }

// An input of one position serves all positions.
static inline int shared_position(const View& v, int p) { return v.positions == 1 ? 0 : p; }

template <class T>
static inline void decode_planes(const uint64_t* words, int planes, int channels, T* out) {
  const int count = (channels + 63) / 64;
  for (int w = 0; w < count; ++w) {
    const int n = channels - w * 64 < 64 ? channels - w * 64 : 64;
    uint8_t bytes[64];
    hot::PTQ_ISA::decode_words(words + w, planes, count, bytes);
    for (int i = 0; i < n; ++i) out[w * 64 + i] = (T)bytes[i];
  }
}

template <class T>
static inline void encode_planes(const T* in, int planes, int channels, uint64_t* words) {
  const int count = (channels + 63) / 64;
  for (int w = 0; w < count; ++w) {
    const int n = channels - w * 64 < 64 ? channels - w * 64 : 64;
    uint8_t bytes[64] = {0};
    for (int i = 0; i < n; ++i) bytes[i] = (uint8_t)in[w * 64 + i];
    for (int q = 0; q < planes; ++q) words[q * count + w] = hot::PTQ_ISA::plane_of(bytes, q);
  }
}

template <class T, class S>
static inline void widen(const uint8_t* row, int channels, T* out) {
  const S* s = reinterpret_cast<const S*>(row);
  for (int c = 0; c < channels; ++c) out[c] = (T)s[c];
}

template <class T, class S>
static inline void narrow(const T* in, int channels, uint8_t* row) {
  S* s = reinterpret_cast<S*>(row);
  for (int c = 0; c < channels; ++c) s[c] = (S)in[c];
}

template <class T>
static void decode(const View& v, int p, int t, T* out) {
  const uint8_t* row = row_of(v, p, t);
  const int n = v.channels;
  switch (v.format) {
    case kU8: return widen<T, uint8_t>(row, n, out);
    case kS8:
      for (int c = 0; c < n; ++c) out[c] = (T)row[c] - 128;
      return;
    case kI16: return widen<T, int16_t>(row, n, out);
    case kI32: return widen<T, int32_t>(row, n, out);
    case kI64: return widen<T, int64_t>(row, n, out);
    default: return decode_planes<T>(reinterpret_cast<const uint64_t*>(row), v.format, n, out);
  }
}

template <class T>
static void encode(const View& v, int p, int t, const T* in) {
  uint8_t* row = row_of_mutable(v, p, t);
  const int n = v.channels;
  switch (v.format) {
    case kU8: return narrow<T, uint8_t>(in, n, row);
    case kS8:
      for (int c = 0; c < n; ++c) row[c] = (uint8_t)(in[c] + 128);
      return;
    case kI16: return narrow<T, int16_t>(in, n, row);
    case kI32: return narrow<T, int32_t>(in, n, row);
    case kI64: return narrow<T, int64_t>(in, n, row);
    default: return encode_planes<T>(in, v.format, n, reinterpret_cast<uint64_t*>(row));
  }
}

// One element; for moves that have no order.
template <class T>
static inline T element_of(const View& v, int p, int t, int c) {
  const uint8_t* row = row_of(v, p, t);
  switch (v.format) {
    case kU8: return row[c];
    case kS8: return (T)row[c] - 128;
    case kI16: return reinterpret_cast<const int16_t*>(row)[c];
    case kI32: return (T) reinterpret_cast<const int32_t*>(row)[c];
    case kI64: return (T) reinterpret_cast<const int64_t*>(row)[c];
    default: {
      const uint64_t* words = reinterpret_cast<const uint64_t*>(row);
      const int count = (v.channels + 63) / 64;
      T out = 0;
      for (int q = 0; q < v.format; ++q) out += (T)((words[q * count + c / 64] >> (c % 64)) & 1u) << q;
      return out;
    }
  }
}

// The whole number nearest to x, halves to even.
static inline int64_t nearest(double x) {
  const double limit = 4611686018427387904.0;  // 2^62
  x = x > -limit ? x : -limit;
  return (int64_t)__builtin_rint(x < limit ? x : limit);
}

// a / 2^n, halves to even; 0 <= n <= 62.
static inline int64_t rshift_even(int64_t a, int n) {
  if (n == 0) return a;
  const int64_t half = (int64_t)1 << (n - 1);
  return (a + (half - 1) + ((a >> n) & 1)) >> n;
}

}  // namespace PTQ_ISA
}  // namespace ptq
