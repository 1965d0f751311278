// Runs of positions, cut for the kernels that add their events.
#pragma once

#include "chunks.h"
#include "slide.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

// A stretch with its slots and the kernel for it.
struct Piece {
  Stretch in;
  Slots slots;
  Scatter scatter;
  const uint64_t* words;  // of the first position
  int used;
};

// Pieces of `positions` that follow each other: so many at most in any chunk.
static int most_pieces(const Runs& runs, int halves, int positions) {
  int most = 0;
  for (int c = 0; c < runs.classes; ++c) {
    const int ranks = runs.class_start[c + 1] - runs.class_start[c];
    const int across = kChunkRows / taps_each(ranks, halves);
    int n = 0;
    for (const int32_t* at = runs.begin(c); at < runs.end(c); at = Run(at).end()) {
      const Run run(at);
      const int repeats = run.again > 0 ? min_int(run.repeats, positions / run.again + 2) : run.repeats;
      n += repeats * parts(run.readers * across, kSlots);
    }
    most = max_int(most, n);
  }
  return most;
}

// Memory that will be read soon, brought nearer a few lines at a time.
struct Ahead {
  const char *at = nullptr, *end = nullptr;
  int64_t length = 0, next = 0;  // of a part; from one part to the next
  int parts = 0, lines = 0;

  // `calls`: how often `some` will be called.
  void set(const char* start, int64_t length_, int parts_, int64_t next_, int calls) {
    at = start, end = start + length_, length = length_, next = next_, parts = parts_;
    lines = (int)((length / kTile + 1) * parts / max_int(1, calls)) + 1;
  }

  void some() {
    if (at >= end) return;
    for (int i = 0; i < lines && at < end; ++i, at += kTile) __builtin_prefetch(at, 0, 2);
    if (at >= end && --parts > 0) at = end - length + next, end = at + length;
  }
};

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
