// Whether an operation fits its values and arrays. Sizes of arrays were checked when they were read (plan.cpp).
#include "plan.h"

namespace ptq {

namespace {

void need(bool fine, const char* why) {
  if (!fine) throw Refused(why);
}

void in_range(const int32_t* numbers, int64_t count, int64_t low, int64_t high) {
  for (int64_t i = 0; numbers && i < count; ++i)
    need(numbers[i] >= low && numbers[i] < high, "an operation names a position or element that is not there");
}

bool rows_format(int format) { return format >= kU8 && format <= kI32; }

bool is_hot_width(int width) {
  for (int hot : hot::kHotWidths)
    if (hot == width) return true;
  return false;
}

struct Checker {
  const Plan& plan;
  const Op& op;

  const Value& value(int32_t v) const { return plan.values[(size_t)v]; }
  const Value& in(int i) const { return value(op.sources[i]); }
  const Value& out() const { return value(op.output); }
  int64_t elements() const { return (int64_t)out().positions * out().channels; }

  void inputs(int low, int high) const {
    need(op.inputs >= low && op.inputs <= high, "an operation has a wrong number of inputs");
  }

  // The same channels, and the same positions or one.
  void alike(int low, int high) const {
    inputs(low, high);
    for (int i = 0; i < op.inputs; ++i)
      need(in(i).channels == out().channels && (in(i).positions == out().positions || in(i).positions == 1),
           "an operation's inputs have another size than its output");
  }

  void same_size(int i) const {
    need(in(i).channels == out().channels && in(i).positions == out().positions,
         "an operation's input has another size than its output");
  }

  // A value with time cannot become one without.
  void times_fit() const {
    for (int i = 0; i < op.inputs; ++i) need(in(i).time <= out().time, "an operation forgets the time of its input");
  }

  void quantize() const {
    inputs(0, 0);
    in_range(op.index, elements(), -1, plan.numbers);
  }

  void taps() const { in_range(op.project.table, (int64_t)out().positions * op.project.taps, -1, in(0).positions); }

  void pool() const {
    inputs(1, 1);
    need(op.how == kSum || op.how == kMax, "a pool neither sums nor takes the maximum");
    need(in(0).channels == out().channels, "a pool changes the number of channels");
    taps();
  }

  void gather() const {
    need(op.inputs >= 1 && (op.how == kSum || op.how == kMax), "a gather has nothing to gather");
    int64_t total = 0;
    for (int i = 0; i < op.inputs; ++i) total = plus(total, times(in(i).positions, in(i).channels));
    in_range(op.index, times(elements(), op.width), -1, total);
  }

  void matmul() const {
    inputs(2, 2);
    need(out().positions % op.groups == 0 && in(0).positions == out().positions && in(1).channels == out().channels &&
             in(1).positions == times(op.groups, in(0).channels),
         "the sizes of a matmul do not fit");
    times(in(0).channels, out().channels);
  }

  void projection() const {
    const Projection& w = op.project;
    inputs(1, 1);
    need(w.cin == in(0).channels && w.cout == out().channels, "a projection has other channels than its values");
    if (w.table == nullptr)
      need(w.taps == 1 && in(0).positions == out().positions, "a projection without taps changes the positions");
    taps();
  }

  void hot_projection() const {
    projection();
    need(in(0).format != kI64, "a projection of 32 bits reads 64");
    if (op.kind == kProject)
      need(rows_format(out().format), "a projection writes a format that it does not know");
    else
      need(op.project.groups == 1 && op.project.rescale_m == nullptr, "a projection with a neuron has groups");
  }

  void neuron(int first_state) const {
    const Neurons& k = op.neuron;
    need(k.channel != nullptr || k.channels == out().channels, "a neuron has other channels than its values");
    in_range(k.channel, elements(), 0, k.channels);
    need(!k.once || !out().time, "a neuron that runs once has time");
    if (op.second >= 0) {
      const Value& a = value(op.second);
      need(op.second != op.output && a.positions == out().positions && a.channels == out().channels &&
               a.time == out().time,
           "a potential has another size than its spikes");
    }
    if (op.state >= 0) {
      need(op.fields.count == out().channels && op.inputs < first_state, "a state has other fields than its neuron");
      need(!k.once, "a neuron that runs once keeps a state");
    }
  }

  void hot_neuron() const {
    const Neurons& k = op.neuron;
    need(k.channel == nullptr && out().format == kPlanes1 && k.most == 1, "a neuron writes no spikes");
    need(op.second < 0 || value(op.second).format == kI32, "a potential is not of 32 bits");
    need(k.gain >= INT32_MIN && k.gain <= INT32_MAX && op.steps == 0, "a neuron's input is scaled beyond 32 bits");
    if (op.state >= 0) hot_state();
    shifts(k.numbers, k.wide ? 62 : 31);
  }

  // The hot kernels do not know every width that a field may have.
  void hot_state() const {
    for (int i = 0; i < kWidthCount; ++i)
      need(op.fields.widths[i] == 0 || is_hot_width(kWidths[i]), "a state has fields of odd widths");
  }

  template <class T>
  void shifts(const T* const* numbers, int most) const {
    for (int64_t c = 0; c < padded(op.neuron.channels); ++c) {
      const T charge = numbers[kChargeN][c], settle = numbers[kSettleN][c];
      if (op.neuron.carried)
        need(op.neuron.lift_n[c] >= 0 && op.neuron.lift_n[c] <= 62, "a neuron shifts its state too far");
      need(charge >= 0 && charge <= most && settle >= 0 && settle <= (op.neuron.dither ? kPhaseBits : most),
           "a neuron shifts too far");
    }
  }

