// Every operation of a plan, for one instruction set level (PTQ_ISA). No templates of std here: the linker would
// share their code between the levels.
#include "adapt.h"
#include "moving.h"
#include "neurons.h"
#include "peak.h"
#include "projections.h"

namespace ptq {
namespace PTQ_ISA {

static hot::Scratch scratch_of(const Call& call) { return {call.scratch, (size_t)call.scratch_bytes}; }

static hot::Images images_of(const Call& call) {
  return {call.images, call.in_bytes, call.out_bytes, call.second_bytes, call.state_bytes};
}

static void project(const hot::Kernels& k, const Call& call, int begin, int end) {
  const hot::Grouped g = grouped_of(call);
  const Input in(call.in[0]);
  const hot::RowsOut out = rows_out(call.out);
  if (g.groups == 1)
    k.project_rows(g.layer, in.source, call.out.steps, out, images_of(call), begin, end, scratch_of(call));
  else
    k.grouped_rows(g, in.source, call.out.steps, out, begin, end, scratch_of(call));
}

// Packed states of some channels; the engine asks for them only where rows are fields of one width in their order.
static void keep_words(int channel, int channels, Packed& p) {
  for (int i = 0; i < hot::kHotWidthCount; ++i) {
    if (p.layout.count[i] == 0) continue;
    const int64_t bytes = (int64_t)channel * hot::kHotWidths[i] / 8;
    p.state.from += bytes, p.state.to += bytes;
    p.layout.count[i] = channels;
  }
}

// A projection and its neurons of some words of their channels, as if there were no others.
static void keep_words(const Call& call, hot::Layer& l, hot::Neuron& n) {
  const int channel = 64 * call.word;
  l.cout = l.cout - channel < 64 * call.words ? l.cout - channel : 64 * call.words;
  l.weights = static_cast<const uint8_t*>(l.weights) + hot::weights_bytes(l.taps, l.cin, channel, l.bits);
  if (l.bias) l.bias += channel;
  n.channels = l.cout;
  n.theta += channel, n.rho += channel, n.lo += channel, n.hi += channel;
  n.charge_m += channel, n.charge_n += channel, n.settle_m += channel, n.settle_n += channel;
}

// Bytes of the spikes of a range of positions.
static int64_t spike_bytes(const Call& call, int range) {
  return ((int64_t)range * call.out.steps * call.out.row + 63) / 64 * 64;
}

// They are put together in memory of the thread: others write to the same lines.
static void project_words(const hot::Kernels& k, const Call& call, const Input& in, hot::Layer layer,
                          hot::Neuron neuron, int begin, int end) {
  keep_words(call, layer, neuron);
  Packed state(call);
  if (state.there) keep_words(64 * call.word, layer.cout, state);
  const int64_t own = spike_bytes(call, end - begin), steps = call.out.steps, words = words_of(layer.cout);
  uint64_t* const spikes = reinterpret_cast<uint64_t*>(call.scratch);
  const hot::NeuronOut out = {
      reinterpret_cast<uint64_t*>(reinterpret_cast<uintptr_t>(spikes) - (uintptr_t)(begin * steps * words * 8)),
      nullptr};
  k.project_neuron(layer, neuron, in.source, (int)steps, 0, out, state.get(), images_of(call), begin, end,
                   {call.scratch + own, (size_t)(call.scratch_bytes - own)});
  const uint64_t* from = spikes;
  for (int p = begin; p < end; ++p)
    for (int t = 0; t < steps; ++t, from += words)
      std::memcpy(row_of_mutable(call.out, p, t) + 8 * call.word, from, (size_t)(8 * words));
}

static void project_neuron(const hot::Kernels& k, const Call& call, int begin, int end) {
  const Input in(call.in[0]);
  if (call.words) return project_words(k, call, in, grouped_of(call).layer, neuron_of(*call.op), begin, end);
  const Packed state(call);
  k.project_neuron(grouped_of(call).layer, neuron_of(*call.op), in.source, call.out.steps, (int)(call.first_step & 15),
                   neuron_out(call), state.get(), images_of(call), begin, end, scratch_of(call));
}

static void neuron(const hot::Kernels& k, const Call& call, int begin, int end) {
  const Packed state(call);
  const int first = call.op->neuron.once ? 0 : (int)(call.first_step & 15);
  k.neuron_rows(neuron_of(*call.op), rows_in(call.in[0]), call.out.steps, first, neuron_out(call), state.get(), begin,
                end, scratch_of(call));
}

// Word-wise forms where all values are planes; false: the general form must run.
static bool on_planes(const hot::Kernels& k, const Call& call, int begin, int end) {
  const Op& op = *call.op;
  uint64_t* out = reinterpret_cast<uint64_t*>(call.out.data);
  bool planes = is_planes(call.out.format);
  for (int i = 0; i < op.inputs; ++i) planes = planes && is_planes(call.in[i].format);
  if (!planes) return false;
  if (op.kind == kCombine && op.inputs == 2 && !op.constant && op.coefficients[0] == 1 && op.coefficients[1] == 1) {
    const int last = call.words ? call.word + call.words : (int)words_of(call.out.channels);
    k.add_spikes(spikes_of(call.in[0]), spikes_of(call.in[1]), call.out.steps, call.out.format, out, begin, end,
                 call.word, last);
    return true;
  }
  if (op.kind == kMultiply && call.in[0].format == 1 && call.in[1].format == 1 && call.out.format == 1) {
    k.logic_spikes(hot::Logic::And, spikes_of(call.in[0]), spikes_of(call.in[1]), call.out.steps, out, begin, end);
    return true;
  }
  const bool alike = call.in[0].format == call.out.format && call.in[0].steps == call.out.steps;
  if (op.kind == kPool && op.how == kMax && alike) {
    int32_t* room = reinterpret_cast<int32_t*>(call.scratch);
    k.max_pool(spikes_of(call.in[0]), taps_of(op.project), out, begin, end, room);
    return true;
  }
  return false;
}

template <class T>
static void general(const Call& call, int begin, int end) {
  switch (call.op->kind) {
    case kPool: return pool<T>(call, begin, end);
    case kGather: return gather<T>(call, begin, end);
    case kCombine: return combine<T>(call, begin, end);
    case kMultiply: return multiply<T>(call, begin, end);
    case kAffine: return affine<T>(call, begin, end);
    case kClip: return clip<T>(call, begin, end);
    case kChoice: return choice<T>(call, begin, end);
    case kMatmul: return matmul<T>(call, begin, end);
    default: return;
  }
}

static void run(const Operations& ops, const Call& call, int begin, int end) {
  const hot::Kernels& k = *ops.hot;
  switch (call.op->kind) {
    case kQuantize: return quantize(call, begin, end);
    case kProject: return project(k, call, begin, end);
    case kProjectNeuron: return project_neuron(k, call, begin, end);
    case kProjectRows: return project_any(call, begin, end);
    case kNeuron: return neuron(k, call, begin, end);
    case kNeuronAny: return neuron_any(call, begin, end);
    case kTimeSum: return time_sum(call, begin, end);
    case kOverTime: return over_time(call, begin, end);
    case kLoadState: return load_state(call);
    case kStoreState: return store_state(call);
    case kKeep: return keep(call, begin, end);
    case kTake: return move_step(call, begin, end, true);
    case kPut: return move_step(call, begin, end, false);
    default: break;
  }
  if (on_planes(k, call, begin, end)) return;
  if (call.op->wide) return general<int64_t>(call, begin, end);
  general<int32_t>(call, begin, end);
}

// Elements of int64 that an operation's own buffers hold, at most.
static int64_t own_scratch(const Call& call) {
  const Op& op = *call.op;
  int64_t widest = call.out.channels, elements = 0;
  for (int i = 0; i < op.inputs; ++i) {
    const View& v = call.in[i];
    widest = v.channels > widest ? v.channels : widest;
    elements += (int64_t)v.positions * v.channels;
  }
  const int64_t taps = 3 * (op.project.taps + 32), rows = 4 * (widest + 8) + taps;
  switch (op.kind) {
    case kQuantize: return 4 * ((int64_t)call.out.steps * call.out.channels + 8);
    case kGather: return rows + elements + 8 + 3 * kMostMoves * words_of(call.out.channels);  // BitMove
    case kMatmul: return rows + (int64_t)call.in[0].channels * matmul_stride(call.out.channels) + 8;
    case kLoadState: return rows + (int64_t)call.out.positions * call.out.channels;
    case kStoreState: return rows + elements;
    default: return rows;
  }
}

static int64_t scratch(const Operations& ops, const Call& call, int range) {
  const hot::Kernels& k = *ops.hot;
  const Op& op = *call.op;
  const bool state = op.state >= 0;
  if (op.kind == kNeuron) return (int64_t)k.neuron_scratch(neuron_of(op), call.out.steps, range, state);
  if (op.kind != kProject && op.kind != kProjectNeuron) return 8 * own_scratch(call);
  const hot::Grouped g = grouped_of(call);
  const Input in(call.in[0]);
  const int64_t counting = 4 * (int64_t)op.project.taps;
  const int64_t running =
      g.groups > 1 ? (int64_t)k.grouped_scratch(g, in.source, call.out.steps, range)
                   : (int64_t)k.project_scratch(g.layer, in.source, call.out.steps, range, state, call.images);
  return (running > counting ? running : counting) + (op.kind == kProjectNeuron ? spike_bytes(call, range) : 0);
}

// Inputs that are not 0, in the rows [steps] of a position.
static int64_t nonzero(const View& v, int p) {
  int64_t count = 0;
  for (int t = 0; t < v.steps; ++t) {
    if (!is_planes(v.format)) {
      for (int c = 0; c < v.channels; ++c) count += element_of<int64_t>(v, p, t, c) != 0;
      continue;
    }
    const uint64_t* words = reinterpret_cast<const uint64_t*>(row_of(v, p, t));
    const int n = (int)words_of(v.channels);
    for (int w = 0; w < n; ++w) {
      uint64_t any = 0;
      for (int q = 0; q < v.format; ++q) any |= words[q * n + w];
      count += __builtin_popcountll(any);
    }
  }
  return count;
}

// Which kernel a projection takes for a range.
static void count_paths(const hot::Kernels& k, const Call& call, int begin, int end, Counters& counters) {
  const bool hot_kernel = call.op->kind == kProject || call.op->kind == kProjectNeuron;
  if (!hot_kernel || call.op->project.groups > 1 || k.choose == nullptr) return;
  const Input in(call.in[0]);
  const bool event = k.choose(grouped_of(call).layer, in.source, begin, end) == hot::Path::Event;
  (event ? counters.event_calls : counters.dense_calls) += 1;
}

// Synaptic operations and multiply-adds of a projection's or matmul's positions [begin, end).
static void count(const Operations& ops, const Call& call, int begin, int end, Counters& counters) {
  const Op& op = *call.op;
  const Projection& w = op.project;
  count_paths(*ops.hot, call, begin, end, counters);
  const bool matmul = op.kind == kMatmul;
  if (!matmul && op.kind != kProject && op.kind != kProjectNeuron && op.kind != kProjectRows) return;
  const View& in = call.in[0];
  const int64_t repeat = in.steps == call.out.steps ? 1 : call.out.steps;  // an input without time serves every step
  const int64_t fan = repeat * (matmul ? call.out.channels : w.cout / w.groups);
  TapWalk walk(taps_of(w), begin, reinterpret_cast<int32_t*>(call.scratch));
  for (int p = begin; p < end; ++p) {
    const int32_t* from = matmul ? &p : walk.next();
    for (int k = 0; k < (matmul ? 1 : w.taps); ++k) {
      if (from[k] < 0) continue;
      counters.synops += nonzero(in, from[k]) * fan;
      counters.macs += (int64_t)in.steps * in.channels * fan;
    }
  }
  const int64_t first = (int64_t)in.positions * begin / call.out.positions;
  const int64_t last = (int64_t)in.positions * end / call.out.positions;
  for (int64_t p = first; p < last; ++p) counters.nonzero += nonzero(in, (int)p);
  counters.inputs += (last - first) * in.steps * in.channels;
}

extern const Operations operations;
const Operations operations = {PTQ_NAME, nullptr, scratch, run, count, peak};

}  // namespace PTQ_ISA
}  // namespace ptq
