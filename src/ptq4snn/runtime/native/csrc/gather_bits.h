// Gathers of spikes in one plane as words.
#pragma once
#include "pointwise.h"

namespace ptq {
namespace PTQ_ISA {

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

// Bits of one row of spikes in one plane that stay side by side: `count` of them, at most 64.
struct BitPiece {
  int64_t from;  // element of the input that the index names
  int to, count;
};

// Bits [at, at + count) of a row; count is at most 64.
static inline uint64_t bits_at(const uint64_t* words, int at, int count) {
  const int turn = at % 64, low = 64 - turn;
  uint64_t x = words[at / 64] >> turn;
  if (count > low) x |= words[at / 64 + 1] << low;
  return count < 64 ? x & (((uint64_t)1 << count) - 1) : x;
}

static inline void put_bits(uint64_t* words, int at, int count, uint64_t x) {
  const int turn = at % 64;
  words[at / 64] |= x << turn;
  if (count > 64 - turn) words[at / 64 + 1] |= x >> (64 - turn);
}

constexpr int kLeastPiece = 4;  // bits, on average: shorter ones cost more than bytes

// The pieces of an index with strides that are multiples of `whole`, which no piece crosses; how many, -1: too many.
static int bit_pieces(const Op& op, int n, int whole, BitPiece* out) {
  int count = 0;
  for (int c = 0; c < n; ++c) {
    const int x = op.index[c];
    BitPiece* last = out + count - 1;
    if (count > 0 && last->count < 64 && x == last->from + last->count && x % whole != 0) {
      ++last->count;
      continue;
    }
    if (x < 0 || (count + 1) * kLeastPiece > n) return -1;
    out[count++] = {x, c, 1};
  }
  return count;
}

static int common_divisor(int a, int b) { return b == 0 ? a : common_divisor(b, a % b); }

// False: not spikes of one plane, or pieces that are too short.
static bool move_pieces(const Call& call, int begin, int end) {
  const Op& op = *call.op;
  const View &in = call.in[0], &out = call.out;
  const bool spikes = op.inputs == 1 && in.format == 1 && out.format == 1 && in.steps == out.steps;
  if (!spikes || op.width != 1 || op.index_strides.rank == 0) return false;
  int whole = in.channels;
  for (int a = 0; a < op.index_strides.rank; ++a) whole = common_divisor(whole, op.index_strides.strides[a]);
  BitPiece* const pieces = reinterpret_cast<BitPiece*>(call.scratch);
  const int count = bit_pieces(op, out.channels, whole, pieces);
  if (count < 0) return false;
  const int64_t in_words = words_of(in.channels), out_words = words_of(out.channels);
  StrideWalk walk(op.index_strides, begin);
  for (int p = begin; p < end; ++p) {
    const int64_t moved = walk.next();
    uint64_t* to = reinterpret_cast<uint64_t*>(row_of_mutable(out, p, 0));
    std::memset(to, 0, (size_t)(out.row * out.steps));
    for (int i = 0; i < count; ++i) {
      const BitPiece& piece = pieces[i];
      const int64_t from = piece.from + moved;
      const int at = (int)(from % in.channels);
      const uint64_t* words = reinterpret_cast<const uint64_t*>(row_of(in, (int)(from / in.channels), 0));
      for (int t = 0; t < out.steps; ++t)
        put_bits(to + t * out_words, piece.to, piece.count, bits_at(words + t * in_words, at, piece.count));
    }
  }
  return true;
}

}  // namespace PTQ_ISA
}  // namespace ptq
