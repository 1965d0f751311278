// Neurons in float32, where it is exact.
#pragma once

#include "neuron_integer.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

// Parameters of 16 channels.
struct FloatUnit {
  static constexpr int K = kUnitVectors;
  f32v theta[K], rho[K], charge[K], settle[K], lo[K], hi[K], bias[K], factor;
  int32_t gain;

  // `row`: of the bias, where one serves all positions.
  FloatUnit(const Neuron& n, int channel, int shift, const int32_t* row) : gain(n.gain) {
    factor = to_float(same(shl(n.gain, shift)));
    for (int k = 0; k < K; ++k) {
      const int c = channel + k * kLanes;
      theta[k] = to_float(load<i32v>(n.theta + c));
      rho[k] = n.reset == Reset::Soft ? to_float(load<i32v>(n.rho + c)) : f32v{};
      charge[k] = to_float(load<i32v>(n.charge_m + c));
      settle[k] = (f32v)((127 - load<i32v>(n.settle_n + c)) << 23);  // 2^-n
      lo[k] = to_float(load<i32v>(n.lo + c)), hi[k] = to_float(load<i32v>(n.hi + c));
      bias[k] = bias_of(row, k);
    }
  }

  f32v bias_of(const int32_t* row, int k) const { return to_float(multiply(load<i32v>(row + k * kLanes), same(gain))); }
};

// Integers in floats: exact where every number stays below 2^24. Three operations less than in integers, because a sum
// with 1.5 * 2^23 rounds half to even. Rounding comes after the clip: the limits are integers, so the order does not
// matter. P positions side by side hide the latency of a step. `keep`: there is a state before and after.
template <int P, class X, bool Hard, bool keep>
static inline void float_positions(const NeuronCall& call, const Currents<X>& x, const FloatUnit& n, int unit, int p,
                                   BitsOut spikes) {
  constexpr int K = kUnitVectors;
  const f32v magic = f32v{} + 12582912.0f;
  const X* row = x.rows + (int64_t)(p - call.begin) * x.position + unit;
  const int64_t image = spikes.row * call.steps;
  f32v v[P][K] = {}, bias[P][K];
  for (int i = 0; i < P; ++i) {
    i32v held[K];
    if (keep) call.v.get(p + i - call.begin, unit, held);
    for (int k = 0; k < K; ++k) {
      if (keep) v[i][k] = to_float(held[k]);
      bias[i][k] = x.bias_row ? n.bias_of(x.bias_at(p + i) + unit, k) : n.bias[k];
    }
  }
  spikes.data += (p - call.begin) * image;
  for (int t = 0; t < call.steps; ++t, row += x.step, spikes.data += spikes.row)
    for (int i = 0; i < P; ++i) {
      uint32_t bits = 0;
      for (int k = 0; k < K; ++k) {
        f32v a = multiply_add(to_float(load_lanes(row + i * x.position + k * kLanes)), n.factor, bias[i][k]);
        a = multiply_add(v[i][k], n.charge[k], a);
        const Mask rests = below(a, n.theta[k]);
        bits |= lane_bits(rests) << (k * kLanes);
        const f32v rest =
            Hard ? product_where(rests, a, n.settle[k]) : (a - where(negated(rests), n.rho[k])) * n.settle[k];
        v[i][k] = smaller(larger(rest, n.lo[k]), n.hi[k]) + magic - magic;
      }
      spikes.put(~bits, i * image);
    }
  for (int i = 0; keep && i < P; ++i) {
    i32v held[K];
    for (int k = 0; k < K; ++k) held[k] = to_int(v[i][k]);
    call.v.put(p + i - call.begin, unit, held);
  }
}

template <class X, bool Hard, bool keep>
static void neuron_float(const NeuronCall& call, const Currents<X>& x, int unit) {
  constexpr int P = kBytes == 64 ? 4 : 1;
  const FloatUnit n(call.n, call.channel + unit, x.shift, x.bias + unit);
  const BitsOut spikes(call, unit);
  int p = call.begin;
  for (; p + P <= call.end; p += P) float_positions<P, X, Hard, keep>(call, x, n, unit, p, spikes);
  for (; p < call.end; ++p) float_positions<1, X, Hard, keep>(call, x, n, unit, p, spikes);
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
