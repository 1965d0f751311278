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

// Rows that can be read where they are: whole units of 16 channels of int16 or int32.
static inline bool readable(const Rows& r) {
  return r.channels % kUnit == 0 && (r.type == Type::I16 || r.type == Type::I32);
}

struct NeuronRows {
  const Neuron& n;
  const Rows& in;
  int steps, first_step;
  NeuronOut out;
  Way way;
  States& states;

  template <class X>
  void run(int begin, int end, const X* rows, int stride) {
    Currents<X> x;
    x.position = (int64_t)in.steps * stride, x.step = in.steps > 1 ? stride : 0;
    x.shift = 0, x.bias = no_bias(), x.bias_row = nullptr, x.bias_stride = 0;
    for (int c = 0; c < n.channels; c += kTile) {
      x.rows = rows + c;
      const NeuronCall call = {n, steps, first_step, out, begin, end, c, states.held.from_channel(c)};
      neuron_tile(call, x, way);
    }
  }
};

static void copy_block(const Rows& in, int begin, int end, int stride, int32_t* out) {
  const Source source = {nullptr, &in};
  for (int64_t row = (int64_t)begin * in.steps; row < (int64_t)end * in.steps; ++row, out += stride) {
    copy_values(source, row, 0, out);
    for (int c = in.channels; c < stride; ++c) out[c] = 0;
  }
}

static size_t neuron_scratch(const Neuron& n, int steps, int range, bool state) {
  Arena arena = {nullptr, 0};
  const State some = {nullptr, nullptr};
  const int block = neuron_block(n, steps, range);
  States states(state ? &some : nullptr, n.channels, block, arena);
  arena.take<int32_t>((size_t)block * steps * padded(n.channels));
  return arena.used;
}

static void neuron_rows(const Neuron& n, const Rows& in, int steps, int first_step, const NeuronOut& out,
                        const State* state, int begin, int end, const Scratch& scratch) {
  Arena arena = {static_cast<char*>(scratch.data), 0};
  const int block = neuron_block(n, steps, end - begin);
  States states(state, n.channels, block, arena);
  int32_t* copy = arena.take<int32_t>((size_t)block * in.steps * padded(n.channels));
  NeuronRows call = {n, in, steps, first_step, out, way_of(n, out), states};
  for (int b = begin; b < end; b += block) {
    const int e = min_int(end, b + block);
    const int64_t at = (int64_t)b * in.steps * in.channels;
    states.open(b, e);
    if (!readable(in)) {
      copy_block(in, b, e, padded(n.channels), copy);
      call.run(b, e, copy, padded(n.channels));
    } else if (in.type == Type::I16) {
      call.run(b, e, static_cast<const int16_t*>(in.data) + at, in.channels);
    } else {
      call.run(b, e, static_cast<const int32_t*>(in.data) + at, in.channels);
    }
    states.close(b, e);
  }
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
