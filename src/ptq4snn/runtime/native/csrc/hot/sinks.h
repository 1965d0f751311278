// What happens to the sums of a tile: neurons; rows of numbers in rows_sink.h.
#pragma once

#include "neuron.h"
#include "values.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

static inline const int32_t* no_bias() {
  alignas(64) static const int32_t kZeros[kTile] = {};
  return kZeros;
}

// `stride`: numbers between two rows of sums.
template <class X>
static Currents<X> currents_of(const Layer& l, const X* sums, int source_steps, int stride, int channel) {
  Currents<X> x;
  x.rows = sums, x.position = (int64_t)source_steps * stride, x.step = source_steps > 1 ? stride : 0;
  x.shift = l.shift;
  x.bias = l.bias ? l.bias + channel : no_bias();
  x.bias_row = l.bias ? l.bias_row : nullptr;
  x.bias_stride = l.bias_stride;
  return x;
}

template <class T>
static inline T* moved(T* p, int64_t bytes) {
  return p ? reinterpret_cast<T*>(reinterpret_cast<char*>(p) + bytes) : nullptr;
}

struct NeuronSink {
  const Layer& l;
  const Neuron& n;
  int steps, first_step;
  const NeuronOut& first;  // of image 0
  const State* kept;
  const Images& images;
  NeuronOut out;
  State state;
  States states;
  Way way;

  NeuronSink(const Layer& layer, const Neuron& neuron, int steps_, int first_step_, const NeuronOut& o, const State* s,
             const Images& images_, int positions, Arena& arena)
      : l(layer),
        n(neuron),
        steps(steps_),
        first_step(first_step_),
        first(o),
        kept(s),
        images(images_),
        out(o),
        state(s ? *s : State()),
        states(s ? &state : nullptr, layer.cout, positions, arena),
        way(way_of(neuron, o)) {}
  NeuronSink(const NeuronSink&) = delete;

  void image(int i) {
    out = {moved(first.spikes, i * images.out), moved(first.potential, i * images.potential)};
    if (kept) state.from = kept->from + i * images.state, state.to = kept->to + i * images.state;
  }

  void open(int begin, int end) { states.open(begin, end); }
  void close(int begin, int end) { states.close(begin, end); }

  template <class X>
  void tile(int channel, int begin, int end, const X* sums, int source_steps, int stride) {
    const NeuronCall call = {n, steps, first_step, out, begin, end, channel, states.held.behind(0, channel)};
    neuron_tile(call, currents_of(l, sums, source_steps, stride, channel), way);
  }
};

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
