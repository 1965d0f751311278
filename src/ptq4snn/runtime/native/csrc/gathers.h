// Operations that take elements by an index.
#pragma once
#include "pointwise.h"

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

// Spikes that each output takes from its own row, as words: all that are as far away go together.
struct BitMove {
  int from, to, turn;  // words of the row; bits to the right
  uint64_t kept;       // of those that are turned
};

constexpr int kMostMoves = 16;  // into one word: up to there they cost less than numbers

// The moves of an index that reads one row, into `out`, which has room for kMostMoves a word; how many, -1: too many.
static int bit_moves(const Op& op, int n, BitMove* out) {
  const int most = kMostMoves * (int)words_of(n);
  int count = 0;
  for (int c = 0; c < n; ++c)
    for (int k = 0; k < op.width; ++k) {
      const int x = op.index[c * op.width + k], turn = (x - c) & 63;
      int i = 0;
      while (i < count && (out[i].from != x / 64 || out[i].to != c / 64 || out[i].turn != turn)) ++i;
      if (i == most) return -1;
      if (i == count) out[count++] = {x / 64, c / 64, turn, 0};
      out[i].kept |= (uint64_t)1 << (c % 64);
    }
  return count;
}

// Whether an index with strides takes spikes of one plane from one row each: the largest of them is any of them.
static bool moves_bits(const Call& call) {
  const Op& op = *call.op;
  const View& in = call.in[0];
  const int n = call.out.channels;
  bool own = op.index_strides.rank > 0 && op.inputs == 1 && in.channels == n && (op.width == 1 || op.how == kMax);
  own = own && in.format == 1 && call.out.format == 1 && in.steps == call.out.steps;
  for (int a = 0; own && a < op.index_strides.rank; ++a) own = op.index_strides.strides[a] % n == 0;
  for (int i = 0; own && i < n * op.width; ++i) own = op.index[i] >= 0 && op.index[i] < n;
  return own;
}

// False: it does not, or from too many places.
static bool move_bits(const Call& call, int begin, int end) {
  const int n = call.out.channels, steps = call.out.steps, words = (int)words_of(n);
  BitMove* const moves = reinterpret_cast<BitMove*>(call.scratch);
  const int count = moves_bits(call) ? bit_moves(*call.op, n, moves) : -1;
  if (count < 0) return false;
  StrideWalk walk(call.op->index_strides, begin);
  for (int p = begin; p < end; ++p) {
    const uint64_t* in = reinterpret_cast<const uint64_t*>(row_of(call.in[0], (int)(walk.next() / n), 0));
    uint64_t* out = reinterpret_cast<uint64_t*>(row_of_mutable(call.out, p, 0));
    std::memset(out, 0, sizeof(uint64_t) * (size_t)(steps * words));
    for (int t = 0; t < steps; ++t, in += words, out += words)
      for (int i = 0; i < count; ++i) {
        const BitMove& m = moves[i];
        const uint64_t x = in[m.from];
        out[m.to] |= (x >> m.turn | x << (-m.turn & 63)) & m.kept;
      }
  }
  return true;
}

template <class T>
static void gather(const Call& call, int begin, int end) {
  if (moves_rows(call)) return move_by_strides(call, begin, end);
  if (move_bits(call, begin, end)) return;
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
          out = op.how == kSum ? out + x : x > out ? x : out;
        }
        row[c] = out;
      }
      encode(call.out, p, t, row);
    }
  }
}

}  // namespace PTQ_ISA
}  // namespace ptq
