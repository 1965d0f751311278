// Kernels of the packed runtime: what the engine calls. Integers only.
//
// Every kernel works on output positions [begin, end) and may run on several threads with disjoint ranges: it writes
// nothing outside its range. Kernels allocate nothing; `scratch` is private to a call. Nothing is read outside the
// buffers described here. All pointers to numbers are aligned to their type; weights and scratch to 64 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layout.h"
#include "window.h"

namespace ptq {
namespace hot {

constexpr int kTile = 64;  // channels of a tile; per-channel arrays are padded to whole tiles

constexpr int padded(int channels) { return (channels + kTile - 1) / kTile * kTile; }

// Values 0..1, 0..3 or 0..7 as 1, 2 or 3 bit planes. Word w of plane q at position p and step t is
//     data[((p * steps + t) * planes + q) * words + w],  words = ceil(channels / 64)
// channel c is bit c % 64 of word c / 64; bits of channels that do not exist are zero.
struct Spikes {
  const uint64_t* data;
  int positions, steps, planes, words, channels;
};

enum class Type : int { U8 = 0, S8 = 1, I8 = 2, I16 = 3, I32 = 4 };  // S8: value + 128 as a byte

// Rows [positions][steps][channels], channels last, not padded.
struct Rows {
  const void* data;
  Type type;
  int positions, steps, channels;
};

struct RowsOut {
  void* data;
  Type type;  // the caller has proven that values fit
  int steps, channels;
};

// Input of a projection: exactly one is not null. steps == 1 serves every step.
struct Source {
  const Spikes* spikes;
  const Rows* rows;
};

// y = ((Wq x) << shift) + bias; groups == 1. Sums of Wq x and y fit int32 (proven by the planner).
struct Layer {
  int positions, taps;   // output positions
  const Window* window;  // taps outside of it read zeros; of rank 0: taps == 1 and position p reads p
  int cin, cout;
  const void* weights;  // made by pack_weights(taps, cin, cout, bits)
  int bits;
  int shift;
  const int32_t* bias;      // [rows][bias_stride]; null: zero
  int64_t bias_stride;      // padded(cout), or more
  const int32_t* bias_row;  // [positions] row of the bias of a position; null: row 0
  bool narrow;              // proven: Wq x fits int16
  // Rescale to a stream or chain: y becomes clip(rshift_even(int64(y) * m, n), lo, hi); null: none.
  const int32_t* rescale_m;  // [padded(cout)]
  const int32_t* rescale_n;  // [padded(cout)], 0 <= n <= 62
  int32_t lo, hi;
  Path path;                // Event and Dense force a kernel (tests); rows as input are always dense
  const int32_t* runs;      // made by make_runs from the window (tap_runs.h); null: it has rank 0, or never by events
  const uint8_t* expanded;  // made by expand_weights for events; null: they are expanded at every call
};

// The same for a convolution in groups (depthwise: groups == cin). Weights [taps][cin / groups][cout] are packed by
// pack_weights(taps, cin / groups, cout, bits); output channel o reads channels of group o / (cout / groups).
struct Grouped {
  Layer layer;  // cin and cout are all channels
  int groups;
};

// A  = x * gain + rshift(Vq * charge_m, charge_n)
// S  = A >= theta
// A' = S ? 0 : A (hard), A - rho S (soft), A (none)
// Vq = clip(rshift(A' * settle_m, settle_n), lo, hi)
// Arrays are [padded(channels)]; padding channels need valid shifts (0 is fine), theta there is not read.
// rshift rounds half to even; with dither, settle is (A' * settle_m + d) >> settle_n, settle_n <= kPhaseBits.
struct Neuron {
  int channels;
  const int32_t *theta, *rho, *charge_m, *charge_n, *settle_m, *settle_n, *lo, *hi;  // 0 <= n <= 31 (62 if wide)
  int32_t gain;  // factor << shift of the neuron; 1 behind a pair
  Reset reset;
  bool dither;
  const int32_t* element;  // [positions][channels] phase numbers, or null: p * channels + c
  bool wide;               // products of charge or settle may leave int32: use int64
  int64_t bound;           // proven largest |A|, 0: not known. Below 2^24 a faster exact path may be taken
};

// Packed state between calls: one row for each position, fields Vq - zero, widest first, then by channel.
struct StateLayout {
  int row_bytes;              // ceil(sum of widths / 8)
  int count[kHotWidthCount];  // channels of each of kHotWidths
  const int32_t* order;       // [channels] channel of field i; null: i
  const int32_t* zero;        // [padded(channels)] zero points; null: all zero
};

struct State {
  const uint8_t* from;  // [positions][row_bytes] that neurons begin with
  uint8_t* to;          // and where they leave them; may be the same
  const StateLayout* layout;
};

struct Scratch {
  void* data;
  size_t bytes;
};

// Where a neuron writes. Any pointer may be null. Spikes have one plane, layout as in `Spikes` with `steps` steps.
struct NeuronOut {
  uint64_t* spikes;
  int32_t* potential;  // A of every step, [positions][steps][channels]
};

// Images that a projection works on in one call, so that weights are expanded once for all: bytes from the buffers of
// one to those of the next. More than one only with all positions.
struct Images {
  int count;
  int64_t in, out, potential, state;
};

enum class Logic : int { And = 0, Or = 1, AndNot = 2, Xor = 3 };  // AndNot: a & ~b

// All entry points of one ISA level. `steps` is the number of steps of this call, `first_step` the number of the first
// (only dither looks at it). Without a state neurons begin at Vq = 0 and nothing is kept.
struct Kernels {
  const char* name;

