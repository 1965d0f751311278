// Neurons in float32, where it is exact.
#pragma once

#include "neuron_integer.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

// Parameters of K registers of channels.
template <int K>
struct FloatUnit {
  f32v theta[K], rho[K], charge[K], settle[K], lo[K], hi[K], factor;

  FloatUnit(const Neuron& n, int channel, int shift) {
    factor = to_float(same(shl(n.gain, shift)));
    for (int k = 0; k < K; ++k) {
      const int c = channel + k * kLanes;
      theta[k] = to_float(load<i32v>(n.theta + c));
      rho[k] = n.reset == Reset::Soft ? to_float(load<i32v>(n.rho + c)) : f32v{};
      charge[k] = to_float(load<i32v>(n.charge_m + c));
      settle[k] = (f32v)((127 - load<i32v>(n.settle_n + c)) << 23);  // 2^-n
      lo[k] = to_float(load<i32v>(n.lo + c)), hi[k] = to_float(load<i32v>(n.hi + c));
    }
  }
};

// Integers in floats: exact where every number stays below 2^24. Three operations less than in integers, because a sum
// with 1.5 * 2^23 rounds half to even. Rounding comes after the clip: the limits are integers, so the order does not
// matter. P positions side by side hide the latency of a step. `keep`: there is a state before and after.
template <int P, int K, class X, bool Hard, bool keep>
static inline void float_positions(const NeuronCall& call, const Currents<X>& x, const FloatUnit<K>& n, int unit, int p,
                                   BitsOut spikes) {
  const f32v magic = f32v{} + 12582912.0f;
  const X* row = x.rows + (int64_t)(p - call.begin) * x.position + unit;
  const int64_t image = spikes.row * call.steps;
  f32v v[P][K], bias[P][K];
  for (int i = 0; i < P; ++i)
    for (int k = 0; k < K; ++k) {
      v[i][k] = keep ? to_float(call.v.get(p + i - call.begin, unit + k * kLanes)) : f32v{};
      bias[i][k] = to_float(multiply(load<i32v>(x.bias_at(p + i) + unit + k * kLanes), same(call.n.gain)));
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
  for (int i = 0; keep && i < P; ++i)
    for (int k = 0; k < K; ++k) call.v.put(p + i - call.begin, unit + k * kLanes, to_int(v[i][k]));
}

template <int P, int K, class X, bool Hard, bool keep>
static void float_unit(const NeuronCall& call, const Currents<X>& x, int unit) {
  const FloatUnit<K> n(call.n, call.channel + unit, x.shift);
  const BitsOut spikes(call, unit);
  int p = call.begin;
  for (; p + P <= call.end; p += P) float_positions<P, K, X, Hard, keep>(call, x, n, unit, p, spikes);
  for (; p < call.end; ++p) float_positions<1, K, X, Hard, keep>(call, x, n, unit, p, spikes);
}

// Where half of a unit is all that exists, registers for the other half are left to more positions.
template <class X, bool Hard, bool keep>
static void neuron_float(const NeuronCall& call, const Currents<X>& x, int unit) {
  if constexpr (kUnitVectors > 1 && !keep)
    if (call.valid() - unit <= kUnit / 2) return float_unit<2, kUnitVectors / 2, X, Hard, keep>(call, x, unit);
  float_unit<kBytes == 64 ? 4 : 1, kUnitVectors, X, Hard, keep>(call, x, unit);
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
