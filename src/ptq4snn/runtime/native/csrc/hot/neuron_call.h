// The canonical neuron over the steps of a tile of 64 channels, 16 channels at a time with the state in registers.
#pragma once

#include "state.h"
#include "vector.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

// Rows that drive neurons: x = ((row << shift) + bias) * gain, from position `begin`, first channel of the tile.
template <class X>
struct Currents {
  const X* rows;
  int64_t position, step;  // distances
  int shift;
  const int32_t* bias;      // [rows][stride]
  const int32_t* bias_row;  // of position p, not of begin
  int64_t bias_stride;

  const X* at(int p, int t) const { return rows + p * position + t * step; }
  const int32_t* bias_at(int p) const { return bias + (bias_row ? bias_row[p] * bias_stride : 0); }
};

struct NeuronCall {
  const Neuron& n;
  int steps, first_step;
  NeuronOut out;
  int begin, end;
  int channel;  // first of the tile
  Held v;       // states from position begin and this tile on

  int valid() const { return n.channels - channel; }
};

static inline uint32_t element_of(const Neuron& n, int p, int c) {
  const int64_t at = (int64_t)p * n.channels + c;
  return n.element ? (uint32_t)n.element[at] : (uint32_t)at;
}

// Where the spikes of 16 channels go; bits of channels that do not exist are left out.
struct BitsOut {
  char* data;
  int64_t row;  // bytes between two steps
  uint32_t valid;

  BitsOut(const NeuronCall& call, int unit) {
    const int left = call.valid() - unit;
    valid = left >= kUnit ? 0xffffu : left > 0 ? (1u << left) - 1 : 0u;
    row = 8 * (int64_t)((call.n.channels + 63) / 64);
    data = reinterpret_cast<char*>(call.out.spikes);
    if (data) data += call.channel / 8 + unit / 8 + (int64_t)call.begin * call.steps * row;
  }

  void put(uint32_t bits, int64_t at) const {
    const uint16_t half = (uint16_t)(bits & valid);
    std::memcpy(data + at, &half, 2);
  }
};

static inline void put_potential(const NeuronCall& call, int p, int t, int unit, const int32_t* a) {
  const int n = min_int(kUnit, call.valid() - unit);
  int32_t* out = call.out.potential + ((int64_t)p * call.steps + t) * call.n.channels + call.channel + unit;
  for (int c = 0; c < n; ++c) out[c] = a[c];
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