  // Bytes of scratch that project_* and grouped_* need; an upper bound for any range of at most `range` positions.
  size_t (*project_scratch)(const Layer&, const Source&, int steps, int range, bool state, int images);
  size_t (*grouped_scratch)(const Grouped&, const Source&, int steps, int range);
  size_t (*neuron_scratch)(const Neuron&, int steps, int range, bool state);

  // Weights as the event path adds them, to stay in memory: twice the packed nibbles or bytes.
  size_t (*expanded_bytes)(const Layer&);
  void (*expand_weights)(const Layer&, uint8_t* out);

  void (*project_neuron)(const Layer&, const Neuron&, const Source&, int steps, int first_step, const NeuronOut&,
                         const State*, const Images&, int begin, int end, const Scratch&);
  void (*project_rows)(const Layer&, const Source&, int steps, const RowsOut&, const Images&, int begin, int end,
                       const Scratch&);
  void (*grouped_rows)(const Grouped&, const Source&, int steps, const RowsOut&, int begin, int end, const Scratch&);
  void (*neuron_rows)(const Neuron&, const Rows& in, int steps, int first_step, const NeuronOut&, const State*,
                      int begin, int end, const Scratch&);

  // Words. Operands may have one step or one position; `out` has `steps` steps and `planes` planes, enough
  // for every value. Bits of channels that do not exist stay zero.
  void (*add_spikes)(const Spikes& a, const Spikes& b, int steps, int planes, uint64_t* out, int begin, int end,
                     int first_word, int last_word);
  void (*logic_spikes)(Logic, const Spikes& a, const Spikes& b, int steps, uint64_t* out, int begin, int end);
  // Largest value under the taps; -1 takes no part. `out` has the planes and steps of `in`, `room` one number a tap.
  void (*max_pool)(const Spikes& in, const Taps& taps, uint64_t* out, int begin, int end, int32_t* room);
  void (*spikes_to_rows)(const Spikes& in, const RowsOut& out, int begin, int end);       // steps of `in`
  void (*rows_to_spikes)(const Rows& in, int planes, uint64_t* out, int begin, int end);  // values fit
  int64_t (*sum_spikes)(const Spikes& in);  // sum of all values: density = sum / (positions * steps * channels)
  // What project_* does for this range of one image; several images are judged together.
  Path (*choose)(const Layer&, const Source&, int begin, int end);
};

// Packed weights: nibbles for bits <= 4, else bytes; channels padded to tiles. One layout for all ISA levels.
size_t weights_bytes(int taps, int cin, int cout, int bits);
void pack_weights(const int8_t* weights /* [taps][cin][cout] */, int taps, int cin, int cout, int bits, void* out);

// Levels of this build that this machine can run, best last; `kernels(name)` is null for another name.
int kernel_levels(const Kernels* const** levels);
const Kernels* kernels(const char* name);

}  // namespace hot
}  // namespace ptq
