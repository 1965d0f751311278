// Inputs of dense sums, laid out so that the rows of outputs that follow each other lie side by side under every tap.
//
// A line is the last axis of a window, [column][step][k]. Columns are those of the input, with padding at both ends:
// tap x then lies x columns further on. Or, where outputs are a stride apart or channels do not fill what one
// instruction takes, a column is an output and holds all that it reads of its line ("merged"). Either way output o + 1
// at step t reads `steps` rows of k behind output o, and a line outside of the window is one line of padding.
#pragma once

#include "ranges.h"
#include "values.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

constexpr int kMergedChannels = 16;  // below it, channels that do not fill a group are merged

// Where `count` columns come from and go to, and how far apart they are.
template <class X>
struct CopiedColumns {
  const X* in;
  X* out;
  int64_t in_step, out_step;
  int count, each, steps, k;

  // E numbers of a row, or `each` where E is 0, to rows k apart.
  template <int E>
  void copy() const {
    const int n = E ? E : each;
    for (int o = 0; o < count; ++o)
      for (int t = 0; t < steps; ++t)
        std::memcpy(out + o * out_step + (int64_t)t * k, in + o * in_step + (int64_t)t * n, sizeof(X) * (size_t)n);
  }

  void copy_any() const {
    switch (each) {
      case 1: return copy<1>();
      case 2: return copy<2>();
      case 3: return copy<3>();
      case 8: return copy<8>();
      case 16: return copy<16>();
      case 24: return copy<24>();
      case 32: return copy<32>();
      case 48: return copy<48>();
      case 64: return copy<64>();
      default: return copy<0>();
    }
  }
};

// The lines that a range of outputs reads: inputs [first, last), outputs [begin, end).
struct LineRange {
  Window lead;        // all axes but the last
  Axis axis;          // the last one
  int first, last;    // input lines
  int room;           // lines that any range as long may read
  int from, outputs;  // of a line: all, or, where the range is in one, its own

  // `counts`: only room is asked for.
  LineRange(const Layer& l, const Source& s, int first_, int last_, int begin, int end, bool counts)
      : lead(*l.window), axis() {
    const bool none = lead.rank == 0;
    axis = none ? Axis{positions_of(s), 1, 1, 0, 1, l.positions, nullptr, nullptr} : lead.axes[--lead.rank];
    first = first_ / axis.size, last = max_int(first, (last_ - 1) / axis.size) + 1;
    room = none ? 1 : (last_ - first_) / axis.size + 2;
    const bool one = none || (!counts && begin / axis.out == (end - 1) / axis.out);
    from = one ? begin % axis.out : 0, outputs = one ? end - begin : axis.out;
  }

  // Input lines under the window of an output line, -1 outside. Of a line that is not in the range nothing is read: all
  // columns are outside.
  void above(int output_line, int count, int32_t* out) const {
    int at[kMostAxes];
    coordinates(lead, output_line, at);
    taps_at(lead, at, out);
    for (int i = 0; i < count; ++i)
      if (out[i] < first || out[i] >= last) out[i] = -1;
  }
};

// `group`: numbers that one instruction takes.
template <class X>
struct Lines : LineRange {
  const Source& source;
  int cin, steps, offset;
  bool merged;
  int each, k;           // numbers of an input row, and of a row of a column
  int columns;           // of a line
  int64_t column, line;  // numbers
  X *pad, *values, *row;

  // With a null arena this only counts, for any range as long.
  Lines(const Layer& l, const Source& s, int group, int first_, int last_, int begin, int end, Arena& arena)
      : LineRange(l, s, first_, last_, begin, end, !arena.base), source(s), cin(l.cin), steps(steps_of(s)) {
    offset = sizeof(X) == 1 && s.rows && s.rows->type != Type::U8 ? 128 : 0;
    merged = axis.stride > 1 || (cin % group != 0 && cin < kMergedChannels && axis.kernel > 1);
    each = merged && cin <= 64 ? cin : (int)round_up(cin, group);
    k = (int)round_up(merged ? axis.kernel * each : each, group);
    columns = merged ? outputs : outputs + (axis.kernel - 1) * axis.dilation;
    column = (int64_t)steps * k, line = columns * column;
    pad = arena.take<X>((size_t)(line * (room + 1)) + kTile);  // rows of spikes are written in whole tiles
    values = pad ? pad + line : nullptr;
    row = arena.take<X>((merged ? (size_t)axis.size * steps * each : 0) + kTile);
  }

