// What the engine and the kernels share: values, operations, and one call of one operation on one image.
#pragma once
#include <cstdint>

#include "layout.h"
#include "window.h"

namespace ptq {

static inline bool is_planes(int format) { return format >= kPlanes1 && format <= kPlanes3; }
static inline bool is_bytes(int format) { return format == kU8 || format == kS8; }
static inline int64_t words_of(int64_t channels) { return (channels + 63) / 64; }
static inline int64_t padded(int64_t channels) { return words_of(channels) * 64; }

static inline int64_t row_bytes(int format, int64_t channels) {
  if (is_planes(format)) return format * words_of(channels) * 8;
  if (is_bytes(format)) return channels;
  return channels * (format == kI16 ? 2 : format == kI32 ? 4 : 8);
}

// Where a value lies.
enum Place : int32_t {
  kArena = 0,  // one buffer an image
  kLocal = 1,  // only the positions of the current block, in the thread's own memory
};

struct Value {
  int32_t positions, channels;
  int32_t time;  // 1: a row for every step
  int32_t format, place;
  int64_t offset;  // bytes; of a value with time for each step; of a local value for each position
  int64_t row;     // bytes of a row
};

// A packed row of state: fields of Vq - zero, widest first.
struct Fields {
  int32_t count;
  int32_t widths[kWidthCount];  // fields of each of kWidths
  const int32_t* order;         // channel (or element) of a field; null: its own number
  const int32_t* zero;          // by channel (or element); null: all zero
  int64_t bytes;
};

enum Parameter : int32_t { kTheta = 0, kRho, kChargeM, kChargeN, kSettleM, kSettleN, kLo, kHi, kParameters };

struct Neurons {
  const int32_t* numbers[kParameters];       // [padded channels] each, for the hot kernels
  const int64_t* wide_numbers[kParameters];  // likewise, for kNeuronAny
  int32_t channels;
  hot::Reset reset;
  int32_t dither, wide, once;
  int32_t carried;                 // the second output is the state that the step began with, in units
  const int64_t *lift_m, *lift_n;  // which is rshift(Vq m, n)
  int32_t most;                    // spikes of a step; above 1 they are floor(A / theta)
  int64_t gain;                    // x is multiplied by it
  int64_t bound;                   // proven largest |A|
  const int32_t* channel;          // [positions * channels] or null
  const int32_t* element;          // likewise
};

struct Projection {
  int32_t taps, cin, cout, groups, bits, shift, narrow;
  hot::Window window;       // of rank 0 where every position reads itself, or a pool has a table
  const int32_t* table;     // of a pool without a window: [positions][taps]
  const int32_t* runs;      // the window from the input's side (tap_runs.h), or null
  const uint8_t* expanded;  // for events, where they stay in memory; else null
  const void* weights;      // packed for the hot kernels; int8 [taps][cin / groups][cout] for kProjectRows
  const int32_t* bias;      // [rows][padded cout]
  const int32_t* bias_row;  // [positions] or null
  const int32_t *rescale_m, *rescale_n;
  int32_t lo, hi;
};

struct Op {
  int32_t kind, output, second, region, inputs;
  int32_t loop;            // operations of one loop run step by step; -1: all steps at once
  const int32_t* sources;  // value numbers of the inputs
  int32_t wide;            // rows are computed in int64
  int32_t how, width, groups;
  int32_t state, slot;  // number of the state, of the kept value; -1: none
  int32_t per_channel;  // of the input grid; 0: one entry serves all channels
  int32_t pads_zero;    // a tap of -1 is a zero that takes part in a maximum
  int64_t constant, low, high;
  int64_t steps;  // at calibration, where the input is a sum over time; else 0
  const int64_t* coefficients;
  const int32_t *index, *signs, *shifts, *pool_weights;
  hot::Strides index_strides;  // of rank 0: `index` has a row for each position; else one row, to which this is added
  const double *inverse, *zeros;  // of the input grid
  Fields fields;
  Neurons neuron;
  Projection project;
};

// A value of one image. `data` is where position 0 is or would be: a local value has only some positions.
struct View {
  uint8_t* data;
  int32_t positions, channels, steps, format;
  int64_t row;
};

// One operation on one image, or on several.
struct Call {
  const Op* op;
  const View* in;
  View out, second;
  int32_t steps;       // of this call
  int64_t first_step;  // steps before it
  int64_t at;          // of a loop: its step in this call
  int32_t images;      // a projection may work on so many, one after the other in memory
  int64_t in_bytes, out_bytes, second_bytes, state_bytes;  // from one image to the next; in_bytes of the first input
  const float* x;                                          // input of the image [steps or 1][stride]
  int64_t x_stride;                                        // numbers between two steps
  const uint8_t* state;                                    // packed state that the image begins with, or null
  uint8_t* state_to;                                       // and where it is left; may be the same
  int64_t* kept;                                           // where a kept value goes, or null
  int64_t kept_stride;                                     // numbers between two steps
  uint8_t* scratch;                                        // of the thread, aligned to 64
  int64_t scratch_bytes;
  hot::Path path;
  int32_t word, words;  // of the output's channels, 64 to a word: those it is to make; words 0: all
};

namespace hot {
struct Kernels;
}

// The operations of one instruction set level.
struct Operations {
  const char* name;
  const hot::Kernels* hot;
  int64_t (*scratch)(const Operations&, const Call&, int range);  // bytes for at most `range` positions
  void (*run)(const Operations&, const Call&, int begin, int end);
  void (*count)(const Operations&, const Call&, int begin, int end, Counters&);
  double (*peak)(int kind, int milliseconds);
};

}  // namespace ptq
