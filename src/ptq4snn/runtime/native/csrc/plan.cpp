// Builds the plan of a block. What an operation needs besides is checked in check.cpp.
#include "plan.h"

#include <map>
#include <new>
#include <utility>

#include "layer.h"
#include "tables.h"
#include "tap_runs.h"
#include "weights.h"

namespace ptq {

namespace {

bool has_neuron(int64_t kind) { return kind == kNeuron || kind == kNeuronAny || kind == kProjectNeuron; }

bool whole_state(int64_t kind) { return kind == kLoadState || kind == kStoreState; }

// Where the numbers of a neuron stand, in the order of Parameter.
constexpr OpField kParameterFields[kParameters] = {oTheta,   oRho,     oChargeM,  oChargeN,
                                                   oSettleM, oSettleN, oStateLow, oStateHigh};

class Reader {
 public:
  Reader(const uint8_t* bytes, int64_t size) : tables_(bytes, size) {}

  std::unique_ptr<Plan> read() {
    read_header();
    for (int64_t i = 0; i < tables_.head(hValues); ++i) read_value(tables_.value(i));
    made_.assign(plan_->values.size(), -1);
    tables_.copy_arrays(plan_->parameters);
    packer_.make_room(plan_->weights);
    for (int64_t i = 0; i < tables_.head(hOps); ++i) read_op(tables_.op(i), i);
    check_regions(*plan_, made_);
    return std::move(plan_);
  }

 private:
  void read_header() {
    Plan& p = *plan_;
    p.numbers = tables_.head(hNumbers);
    p.time_bytes = tables_.head(hTimeBytes);
    p.still_bytes = tables_.head(hStillBytes);
    p.local_time_bytes = tables_.head(hLocalTimeBytes);
    p.local_still_bytes = tables_.head(hLocalStillBytes);
    if ((p.time_bytes | p.still_bytes | p.local_time_bytes | p.local_still_bytes) % kAlignment)
      throw Refused("the plan's buffers are not aligned");
    p.state_bytes.assign((size_t)tables_.head(hStates), 0);
    p.kept.assign((size_t)tables_.head(hKept), -1);
  }

  void read_value(const Row& f) {
    Value v{};
    v.positions = small(f[vPositions], 1, kMostPositions);
    v.channels = small(f[vChannels], 1, INT32_MAX - 64);
    v.time = small(f[vTime], 0, 1);
    v.format = small(f[vFormat], kPlanes1, kI64);
    v.place = small(f[vLocal], kArena, kLocal);
    v.offset = plus(f[vOffset], 0);
    if (v.offset % kAlignment || times(v.positions, v.channels) >= INT32_MAX)
      throw Refused("a value of the plan is absurd");
    v.row = row_bytes(v.format, v.channels);
    const Plan& p = *plan_;
    const int64_t needs = plus(v.offset, v.place == kLocal ? v.row : times(v.positions, v.row));
    const int64_t there = v.place == kLocal ? (v.time ? p.local_time_bytes : p.local_still_bytes)
                                            : (v.time ? p.time_bytes : p.still_bytes);
    if (needs > there) throw Refused("a value of the plan lies outside of its memory");
    plan_->values.push_back(v);
  }