  int taps() const { return merged ? 1 : axis.kernel; }  // pointers for each line under the window

  // What output `o` of its line reads of input line `from_line`, under tap x; below 0: of padding.
  const X* at(int from_line, int o, int x) const {
    const X* start = from_line < 0 ? pad : values + (from_line - first) * line;
    return start + (o - from + (merged ? 0 : x * axis.dilation)) * column;
  }

  // Rows [r, end) of spikes, N side by side where they fit a tile. A tile writes behind them what the next one writes
  // again.
  template <int N>
  void copy_bytes(const Spikes& s, int64_t r, int64_t end, uint8_t* out) const {
    const int64_t row = (int64_t)s.planes * s.words;
    const uint64_t* words = s.data + r * row;
    for (; N > 1 && r + N <= end; r += N, words += N * row, out += N * each) {
      uint64_t together[3];
      for (int q = 0; q < s.planes; ++q) {
        together[q] = words[q];
        for (int i = 1; i < N; ++i) together[q] |= words[i * row + q] << (i * each);
      }
      decode_words(together, s.planes, 1, out);
    }
    for (; r < end; ++r, words += row, out += each)
      for (int w = 0; w < s.words; ++w) decode_words(words + w, s.planes, s.words, out + w * kTile);
  }

  void copy_spike_rows(const Spikes& s, int64_t r, int64_t end, uint8_t* out) const {
    if (each <= 8) return copy_bytes<8>(s, r, end, out);
    if (each <= 16) return copy_bytes<4>(s, r, end, out);
    if (each <= 32) return copy_bytes<2>(s, r, end, out);
    copy_bytes<1>(s, r, end, out);
  }

  // Inputs [x0, x1) of a line into rows of `each`.
  void copy_rows(int number, int x0, int x1, X* out) const {
    int64_t r = ((int64_t)number * axis.size + x0) * steps;
    const int64_t end = ((int64_t)number * axis.size + x1) * steps;
    if (source.rows && each == cin) return copy_values(source, r, end - r, offset, out);
    if (source.spikes && sizeof(X) == 1)
      return copy_spike_rows(*source.spikes, r, end, reinterpret_cast<uint8_t*>(out));
    for (; r < end; ++r, out += each) {
      copy_values(source, r, 1, offset, out);
      for (int c = cin; c < each; ++c) out[c] = 0;
    }
  }

  void fill(X* out, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) out[i] = (X)offset;
  }

  void copy_plain(int number, X* out) const {
    const int x = from - axis.before;  // input of the first column
    const int low = min_int(columns, max_int(-x, 0)), high = max_int(low, min_int(columns, axis.size - x));
    fill(out, low * column);
    copy_rows(number, x + low, x + high, out + low * column);
    fill(out + high * column, (columns - high) * column);
  }

  void copy_merged(int number, X* out) const {
    const int low = from * axis.stride - axis.before;
    const int high = low + (columns - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1;
    const int x0 = min_int(max_int(low, 0), axis.size), x1 = max_int(x0, min_int(high, axis.size));
    copy_rows(number, x0, x1, row);
    fill(out, line);
    for (int i = 0; i < axis.kernel; ++i) {
      const int x = low + i * axis.dilation;  // of the first column
      const int begin = x >= x0 ? 0 : parts(x0 - x, axis.stride);
      const int end = x >= x1 ? 0 : min_int(columns, parts(x1 - x, axis.stride));
      const int64_t input = (int64_t)steps * each;
      CopiedColumns<X>{row + (x + begin * axis.stride - x0) * input,
                       out + begin * column + i * each,
                       axis.stride * input,
                       column,
                       end - begin,
                       each,
                       steps,
                       k}
          .copy_any();
    }
  }

  void copy() {
    fill(pad, line);
    for (int i = first; i < last; ++i)
      merged ? copy_merged(i, values + (i - first) * line) : copy_plain(i, values + (i - first) * line);
  }
};

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
