// Projections: sums of a tile of channels for a block of positions, handed to a sink.
#pragma once

#include "dense.h"
#include "event_project.h"
#include "rows_sink.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

// What the sums of one output row cost, in cycles or nearly so: a product of a register of channels with an input
// channel under a tap; an event under a tap; a word of events under a tap and what waits on its bits.
#if defined(PTQ_AVX512)
constexpr double kProduct = 0.14, kAdd = 0.6, kWord = 4.0;
#elif defined(PTQ_AVX2)
constexpr double kProduct = 0.14, kAdd = 1.2, kWord = 6.0;
#else
constexpr double kProduct = 3.0, kAdd = 4.0, kWord = 10.0;
#endif

// Positions of a block. Weights expanded once can serve short blocks, whose sums stay in the first-level cache.
static inline int block_of(bool one_expansion, int steps, int range) {
  return one_expansion ? max_int(1, min_int(range, 256 / steps)) : range;
}

template <class X, class Sink>
static void dense_blocks(Dense<X>& dense, Sink& sink, int begin, int end, int block, int32_t* acc) {
  dense.lines.copy();
  for (int b = begin; b < end; b += block) {
    const int e = min_int(end, b + block);
    sink.open(b, e);
    for (int tile = 0; tile * kTile < dense.l.cout; ++tile) {
      if (b == begin || block == end - begin) dense.expand(tile);
      dense.run(tile, b, e, acc);
      sink.tile(tile * kTile, b, e, acc, dense.steps, dense.stride(tile));
    }
    sink.close(b, e);
  }
}

// How values are multiplied: as bytes where that is exact, else as int16 or int32.
enum class Width { Byte, Word, Double };

static inline Width width_of(const Layer& l, const Source& s) {
  if (s.rows && s.rows->type == Type::I32) return Width::Double;
  if (s.rows && s.rows->type == Type::I16) return Width::Word;
#if defined(PTQ_VNNI)
  (void)l;
  return Width::Byte;
#elif defined(PTQ_AVX2)
  return s.spikes || l.bits < 8 ? Width::Byte : Width::Word;  // two products fit 16 bits
#else
  (void)l;
  return Width::Word;
#endif
}

template <class X, class Sink>
static void run_dense(const Layer& l, const Source& s, Sink& sink, int begin, int end, int first, int last,
                      Arena& arena) {
  Dense<X> dense(l, s, first, last, begin, end, arena);
  const int block = block_of(l.cout <= kTile, dense.steps, end - begin);
  int32_t* acc = arena.take<int32_t>((size_t)block * dense.steps * kTile);
  dense_blocks(dense, sink, begin, end, block, acc);
}

// The largest mean value of inputs that go by events; no value is above 7.
static inline double most_events(const Layer& l) {
  if (l.path == Path::Event) return 7.0;
  const int tiles = padded(l.cout) / kTile, last = l.cout - (tiles - 1) * kTile;
  const int registers = (tiles - 1) * (kTile / kLanes) + (last + kLanes - 1) / kLanes;
  const double dense = kProduct * l.cin * registers, words = kWord * tiles * parts(l.cin, 64);
  return (dense - words) / (kAdd * tiles * l.cin);
}

static inline bool can_use_events(const Layer& l, const Source& s) {
  return s.spikes && l.path != Path::Dense && (l.window->rank == 0 || l.runs) && most_events(l) > 0;
}

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
    switch (width_of(l, s)) {
#if defined(PTQ_AVX2)
      case Width::Byte: return run_dense<uint8_t>(l, source, sink, begin, end, first, last, own);
#endif
      case Width::Double: return run_dense<int32_t>(l, source, sink, begin, end, first, last, own);
      default: return run_dense<int16_t>(l, source, sink, begin, end, first, last, own);
    }
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
  Dense<X> dense(l, s, 0, positions, 0, range, arena);
  arena.take<int32_t>((size_t)block_of(l.cout <= kTile, dense.steps, range) * dense.steps * kTile);
  return arena.used;
}

static size_t any_dense_scratch(const Layer& l, const Source& s, int positions, int range) {
  switch (width_of(l, s)) {
#if defined(PTQ_AVX2)
    case Width::Byte: return dense_scratch<uint8_t>(l, s, positions, range);
#endif
    case Width::Double: return dense_scratch<int32_t>(l, s, positions, range);
    default: return dense_scratch<int16_t>(l, s, positions, range);
  }
}

static size_t project_scratch(const Layer& l, const Source& s, int, int range, bool state, int count) {
  Arena kept = {nullptr, 0};
  const State some = {};
  States states(state ? &some : nullptr, l.cout, range, kept);
  const int positions = input_room(l, s, range);
  const bool events = can_use_events(l, s);
  size_t dense = 0, event = 0;
  if (!events || l.path != Path::Event) dense = any_dense_scratch(l, s, positions, range);
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
