// Neurons behind rows of numbers: streams, pools, sums.
#pragma once

#include "sinks.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

// Positions of a block: states and copied rows stay in the second-level cache.
static inline int neuron_block(const Neuron& n, int steps, int range) {
  return max_int(1, min_int(range, (int)(32768 / ((int64_t)padded(n.channels) * steps))));
}

// Rows of int16 or int32 can be read where they are, in units of 16 channels: what a unit reads behind its row belongs
// to the next one. The last row has none behind it.
constexpr int kReadable = kUnit / 2;  // channels of which one row is enough for that

static inline bool readable(const Rows& r) {
  return r.channels >= kReadable && (r.type == Type::I16 || r.type == Type::I32);
}

struct NeuronRows {
  const Neuron& n;
  const Rows& in;
  int steps, first_step;
  NeuronOut out;
  Way way;
  States& states;
  int first;      // of the positions whose states are open
  int32_t* copy;  // rows of a block

  int stride() const { return (int)round_up(n.channels, kUnit); }  // of the copy

  template <class X>
  void run(int begin, int end, const X* rows, int stride) {
    Currents<X> x;
    x.position = (int64_t)in.steps * stride, x.step = in.steps > 1 ? stride : 0;
    x.shift = 0, x.bias = no_bias(), x.bias_row = nullptr, x.bias_stride = 0;
    for (int c = 0; c < n.channels; c += kTile) {
      x.rows = rows + c;
      const Held held = states.held.behind(begin - first, c);
      const NeuronCall call = {n, steps, first_step, out, begin, end, c, held};
      neuron_tile(call, x, way);
    }
  }

  void run_copied(int begin, int end) {
    const Source source = {nullptr, &in};
    int32_t* to = copy;
    for (int64_t row = (int64_t)begin * in.steps; row < (int64_t)end * in.steps; ++row, to += stride()) {
      copy_values(source, row, 1, 0, to);
      for (int c = in.channels; c < stride(); ++c) to[c] = 0;
    }
    run(begin, end, copy, stride());
  }

  // `last`: nothing behind the last row belongs to the caller.
  void run_block(int begin, int end, bool last) {
    first = begin;
    const bool spare = last && in.channels % kUnit != 0;
    const int until = !readable(in) ? begin : spare ? end - 1 : end;
    const int64_t at = (int64_t)begin * in.steps * in.channels;
    if (begin < until && in.type == Type::I16)
      run(begin, until, static_cast<const int16_t*>(in.data) + at, in.channels);
    if (begin < until && in.type == Type::I32)
      run(begin, until, static_cast<const int32_t*>(in.data) + at, in.channels);
    if (until < end) run_copied(until, end);
  }
};

static size_t neuron_scratch(const Neuron& n, int steps, int range, bool state) {
  Arena arena = {nullptr, 0};
  const State some = {};
  const int block = neuron_block(n, steps, range);
  States states(state ? &some : nullptr, n.channels, block, arena);
  arena.take<int32_t>((size_t)block * steps * round_up(n.channels, kUnit));
  return arena.used;
}

static void neuron_rows(const Neuron& n, const Rows& in, int steps, int first_step, const NeuronOut& out,
                        const State* state, int begin, int end, const Scratch& scratch) {
  Arena arena = {static_cast<char*>(scratch.data), 0};
  const int block = neuron_block(n, steps, end - begin);
  States states(state, n.channels, block, arena);
  int32_t* copy = arena.take<int32_t>((size_t)block * in.steps * round_up(n.channels, kUnit));
  NeuronRows call = {n, in, steps, first_step, out, way_of(n, out), states, begin, copy};
  for (int b = begin; b < end; b += block) {
    const int e = min_int(end, b + block);
    states.open(b, e);
    call.run_block(b, e, e == end);
    states.close(b, e);
  }
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
