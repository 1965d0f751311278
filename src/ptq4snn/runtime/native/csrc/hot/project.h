// Projections: sums of a tile of channels for a block of positions, handed to a sink.
#pragma once

#include "dense.h"
#include "event_project.h"
#include "sinks.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

#if defined(PTQ_AVX512)
typedef uint8_t Small;               // values of spikes and bytes as dense input
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

static inline bool can_use_events(const Layer& l, const Source& s) {
  return s.spikes && l.path != Path::Dense && (!l.tap_table || l.runs);
}

// The largest mean value of inputs that go by events; no value is above 7.
static inline double most_events(const Layer& l) { return l.path == Path::Event ? 7.0 : kCrossOver; }

static Path choose(const Layer& l, const Source& s, int begin, int end) {
  if (!can_use_events(l, s)) return Path::Dense;
  int first, last;
  input_range(l, s, begin, end, &first, &last);
  const double values = (double)(last - first) * s.spikes->steps * s.spikes->channels;
  return (double)count_events(*s.spikes, first, last, nullptr) <= most_events(l) * values ? Path::Event : Path::Dense;
}

template <class Sink>
static void run_project(const Layer& l, const Source& s, Sink& sink, const Images& images, int begin, int end,
                        Arena& arena) {
  int first, last;
  input_range(l, s, begin, end, &first, &last);
  const auto dense = [&](int i) {
    Spikes spikes;
    Rows rows;
    if (s.spikes) spikes = image_of(*s.spikes, images, i);
    if (s.rows) rows = *s.rows, rows.data = static_cast<const char*>(rows.data) + i * images.in;
    const Source source = {s.spikes ? &spikes : nullptr, s.rows ? &rows : nullptr};
    Arena own = arena;
    sink.image(i);
    if (is_small(s))
      run_dense<Small>(l, source, sink, begin, end, first, last, own);
    else if (s.rows->type == Type::I16)
      run_dense<int16_t>(l, source, sink, begin, end, first, last, own);
    else
      run_dense<int32_t>(l, source, sink, begin, end, first, last, own);
  };
  if (can_use_events(l, s)) {
    Arena own = arena;
    Event event(l, *s.spikes, images, first, last, begin, end, own);
    return event.run(sink, most_events(l), dense);
  }
  for (int i = 0; i < images.count; ++i) dense(i);
}

// ---- Entry points

template <class X>
static size_t dense_scratch(const Layer& l, const Source& s, int positions, int range) {
  Arena arena = {nullptr, 0};
  Dense<X> dense(l, s, 0, positions, arena);
  arena.take<int32_t>((size_t)block_of(l.cout <= kTile, dense.steps, range) * dense.steps * kTile);
  return arena.used;
}

static size_t project_scratch(const Layer& l, const Source& s, int, int range, bool state, int count) {
  Arena kept = {nullptr, 0};
  const State some = {nullptr, nullptr};
  States states(state ? &some : nullptr, l.cout, range, kept);
  const int positions = positions_of(s);
  const bool events = can_use_events(l, s);
  size_t dense = 0, event = 0;
  if (!events || l.path != Path::Event) {
    dense = is_small(s)                 ? dense_scratch<Small>(l, s, positions, range)
            : s.rows->type == Type::I16 ? dense_scratch<int16_t>(l, s, positions, range)
                                        : dense_scratch<int32_t>(l, s, positions, range);
  }
  if (events) {
    Arena arena = {nullptr, 0};
    const Images images = {count, 0, 0, 0, 0};
    Event e(l, *s.spikes, images, 0, positions, 0, range, arena);
    event = arena.used;
  }
  return kept.used + (dense > event ? dense : event);
}

static void project_neuron(const Layer& l, const Neuron& n, const Source& s, int steps, int first_step,
                           const NeuronOut& out, const State* state, const Images& images, int begin, int end,
                           const Scratch& scratch) {
  Arena arena = {static_cast<char*>(scratch.data), 0};
  NeuronSink sink(l, n, steps, first_step, out, state, images, end - begin, arena);
  run_project(l, s, sink, images, begin, end, arena);
}

static void project_rows(const Layer& l, const Source& s, int steps, const RowsOut& out, const Images& images,
                         int begin, int end, const Scratch& scratch) {
  Arena arena = {static_cast<char*>(scratch.data), 0};
  RowsSink sink = {l, steps, out, images.out, out};
  run_project(l, s, sink, images, begin, end, arena);
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