  void read_op(const Row& f, int64_t number) {
    Op op{};
    op.kind = small(f[oKind], 0, kKinds - 1);
    const int64_t values = (int64_t)plan_->values.size();
    op.output = small(f[oOutput], -1, values - 1);
    op.second = small(f[oSecond], -1, values - 1);
    op.region = small(f[oRegion], 0, INT32_MAX);
    op.loop = small(f[oLoop], -1, INT32_MAX);
    op.inputs = (int32_t)tables_.count_of(f[oSources], tI32);
    op.sources = tables_.numbers<int32_t>(f[oSources], op.inputs, false);
    for (int i = 0; i < op.inputs; ++i) {
      const int32_t v = op.sources[i];
      if (v < 0 || v >= values || made_[(size_t)v] < 0) throw Refused("an operation reads a value before it is made");
    }
    const bool reads_only = op.kind == kKeep || op.kind == kStoreState;
    if (reads_only != (op.output < 0)) throw Refused("an operation has no output, or one too many");
    read_scalars(f, op);
    read_arrays_of(f, op);
    if (has_weights(op.kind) || op.kind == kOverTime) read_projection(f, op);
    if (op.kind == kPool) read_taps(f, op);
    if (has_neuron(op.kind)) read_neuron(f, op);
    if (op.state >= 0) read_state(f, op);
    check_op(*plan_, op);
    if (op.kind == kKeep) keep(op);
    if (op.kind == kProject || op.kind == kProjectNeuron) op.project.runs = runs_of(op, f[oWindow]);
    for (int32_t v : {op.output, op.second}) {
      if (v < 0) continue;
      if (made_[(size_t)v] >= 0) throw Refused("a value is made twice");
      made_[(size_t)v] = number;
    }
    plan_->ops.push_back(op);
  }

  // Spikes are followed from the input's side; layers with the same window, an array of the plan, share the runs.
  const int32_t* runs_of(const Op& op, int64_t window) {
    const Projection& w = op.project;
    const Value& in = plan_->values[(size_t)op.sources[0]];
    if (w.window.rank == 0 || w.groups > 1 || !is_planes(in.format)) return nullptr;
    const int32_t*& known = runs_[window];
    if (known == nullptr) {
      const int positions = plan_->values[(size_t)op.output].positions;
      if (times(positions, w.taps) > hot::kMostTaps) throw Refused("a projection of the plan reads too many inputs");
      try {
        plan_->runs.push_back(hot::make_runs(w.window));
      } catch (const std::bad_alloc&) {
        throw Refused("there is not enough memory");
      }
      known = plan_->runs.back().data();
    }
    return known;
  }

  void keep(const Op& op) {
    int32_t& known = plan_->kept[(size_t)op.slot];
    if (known >= 0) throw Refused("two values are kept in one place");
    known = op.sources[0];
  }

  void read_scalars(const Row& f, Op& op) {
    op.wide = small(f[oWide], 0, 1);
    op.how = small(f[oHow], 0, kHows - 1);
    op.width = small(f[oWidth], 1, 1 << 24);
    op.groups = small(f[oGroups], 1, 1 << 24);
    op.state = small(f[oState], -1, (int64_t)plan_->state_bytes.size() - 1);
    op.slot = small(f[oSlot], -1, (int64_t)plan_->kept.size() - 1);
    op.pads_zero = small(f[oPadsZero], 0, 1);
    op.constant = f[oConstant];
    op.low = f[oLow];
    op.high = f[oHigh];
    op.steps = small(f[oSteps], 0, INT32_MAX);
  }

  int64_t out_elements(const Op& op) const {
    if (op.output < 0) return 0;
    const Value& v = plan_->values[(size_t)op.output];
    return (int64_t)v.positions * v.channels;
  }

  void read_arrays_of(const Row& f, Op& op) {
    const int64_t channels = op.output < 0 ? 0 : plan_->values[(size_t)op.output].channels;
    op.coefficients = tables_.numbers<int64_t>(f[oCoefficients], op.inputs, op.kind == kCombine);
    op.signs = tables_.numbers<int32_t>(f[oSigns], channels, op.kind == kAffine);
    op.shifts = tables_.numbers<int32_t>(f[oShifts], channels, op.kind == kAffine);
    read_strides(f[oIndexStrides], op.index_strides);
    const int64_t elements = op.index_strides.rank > 0 ? channels : out_elements(op);
    op.index =
        tables_.numbers<int32_t>(f[oIndex], times(elements, op.width), op.kind == kGather || op.kind == kQuantize);
    const int64_t grid = tables_.count_of(f[oInverse], tF64);
    op.per_channel = grid > 1;
    op.inverse = tables_.numbers<double>(f[oInverse], grid > 1 ? channels : 1, op.kind == kQuantize);
    op.zeros = tables_.numbers<double>(f[oZeros], grid > 1 ? channels : 1, op.kind == kQuantize);
  }

