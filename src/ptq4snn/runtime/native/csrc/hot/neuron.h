// The fastest exact way to compute a neuron.
#pragma once

#include "neuron_float.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

// How a neuron can be computed.
enum class Way { Wide, General, Plain, Float };

static inline Way way_of(const Neuron& n, const NeuronOut& out) {
  if (n.wide) return Way::Wide;
  int32_t other = 0;
  int64_t reach = 0, limit = 0;
  for (int c = 0; c < n.channels; ++c) {
    other |= n.charge_n[c] | (n.settle_m[c] ^ 1);
    const int64_t v = max_int(-(n.lo[c] + 1), n.hi[c]) + (int64_t)1;
    reach = v * n.charge_m[c] > reach ? v * n.charge_m[c] : reach;
    limit |= v | (n.reset == Reset::Soft ? n.rho[c] : 0);
  }
  if (other) return Way::General;
  const bool exact = n.bound > 0 && n.bound < (1 << 23) && reach < (1 << 23) && limit >= 0 && limit < (1 << 22);
  return exact && !n.dither && out.spikes && !out.potential ? Way::Float : Way::Plain;
}

template <class X, bool Hard>
static void neuron_choose(const NeuronCall& call, const Currents<X>& x, int unit, Way way) {
  if (way == Way::Float) {
    switch (call.v.bits()) {
      case 4: return neuron_float<X, Hard, 4>(call, x, unit);
      case 8: return neuron_float<X, Hard, 8>(call, x, unit);
      case 16: return neuron_float<X, Hard, 16>(call, x, unit);
      case 32: return neuron_float<X, Hard, 32>(call, x, unit);
      default: return neuron_float<X, Hard, 0>(call, x, unit);
    }
  }
  if (call.n.dither) {
    way == Way::Plain ? neuron_unit<X, Hard, Form::Plain, true>(call, x, unit)
                      : neuron_unit<X, Hard, Form::General, true>(call, x, unit);
  } else {
    way == Way::Plain ? neuron_unit<X, Hard, Form::Plain, false>(call, x, unit)
                      : neuron_unit<X, Hard, Form::General, false>(call, x, unit);
  }
}

// Words of a tile that has less than 64 channels: units that exist are put into zeros.
static inline void clear_words(const NeuronCall& call) {
  if (!call.out.spikes || call.valid() > kTile - kUnit) return;
  const int64_t words = (call.n.channels + 63) / 64, rows = (int64_t)(call.end - call.begin) * call.steps;
  uint64_t* out = call.out.spikes + (int64_t)call.begin * call.steps * words + call.channel / 64;
  for (int64_t r = 0; r < rows; ++r) out[r * words] = 0;
}

// Neurons of one tile.
template <class X>
static void neuron_tile(const NeuronCall& call, const Currents<X>& x, Way way) {
  clear_words(call);
  for (int unit = 0; unit < min_int(kTile, call.valid()); unit += kUnit) {
    if (way == Way::Wide)
      neuron_wide(call, x, unit);
    else if (call.n.reset == Reset::Hard)
      neuron_choose<X, true>(call, x, unit, way);
    else
      neuron_choose<X, false>(call, x, unit, way);
  }
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
