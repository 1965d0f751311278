// Projections: sums of a tile of channels for a block of positions, handed to a sink.
#pragma once

#include "dense.h"
#include "event_project.h"
#include "sinks.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

#if defined(PTQ_AVX512)
typedef uint8_t Small;             // values of spikes and bytes as dense input
constexpr double kCrossOver = 0.55;  // mean value of the input above which dense is faster
#else
typedef int16_t Small;
constexpr double kCrossOver = 1.5;
#endif

// Positions of a block. Weights expanded once can serve short blocks, whose sums stay in the first-level cache.
static inline int block_of(bool one_expansion, int steps, int range) {
  return one_expansion ? max_int(1, min_int(range, 256 / steps)) : range;
}

template <class X, class Sink>
static void dense_blocks(Dense<X>& dense, Sink& sink, int begin, int end, int block, int32_t* acc) {
  dense.copy_inputs();
  for (int b = begin; b < end; b += block) {
    const int e = min_int(end, b + block);
    sink.open(b, e);
    for (int tile = 0; tile * kTile < dense.l.cout; ++tile) {
      if (b == begin || block == end - begin) dense.expand(tile);
      dense.run(b, e, acc);
      sink.tile(tile * kTile, b, e, acc, dense.steps);
    }
    sink.close(b, e);
  }
}

static inline bool is_small(const Source& s) {
  return s.spikes || s.rows->type == Type::U8 || s.rows->type == Type::S8 || s.rows->type == Type::I8;
}

template <class X, class Sink>
static void run_dense(const Layer& l, const Source& s, Sink& sink, int begin, int end, int first, int last,
                      Arena& arena) {
  Dense<X> dense(l, s, first, last, arena);
  const int block = block_of(l.cout <= kTile, dense.steps, end - begin);
  int32_t* acc = arena.take<int32_t>((size_t)block * dense.steps * kTile);
  dense_blocks(dense, sink, begin, end, block, acc);
}

static inline bool by_events(const Layer& l, const Source& s, int first, int last) {
  if (!s.spikes || l.path == Path::Dense) return false;
  const Spikes& k = *s.spikes;
  return l.path == Path::Event ||
         (double)count_events(k, first, last) <= kCrossOver * (double)(last - first) * k.steps * k.channels;
}

static Path choose(const Layer& l, const Source& s, int begin, int end) {
  int first, last;
  input_range(l, begin, end, &first, &last);
  return by_events(l, s, first, last) ? Path::Event : Path::Dense;
}

template <class Sink>
static void run_project(const Layer& l, const Source& s, Sink& sink, int begin, int end, Arena& arena) {
  int first, last;
  input_range(l, begin, end, &first, &last);
  if (by_events(l, s, first, last)) return run_event(l, *s.spikes, sink, begin, end, first, last, arena);
  if (is_small(s)) return run_dense<Small>(l, s, sink, begin, end, first, last, arena);
  if (s.rows->type == Type::I16) return run_dense<int16_t>(l, s, sink, begin, end, first, last, arena);
  run_dense<int32_t>(l, s, sink, begin, end, first, last, arena);
}

// ---- Entry points

template <class X>
static size_t dense_scratch(const Layer& l, const Source& s, int positions, int range) {
  Arena arena = {nullptr, 0};
  Dense<X> dense(l, s, 0, positions, arena);
  arena.take<int32_t>((size_t)block_of(l.cout <= kTile, dense.steps, range) * dense.steps * kTile);
  return arena.used;
}

static size_t project_scratch(const Layer& l, const Source& s, int, int range, bool state) {
  Arena kept = {nullptr, 0};
  const State some = {nullptr, nullptr};
  States states(state ? &some : nullptr, l.cout, range, kept);
  const int positions = s.spikes ? s.spikes->positions : s.rows->positions;
  size_t dense = 0, event = 0;
  if (l.path != Path::Event || s.rows) {
    dense = is_small(s)                      ? dense_scratch<Small>(l, s, positions, range)
            : s.rows->type == Type::I16      ? dense_scratch<int16_t>(l, s, positions, range)
                                             : dense_scratch<int32_t>(l, s, positions, range);
  }
  if (s.spikes && l.path != Path::Dense) {
    Arena arena = {nullptr, 0};
    Event e(l, *s.spikes, 0, positions, 0, range, arena);
    event = arena.used;
  }
  return kept.used + (dense > event ? dense : event);
}

static void project_neuron(const Layer& l, const Neuron& n, const Source& s, int steps, int first_step,
                           const NeuronOut& out, const State* state, int begin, int end, const Scratch& scratch) {
  Arena arena = {static_cast<char*>(scratch.data), 0};
  NeuronSink sink(l, n, steps, first_step, out, state, end - begin, arena);
  run_project(l, s, sink, begin, end, arena);
}

static void project_rows(const Layer& l, const Source& s, int steps, const RowsOut& out, int begin, int end,
                         const Scratch& scratch) {
  Arena arena = {static_cast<char*>(scratch.data), 0};
  RowsSink sink = {l, steps, out};
  run_project(l, s, sink, begin, end, arena);
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
