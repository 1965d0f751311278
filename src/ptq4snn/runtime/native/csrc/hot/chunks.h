// How the rows of weights are cut: an expanded chunk (taps x 64 input channels x tiles) stays in the first-level cache
// while all positions pass over it. Taps of a chunk are of one class, so that few accumulators stay idle.
#pragma once

#include "runs.h"
#include "vector.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

constexpr int kChunkRows = kBytes == 32 ? 6 : 9;  // rows of 64 bytes for each input channel: 24 KB, 36 KB

struct Chunk {
  int tap_class;
  int rank, ranks;  // taps by rank
  int tile, tiles;
  int word;
};

static inline int balanced(int n, int most) { return parts(n, parts(n, most)); }

// Taps of a chunk: whole rows of three where the class has such, for sums that slide (slide.h).
static inline int taps_each(int ranks, int halves) {
  const int most = max_int(1, kChunkRows / halves), each = balanced(ranks, most);
  return ranks % 3 == 0 ? min_int((int)round_up(each, 3), most) : each;
}

// All chunks of a projection one after another; words are innermost. `halves`: rows of a tap and tile.
struct Chunks {
  const int32_t* class_start;
  int classes, words, tiles, halves;
  int ranks_each, tiles_each;
  Chunk now;

  Chunks(const int32_t* class_start_, int classes_, int channels, int tiles_, int halves_)
      : class_start(class_start_), classes(classes_), words(parts(channels, 64)), tiles(tiles_), halves(halves_) {
    now = {};
    open_class();
  }

  bool more() const { return now.tap_class < classes; }

  void open_class() {
    const int ranks = class_start[now.tap_class + 1] - class_start[now.tap_class];
    ranks_each = taps_each(ranks, halves);
    tiles_each = balanced(tiles, max_int(1, kChunkRows / halves / ranks_each));
    now.rank = class_start[now.tap_class], now.tile = 0;
    set_sizes();
  }

  void set_sizes() {
    now.ranks = min_int(ranks_each, class_start[now.tap_class + 1] - now.rank);
    now.tiles = min_int(tiles_each, tiles - now.tile);
  }

  void next() {
    if (++now.word < words) return;
    now.word = 0;
    now.tile += now.tiles;
    if (now.tile == tiles) {
      now.tile = 0;
      now.rank += now.ranks;
      if (now.rank == class_start[now.tap_class + 1]) {
        if (++now.tap_class < classes) open_class();
        return;
      }
    }
    set_sizes();
  }
};

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