  void neuron_any() const {
    inputs(1, 2);
    for (int i = 0; i < op.inputs; ++i) same_size(i);
    if (op.inputs == 2) need(!in(1).time && in(1).format == kI64, "a loaded state has a wrong form");
    neuron(2);
    shifts(op.neuron.wide_numbers, 62);
    for (int64_t c = 0; op.neuron.most > 1 && c < op.neuron.channels; ++c)
      need(op.neuron.wide_numbers[kTheta][c] > 0, "a neuron divides by a threshold that is not positive");
  }

  void whole_state(const Value& v) const {
    need(op.state >= 0 && !v.time && op.fields.count == (int64_t)v.positions * v.channels,
         "a state has other fields than its neuron");
    need(v.place == kArena, "a whole state lies in the memory of a block");
  }

  // A step of a value, and back: the same rows.
  void moves_a_step(bool takes) const {
    inputs(1, 1);
    same_size(0);
    need(op.loop >= 0 && in(0).format == out().format, "a step is moved outside of a loop, or changed on the way");
    need(in(0).time == (takes ? 1 : 0) && out().time == (takes ? 0 : 1), "a step is moved the wrong way");
  }

  // Everything else in a loop is of one step.
  void of_one_step() const {
    need(op.kind != kQuantize && op.kind != kTimeSum && op.kind != kKeep && op.kind != kOverTime,
         "an operation of all steps stands in a loop");
    need(op.output < 0 || !out().time, "an operation of a loop makes all steps");
    need(!op.neuron.once, "a neuron of a loop runs once");
  }

  void without_output() const {
    inputs(1, 1);
    need(op.second < 0, "an operation that only reads has an output");
    if (op.kind == kStoreState) return whole_state(in(0));
    need(op.slot >= 0, "a kept value has no place");
  }

  void pointwise() const {
    switch (op.kind) {
      case kCombine: need(op.low <= op.high, "a sum has no range"); return alike(1, INT32_MAX);
      case kMultiply: return alike(2, 2);
      case kChoice: need(op.how != kSum, "a choice does not sum"); return alike(1, 2);
      case kTimeSum: need(!out().time, "a sum over time has time"); break;
      case kClip: need(op.low <= op.high, "a clip has no range"); break;
      case kOverTime:
        need(op.steps > 0 && op.project.cout == out().channels, "a correction has other channels than its value");
        break;
      default: break;
    }
    inputs(1, 1);
    same_size(0);
  }

  void with_output() const {
    need(op.second < 0 || op.kind == kNeuron || op.kind == kNeuronAny || op.kind == kProjectNeuron,
         "an operation has two outputs");
    if (op.kind != kTimeSum && op.kind != kTake) times_fit();
    switch (op.kind) {
      case kQuantize: return quantize();
      case kProject: return hot_projection();
      case kProjectRows: return projection();
      case kProjectNeuron:
        hot_projection();
        neuron(2);
        return hot_neuron();
      case kNeuron:
        inputs(1, 1);
        same_size(0);
        need(rows_format(in(0).format), "a neuron reads a format that it does not know");
        neuron(2);
        return hot_neuron();
      case kNeuronAny: return neuron_any();
      case kPool: return pool();
      case kGather: return gather();
      case kMatmul: return matmul();
      case kTake: return moves_a_step(true);
      case kPut: return moves_a_step(false);
      case kLoadState: inputs(0, 0); return whole_state(out());
      default: return pointwise();
    }
  }
};

}  // namespace

void check_op(const Plan& plan, const Op& op) {
  const Checker c{plan, op};
  if (op.loop >= 0 && op.kind != kTake && op.kind != kPut) c.of_one_step();
  if (op.kind == kKeep || op.kind == kStoreState) return c.without_output();
  c.with_output();
}

namespace {

// Whether an operation reads its inputs only at its own position.
bool is_local(const Op& op) {
  if (op.kind == kNeuron || op.kind == kNeuronAny) return true;
  const bool pointwise = op.kind >= kCombine && op.kind != kMatmul;
  return pointwise || (op.project.cin > 0 && op.project.table == nullptr);
}

}  // namespace

// Operations of a region run together, block by block: they agree on positions, and read each other only there.
void check_regions(const Plan& plan, const std::vector<int64_t>& made) {
  const std::vector<Op>& ops = plan.ops;
  for (size_t i = 0; i < ops.size(); ++i) {
    const Op& op = ops[i];
    const int32_t work = work_of(plan, op);
    need(i == 0 || op.region >= ops[i - 1].region, "the plan's regions are out of order");
    need(i == 0 || op.region > ops[i - 1].region || work == work_of(plan, ops[i - 1]),
         "operations of one region have other positions");
    need(i == 0 || op.region > ops[i - 1].region || op.loop == ops[i - 1].loop, "a region is half in a loop");
    for (int j = 0; j < op.inputs; ++j) {
      const Value& v = plan.values[(size_t)op.sources[j]];
      const bool same = ops[(size_t)made[(size_t)op.sources[j]]].region == op.region;
      need(same || v.place == kArena, "a local value is read outside of its region");
      need(!same || (is_local(op) && v.positions == work), "an operation reads other positions of its own region");
    }
  }
}

}  // namespace ptq
