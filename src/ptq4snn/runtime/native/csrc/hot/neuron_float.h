// Neurons in float32, where it is exact.
#pragma once

#include "neuron_integer.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

// Parameters of K registers of channels.
template <int K>
struct FloatUnit {
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

// What the neurons of a unit read and write; a copy of their own, which no store to spikes can change.
template <class X>
struct FloatCall {
  Currents<X> x;
  BitsOut spikes;
  Held v;
  int steps, begin;

  FloatCall(const NeuronCall& call, const Currents<X>& currents, int unit)
      : x(currents), spikes(call, unit), v(call.v.behind(0, unit)), steps(call.steps), begin(call.begin) {
    x.rows += unit, x.bias += unit;
  }
};

// Integers in floats: exact where every number stays below 2^24. Three operations less than in integers, because a sum
// with 1.5 * 2^23 rounds half to even. Rounding comes after the clip: the limits are integers, so the order does not
// matter. P positions side by side, the first is the p-th, hide the latency of a step. `bits`: of the state before and
// after, 0: there is none.
template <int P, int K, class X, bool Hard, int bits>
static inline __attribute__((always_inline)) void float_positions(const FloatCall<X>& c, const FloatUnit<K>& n, int p) {
  const f32v magic = f32v{} + 12582912.0f;
  const X* row = c.x.rows + p * c.x.position;
  const int64_t image = c.spikes.row * c.steps;
  int64_t at = p * image;
  f32v v[P][K] = {}, bias[P][K];
  i32v held[K];
  for (int i = 0; i < P; ++i) {
    c.v.template get<bits>(p + i, held);
    for (int k = 0; k < K; ++k) {
      if (bits) v[i][k] = to_float(held[k]);
      bias[i][k] = c.x.bias_row ? n.bias_of(c.x.bias_at(c.begin + p + i), k) : n.bias[k];
    }
  }
  for (int t = 0; t < c.steps; ++t, row += c.x.step, at += c.spikes.row)
    for (int i = 0; i < P; ++i) {
      uint32_t fires = 0;
      for (int k = 0; k < K; ++k) {
        f32v a = multiply_add(to_float(load_lanes(row + i * c.x.position + k * kLanes)), n.factor, bias[i][k]);
        a = multiply_add(v[i][k], n.charge[k], a);
        const Mask rests = below(a, n.theta[k]);
        fires |= lane_bits(rests) << (k * kLanes);
        const f32v rest =
            Hard ? product_where(rests, a, n.settle[k]) : (a - where(negated(rests), n.rho[k])) * n.settle[k];
        v[i][k] = smaller(larger(rest, n.lo[k]), n.hi[k]) + magic - magic;
      }
      c.spikes.put(~fires, at + i * image);
    }
  for (int i = 0; bits && i < P; ++i) {
    for (int k = 0; k < K; ++k) held[k] = to_int(v[i][k]);
    c.v.template put<bits>(p + i, held);
  }
}

template <int P, int K, class X, bool Hard, int bits>
static void float_unit(const NeuronCall& call, const Currents<X>& x, int unit) {
  const FloatUnit<K> n(call.n, call.channel + unit, x.shift, x.bias + unit);
  const FloatCall<X> own(call, x, unit);
  const int count = call.end - call.begin;
  int p = 0;
  for (; p + P <= count; p += P) float_positions<P, K, X, Hard, bits>(own, n, p);
  for (; P > 1 && p < count; ++p) float_positions<1, K, X, Hard, bits>(own, n, p);
}

// Where half of a unit is all that exists, registers for the other half are left to more positions.
template <class X, bool Hard, int bits>
static void neuron_float(const NeuronCall& call, const Currents<X>& x, int unit) {
  if constexpr (kUnitVectors > 1 && bits == 0)
    if (call.valid() - unit <= kUnit / 2) return float_unit<2, kUnitVectors / 2, X, Hard, bits>(call, x, unit);
  float_unit<kBytes == 64 ? 4 : 1, kUnitVectors, X, Hard, bits>(call, x, unit);
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