  void read_strides(int64_t id, hot::Strides& s) {
    s.rank = small(tables_.count_of(id, tI32) / 2, 0, hot::kMostAxes);
    const int32_t* numbers = tables_.numbers<int32_t>(id, 2 * s.rank, false);
    for (int a = 0; a < s.rank; ++a) s.sizes[a] = numbers[2 * a], s.strides[a] = numbers[2 * a + 1];
  }

  void read_taps(const Row& f, Op& op) {
    op.project.taps = small(f[oTaps], 1, 1 << 24);
    const int64_t positions = op.output < 0 ? 0 : plan_->values[(size_t)op.output].positions;
    const int64_t count = times(positions, op.project.taps);
    read_window(f, op.project.window);
    if (f[oAxisTaps] >= 0 && op.kind != kPool) throw Refused("a projection has taps of its own");
    const bool listed = op.kind == kPool && op.project.window.rank == 0;
    if (!listed && f[oTable] >= 0) throw Refused("an operation with a window has a table of taps");
    op.project.table = tables_.numbers<int32_t>(f[oTable], count, listed);
    op.pool_weights = tables_.numbers<int32_t>(f[oPoolWeights], count, false);
  }

  // The axes; with lists [out][kernel] of taps and weights for each, one after the other, where there are any.
  void read_window(const Row& f, hot::Window& w) {
    w.rank = small(tables_.count_of(f[oWindow], tI32) / hot::kAxisNumbers, 0, hot::kMostAxes);
    const int32_t* numbers = tables_.numbers<int32_t>(f[oWindow], w.rank * hot::kAxisNumbers, false);
    int64_t listed = 0;
    for (int a = 0; a < w.rank; ++a, numbers += hot::kAxisNumbers) {
      w.axes[a] = {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], nullptr, nullptr};
      listed = plus(listed, times(numbers[1], numbers[5]));
    }
    const int32_t* taps = tables_.numbers<int32_t>(f[oAxisTaps], listed, false);
    const int32_t* weights = tables_.numbers<int32_t>(f[oAxisWeights], listed, taps != nullptr);
    for (int a = 0; taps && a < w.rank; ++a) {
      const int64_t count = (int64_t)w.axes[a].kernel * w.axes[a].out;
      w.axes[a].taps = taps, w.axes[a].weights = weights;
      taps += count, weights += count;
    }
  }

  void read_projection(const Row& f, Op& op) {
    Projection& w = op.project;
    read_taps(f, op);
    w.cin = small(f[oCin], 1, 1 << 24);
    w.cout = small(f[oCout], 1, 1 << 24);
    w.groups = op.groups;
    w.bits = small(f[oBits], 2, 8);
    w.shift = small(f[oShift], 0, 30);
    w.narrow = small(f[oNarrow], 0, 1);
    const int64_t stride = padded(w.cout), rows = tables_.count_of(f[oBias], tI32) / stride;
    w.bias = tables_.numbers<int32_t>(f[oBias], times(rows, stride));
    const int64_t positions = op.output < 0 ? 0 : plan_->values[(size_t)op.output].positions;
    w.bias_row = tables_.numbers<int32_t>(f[oBiasRow], positions, false);
    for (int64_t p = 0; w.bias_row && p < positions; ++p) small(w.bias_row[p], 0, rows - 1);
    if (rows < 1) throw Refused("a projection has no bias");
    w.rescale_m = tables_.numbers<int32_t>(f[oRescaleM], stride, false);
    w.rescale_n = tables_.numbers<int32_t>(f[oRescaleN], stride, w.rescale_m != nullptr);
    for (int64_t c = 0; w.rescale_n && c < stride; ++c) small(w.rescale_n[c], 0, 62);
    w.lo = small(f[oLo], INT32_MIN, INT32_MAX);
    w.hi = small(f[oHi], INT32_MIN, INT32_MAX);
    if (has_weights(op.kind)) w.weights = packer_.pack(f);
  }

