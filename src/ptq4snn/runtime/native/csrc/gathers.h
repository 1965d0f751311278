// Operations that take elements by an index.
#pragma once
#include "gather_bits.h"

namespace ptq {
namespace PTQ_ISA {

// The row of an index for one position after the other: its numbers, and what is added to those that are not -1.
struct IndexWalk {
  const Op& op;
  int64_t row, moved = 0;
  const int32_t* at;
  StrideWalk strides;

  IndexWalk(const Op& o, int p, int64_t numbers)
      : op(o), row(numbers), at(o.index + (o.index_strides.rank > 0 ? 0 : p * numbers)), strides(o.index_strides, p) {}

  void go_on(int n) {
    for (int i = 0; i < n; ++i) next();
  }

  const int32_t* next() {
    const int32_t* now = at;
    if (op.index_strides.rank > 0)
      moved = strides.next();
    else
      at += row;
    return now;
  }
};

// All inputs of a gather at step t, end to end.
template <class T>
static void lay_out(const Call& call, int t, T* out) {
  for (int i = 0; i < call.op->inputs; ++i) {
    const View& v = call.in[i];
    for (int p = 0; p < v.positions; ++p, out += v.channels) decode(v, p, t, out);
  }
}

// Whether an index with strides moves rows as they are.
static bool moves_rows(const Call& call) {
  const Op& op = *call.op;
  const View& in = call.in[0];
  const int n = call.out.channels;
  bool whole = op.index_strides.rank > 0 && op.width == 1 && op.inputs == 1 && in.channels == n;
  whole = whole && in.format == call.out.format && in.steps == call.out.steps;
  for (int a = 0; whole && a < op.index_strides.rank; ++a) whole = op.index_strides.strides[a] % n == 0;
  for (int c = 0; whole && c < n; ++c) whole = op.index[c] == c;
  return whole;
}

static void move_by_strides(const Call& call, int begin, int end) {
  StrideWalk walk(call.op->index_strides, begin);
  for (int p = begin; p < end; ++p)
    std::memcpy(row_of_mutable(call.out, p, 0), row_of(call.in[0], (int)(walk.next() / call.out.channels), 0),
                (size_t)(call.out.row * call.out.steps));
}

template <class T>
static void gather_elements(const Call& call, int begin, int end) {
  const Op& op = *call.op;
  const int n = call.out.channels, width = op.width;
  int64_t elements = 0;
  for (int i = 0; i < op.inputs; ++i) elements += (int64_t)call.in[i].positions * call.in[i].channels;
  Piece piece{call.scratch};
  T *row = piece.take<T>(n), *flat = piece.take<T>(elements + 1) + 1;
  flat[-1] = 0;  // what -1 stands for
  for (int t = 0; t < call.out.steps; ++t) {
    lay_out(call, t, flat);
    IndexWalk walk(op, begin, (int64_t)n * width);
    for (int p = begin; p < end; ++p) {
      const int32_t* index = walk.next();
      const T* from = flat + walk.moved;  // -1 only where nothing is added
      for (int c = 0; c < n; ++c) {
        T out = from[index[(int64_t)c * width]];
        for (int k = 1; k < width; ++k) {
          const T x = from[index[(int64_t)c * width + k]];
          out = op.how == kSum ? (T)(out + x) : x > out ? x : out;
        }
        row[c] = out;
      }
      encode(call.out, p, t, row);
    }
  }
}

template <class T>
static void gather(const Call& call, int begin, int end) {
  if (moves_rows(call)) return move_by_strides(call, begin, end);
  if (move_bits(call, begin, end) || move_pieces(call, begin, end)) return;
  bool planes = is_planes(call.out.format);
  for (int i = 0; i < call.op->inputs; ++i) planes = planes && is_planes(call.in[i].format);
  planes ? gather_elements<uint8_t>(call, begin, end) : gather_elements<T>(call, begin, end);
}

}  // namespace PTQ_ISA
}  // namespace ptq