  void read_neuron(const Row& f, Op& op) {
    Neurons& k = op.neuron;
    const bool any = op.kind == kNeuronAny;
    k.channels = small(f[oNeuronChannels], 1, 1 << 24);
    for (int i = 0; i < kParameters; ++i) {
      const int64_t id = f[kParameterFields[i]], count = padded(k.channels);
      if (any)
        k.wide_numbers[i] = tables_.numbers<int64_t>(id, count);
      else
        k.numbers[i] = tables_.numbers<int32_t>(id, count);
    }
    k.reset = static_cast<hot::Reset>(small(f[oReset], 0, hot::kResets - 1));
    k.dither = small(f[oDither], 0, 1);
    k.wide = small(f[oWideProducts], 0, 1);
    k.once = small(f[oOnce], 0, 1);
    k.carried = small(f[oCarried], 0, 1);
    if (k.carried && (!any || op.second < 0 || k.once)) throw Refused("a neuron hands on a state that nobody reads");
    k.lift_m = tables_.numbers<int64_t>(f[oLiftM], padded(k.channels), k.carried != 0);
    k.lift_n = tables_.numbers<int64_t>(f[oLiftN], padded(k.channels), k.carried != 0);
    k.most = small(f[oMost], 1, 255);
    k.gain = f[oGain];
    k.bound = f[oBound];
    k.channel = tables_.numbers<int32_t>(f[oChannel], out_elements(op), false);
    k.element = tables_.numbers<int32_t>(f[oElement], out_elements(op), false);
  }

  void read_state(const Row& f, Op& op) {
    if (!has_neuron(op.kind) && op.kind != kTimeSum && !whole_state(op.kind))
      throw Refused("an operation without memory has a state");
    int64_t bytes = times(out_elements(op), 8);  // sums over time
    if (op.kind != kTimeSum) {
      Fields& s = op.fields;
      const int32_t* widths = tables_.numbers<int32_t>(f[oWidths], kWidthCount);
      int64_t fields = 0, bits = 0;
      for (int i = 0; i < kWidthCount; ++i) {
        s.widths[i] = small(widths[i], 0, INT32_MAX);
        fields += s.widths[i];
        bits += (int64_t)s.widths[i] * kWidths[i];
      }
      s.count = small(fields, 1, INT32_MAX);
      s.order = tables_.numbers<int32_t>(f[oOrder], fields, false);
      s.zero = tables_.numbers<int32_t>(f[oZero], padded(fields), false);
      s.bytes = (bits + 7) / 8;
      for (int64_t i = 0; s.order && i < fields; ++i) small(s.order[i], 0, fields - 1);
      bytes = whole_state(op.kind) ? s.bytes : times(s.bytes, plan_->values[(size_t)op.output].positions);
    }
    int64_t& known = plan_->state_bytes[(size_t)op.state];
    if (known != 0 && (known != bytes || op.kind != kStoreState)) throw Refused("two operations share a state");
    known = bytes;
  }

  Tables tables_;
  Packer packer_{tables_};
  Row made_;                                // operation that makes a value, or -1
  std::map<int64_t, const int32_t*> runs_;  // by the array of a window
  std::unique_ptr<Plan> plan_ = std::make_unique<Plan>();
};

}  // namespace

int64_t Plan::resident_bytes() const {
  int64_t sum = parameters.bytes() + weights.bytes();
  for (const auto& r : runs) sum += (int64_t)(r.size() * sizeof(int32_t));
  return sum;
}

int32_t work_of(const Plan& plan, const Op& op) {
  if (whole_state(op.kind)) return 1;
  const int32_t value = op.kind == kKeep ? op.sources[0] : op.output;
  return plan.values[(size_t)value].positions;
}

std::unique_ptr<Plan> read_plan(const uint8_t* bytes, int64_t size) { return Reader(bytes, size).read(); }

}  // namespace ptq
