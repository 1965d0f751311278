#include "engine.h"

#include "layer.h"

#include <algorithm>
#include <chrono>

#include <unistd.h>

namespace ptq {

namespace {

constexpr int64_t kTileBytes = 2 << 20;     // values of a tile stay in the second cache
constexpr int64_t kBlockBytes = 512 << 10;  // local values of a block, too
constexpr int64_t kSumBytes = 1 << 20;      // sums of a projection's block, too
constexpr int64_t kLeastBlock = 4;
constexpr int64_t kMostSteps = 1 << 20, kMostThreads = 1024;
constexpr int64_t kMostBefore = (int64_t)1 << 62;  // steps before a call: a session has no end

int64_t nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The address `bytes` before `p`: it may lie outside of p's buffer and is not read there.
uint8_t* before(uint8_t* p, int64_t bytes) {
  return reinterpret_cast<uint8_t*>(reinterpret_cast<uintptr_t>(p) - (uintptr_t)bytes);
}

void add(Counters& sum, const Counters& c) {
  sum.nanoseconds = std::max(sum.nanoseconds, c.nanoseconds);  // threads run side by side
  sum.nonzero += c.nonzero;
  sum.inputs += c.inputs;
  sum.synops += c.synops;
  sum.macs += c.macs;
  sum.event_calls += c.event_calls;
  sum.dense_calls += c.dense_calls;
}

}  // namespace

Engine::Engine(std::unique_ptr<Plan> plan, const Operations& operations, bool expanded)
    : plan_(std::move(plan)), operations_(operations), process_(getpid()) {
  const std::vector<Op>& ops = plan_->ops;
  for (int i = 0; i < (int)ops.size(); ++i) {
    const Op& op = ops[(size_t)i];
    if (i == 0 || op.region != ops[(size_t)i - 1].region)
      regions_.push_back({i, i, work_of(*plan_, op), 0, 0, op.loop, 1, 1});
    Region& region = regions_.back();
    region.end = i + 1;
    for (int32_t v : {op.output, op.second}) {
      if (v < 0 || plan_->values[(size_t)v].place != kLocal) continue;
      const Value& value = plan_->values[(size_t)v];
      int64_t& bytes = value.time ? region.time_bytes : region.still_bytes;
      bytes = std::max(bytes, plus(value.offset, value.row + 63) / 64 * 64);
    }
  }
  for (Region& region : regions_) region.words = words_of_region(*plan_, region.begin, region.end);
  if (expanded) expand_weights();
}

// What the event path may read of every projection; operations with the same weights and taps share them.
void Engine::expand_weights() {
  struct Wanted {
    Op* op;
    hot::Layer layer;
    int64_t at;
  };
  std::vector<Wanted> all;
  int64_t total = 0;
  for (Op& op : plan_->ops) {
    const Projection& w = op.project;
    if (!takes_images(op) || !is_planes(plan_->values[(size_t)op.sources[0]].format)) continue;
    if (w.window.rank > 0 && w.runs == nullptr) continue;
    hot::Layer layer{};
    layer.positions = plan_->values[(size_t)op.output].positions;
    layer.taps = w.taps, layer.cin = w.cin, layer.cout = w.cout, layer.bits = w.bits;
    layer.weights = w.weights, layer.runs = w.runs, layer.window = &w.window;
    all.push_back({&op, layer, total});
    total = plus(total, plus((int64_t)operations_.hot->expanded_bytes(layer), 63) / 64 * 64);
  }
  expanded_.resize(total);
  for (const Wanted& w : all) {
    operations_.hot->expand_weights(w.layer, expanded_.data() + w.at);
    w.op->project.expanded = expanded_.data() + w.at;
  }
}

// Several images at once: weights are then expanded once for all of them.
bool Engine::takes_images(const Op& op) {
  return (op.kind == kProject || op.kind == kProjectNeuron) && op.project.groups == 1;
}

int64_t Engine::arena_bytes() const {
  int64_t sum = arena_.bytes();
  for (const Block& b : own_) sum += b.bytes();
  return sum;
}

int64_t Engine::state_bytes() const {
  int64_t sum = 0;
  for (int64_t b : plan_->state_bytes) sum += b;
  return sum;
}

void Engine::check(const Request& r) const {
  const int64_t whole = times(times(r.batch, r.steps), 1);
  if (r.batch < 1 || r.steps < 1 || r.steps > kMostSteps || r.first_step < 0 || r.first_step > kMostBefore || whole < 1)
    throw Refused("the call has no samples or an absurd number of steps");
  if (r.numbers != plan_->numbers) throw Refused("the samples have another size than the plan's input");
  if (r.x == nullptr || (r.x_steps != r.steps && r.x_steps != 1)) throw Refused("the samples have other steps");
  for (const Op& op : plan_->ops)
    if (op.kind == kQuantize && plan_->values[(size_t)op.output].time && r.x_steps != r.steps)
      throw Refused("the plan needs an input for every step");
  for (const Region& region : regions_)
    if (region.loop >= 0 && r.states == nullptr) throw Refused("what goes round from step to step needs states");
  if (r.threads < 1 || r.threads > kMostThreads || r.path < 0 || r.path >= hot::kPaths)
    throw Refused("the call asks for an absurd number of threads");
  for (size_t i = 0; r.states != nullptr && i < plan_->state_bytes.size(); ++i)
    if (r.states[i] == nullptr || r.states_to[i] == nullptr ||
        r.state_bytes[i] != times(r.batch, plan_->state_bytes[i]))
      throw Refused("a state has another size than its neuron");
  for (size_t i = 0; i < plan_->kept.size(); ++i) {
    if (r.kept[i] == nullptr || plan_->kept[i] < 0) continue;
    const Value& v = plan_->values[(size_t)plan_->kept[i]];
    const int64_t each = times(v.positions, v.channels);
    if (r.kept_numbers[i] != times(times(each, r.batch), v.time ? r.steps : 1))
      throw Refused("the memory for a kept value has another size");
  }
}

// The most that an operation needs besides its values.
int64_t Engine::scratch_bytes() {
  int64_t most = 0;
  const Image image{arena_.data(), 0, 0, 0};
  for (const Region& region : regions_) {
    for (int i = region.begin; i < region.end; ++i) {
      const Op& op = plan_->ops[(size_t)i];
      std::vector<View> views((size_t)op.inputs + 1);
      Call c = call(region, op, image, arena_.data(), 0, views.data());
      c.images = takes_images(op) ? region.images : 1;
      most = std::max(most, operations_.scratch(operations_, c, region.block));
    }
  }
  return plus(most, 64) / 64 * 64;
}

void Engine::make_room(const Request& r) {
  const bool as_before = ready_ && r.steps == request_.steps && r.batch == request_.batch && r.path == request_.path &&
                         r.threads == request_.threads;
  request_ = r;
  if (as_before) {
    for (auto& counts : counts_) std::fill(counts.begin(), counts.end(), Counters{});
    return;
  }
  const Unforked whole;
  ready_ = false;
  image_bytes_ = plus(times(plan_->time_bytes, r.steps), plan_->still_bytes);
  tile_ = (int)std::clamp<int64_t>(kTileBytes / (image_bytes_ + 1), 1, r.batch);
  set_blocks();
  const int64_t arena = times(image_bytes_, tile_);
  if (arena_.bytes() < arena) arena_.resize(arena);
  scratch_bytes_ = scratch_bytes();
  const int64_t own = plus(local_bytes_, scratch_bytes_);
  const size_t threads = (size_t)r.threads;
  if (own_.size() < threads) own_.resize(threads);
  for (size_t i = 0; i < threads; ++i)
    if (own_[i].bytes() < own) own_[i].resize(own);
  int32_t inputs = 0;
  for (const Op& op : plan_->ops) inputs = std::max(inputs, op.inputs);
  views_.assign(threads, std::vector<View>((size_t)inputs + 1));
  counts_.assign(threads, std::vector<Counters>(plan_->ops.size()));
  ready_ = true;
}

// Positions of a projection whose sums of 16 bits stay in the second cache, in whole rows of the image.
int64_t Engine::sum_block(const Op& op) const {
  if (op.kind != kProject && op.kind != kProjectNeuron) return INT32_MAX;
  const Projection& w = op.project;
  const int64_t each = w.groups > 1 ? w.cin / w.groups : w.bits > 4 ? 2 : 1;  // rows of 16 bits
  const int64_t steps = plan_->values[(size_t)op.sources[0]].time ? request_.steps : 1;
  const int64_t most = std::max(kLeastBlock, kSumBytes / times(times(steps, each), 2 * padded(w.cout)));
  const int64_t row = w.window.rank > 0 ? w.window.axes[w.window.rank - 1].out : 1;
  return most > row ? most - most % row : most;
}

// Blocks of positions and groups of images whose local values and sums stay in the second cache.
void Engine::set_blocks() {
  local_bytes_ = 0;
  for (Region& region : regions_) {
    const int64_t position = plus(times(region.time_bytes, request_.steps), region.still_bytes);
    const int64_t block = std::clamp<int64_t>(kBlockBytes / (position + 1), kLeastBlock, INT32_MAX);
    region.block = (int)std::min<int64_t>(block, region.work);
    for (int i = region.begin; i < region.end; ++i)
      region.block = (int)std::min<int64_t>(region.block, sum_block(plan_->ops[(size_t)i]));
    region.image_bytes = times(position, region.block);
    const int64_t images = std::clamp<int64_t>(kBlockBytes / (region.image_bytes + 1), 1, tile_);
    region.images = region.block == region.work ? (int)images : 1;
    local_bytes_ = std::max(local_bytes_, times(region.image_bytes, region.images));
  }
  local_bytes_ = plus(local_bytes_, 63) / 64 * 64;
}

View Engine::view(const Region& region, int32_t number, const Image& image, uint8_t* local, int first) const {
  const Value& v = plan_->values[(size_t)number];
  const int64_t steps = v.time ? request_.steps : 1;
  View out{nullptr, v.positions, v.channels, (int32_t)steps, v.format, v.row};
  if (v.place == kArena) {
    const int64_t at = v.time ? v.offset * request_.steps : plan_->time_bytes * request_.steps + v.offset;
    out.data = image.memory + at;
  } else {
    const int64_t at = v.time ? v.offset * steps : region.time_bytes * request_.steps + v.offset;
    out.data = before(local + image.place * region.image_bytes + at * region.block, (int64_t)first * steps * v.row);
  }
  return out;
}

Call Engine::call(const Region& region, const Op& op, const Image& image, uint8_t* local, int first,
                  View* views) const {
  const Request& r = request_;
  Call c{};
  c.op = &op;
  c.images = 1;
  c.in = views;
  const auto stride = [&](int32_t value) {
    return plan_->values[(size_t)value].place == kArena ? image_bytes_ : region.image_bytes;
  };
  for (int i = 0; i < op.inputs; ++i) views[i] = view(region, op.sources[i], image, local, first);
  if (op.inputs > 0) c.in_bytes = stride(op.sources[0]);
  if (op.output >= 0) c.out = view(region, op.output, image, local, first), c.out_bytes = stride(op.output);
  if (op.second >= 0) c.second = view(region, op.second, image, local, first), c.second_bytes = stride(op.second);
  c.steps = region.loop < 0 ? (int32_t)r.steps : 1;
  c.first_step = r.first_step + (region.loop < 0 ? 0 : image.step);
  c.at = image.step;
  c.x = r.x + image.number * r.numbers;
  c.x_stride = r.batch * r.numbers;
  if (op.state >= 0 && r.states != nullptr) {
    c.state_bytes = plan_->state_bytes[(size_t)op.state];
    const int64_t at = image.number * c.state_bytes;
    c.state_to = r.states_to[op.state] + at;
    c.state = image.step == 0 ? r.states[op.state] + at : c.state_to;  // of a loop: what the step before has left
  }
  if (op.kind == kKeep && r.kept[op.slot] != nullptr) {
    const Value& v = plan_->values[(size_t)op.sources[0]];
    const int64_t each = (int64_t)v.positions * v.channels;
    c.kept = r.kept[op.slot] + image.number * each;
    c.kept_stride = r.batch * each;
  }
  c.scratch = local + local_bytes_;
  c.scratch_bytes = scratch_bytes_;
  c.path = static_cast<hot::Path>(r.path);
  return c;
}

void Engine::run_block(const Region& region, int thread, const Image& image, int begin, int end, int word, int words) {
  const size_t t = (size_t)thread;
  for (int i = region.begin; i < region.end; ++i) {
    Call c = call(region, plan_->ops[(size_t)i], image, own_[t].data(), begin, views_[t].data());
    c.word = word, c.words = words;
    run_op(i, thread, c, begin, end);
  }
}

void Engine::run_op(int number, int thread, const Call& c, int begin, int end) {
  if (!request_.profile) return operations_.run(operations_, c, begin, end);
  Counters& counters = counts_[(size_t)thread][(size_t)number];
  const int64_t from = nanoseconds();
  operations_.run(operations_, c, begin, end);
  counters.nanoseconds += nanoseconds() - from;
  if (c.word > 0) return;  // whoever makes the first word counts for all
  View* in = views_[(size_t)thread].data();
  for (int32_t image = 0; image < c.images; ++image) {
    operations_.count(operations_, c, begin, end, counters);
    if (c.op->inputs > 0) in[0].data += c.in_bytes;
  }
}

// All positions of images that follow each other, at most as many as the region takes.
void Engine::run_images(const Region& region, int thread, const Image& first, int count) {
  const size_t t = (size_t)thread;
  for (int i = region.begin; i < region.end; ++i) {
    const Op& op = plan_->ops[(size_t)i];
    const int together = takes_images(op) ? count : 1;
    for (int at = 0; at < count; at += together) {
      const Image image{first.memory + at * image_bytes_, first.number + at, at, first.step};
      Call c = call(region, op, image, own_[t].data(), 0, views_[t].data());
      c.images = together;
      run_op(i, thread, c, 0, region.work);
    }
  }
}

void Engine::run_rows(const Region& region, int thread, int64_t phase, const Image& image, int begin, int end, int word,
                      int words) {
  for (int p = begin; p < end && !stopped(thread, phase); p += region.block)
    run_block(region, thread, image, p, std::min(p + region.block, end), word, words);
}

// Whoever held the mutex in the parent is not here: it is left behind, and what was half made is made again.
// The first thread of the child that comes does it, others wait.
void Engine::after_fork() {
  const pid_t here = getpid();
  for (pid_t seen = process_; seen != here; seen = process_) {
    if (seen == -here || !process_.compare_exchange_strong(seen, -here)) {
      std::this_thread::yield();
      continue;
    }
    (void)mutex_.release();
    mutex_ = std::make_unique<std::timed_mutex>();
    owner_ = std::thread::id();
    ready_ = false;
    process_ = here;
  }
}

void Engine::lock(Asking& asking) {
  if (process_ != getpid()) after_fork();
  if (owner_.load() == std::this_thread::get_id())
    throw Refused("a signal handler cannot run the model that it interrupts");
  while (!mutex_->try_lock_for(Asking::kAskEvery))
    if (asking.cancelled()) throw Cancelled();
}

void Engine::run(const Request& request, Asking& asking) {
  lock(asking);
  std::lock_guard<std::timed_mutex> locked(*mutex_, std::adopt_lock);
  struct Owner {
    std::atomic<std::thread::id>& id;
    explicit Owner(std::atomic<std::thread::id>& i) : id(i) { id = std::this_thread::get_id(); }
    ~Owner() { id = std::thread::id(); }
  } owner(owner_);
  check(request);
  make_room(request);
  asking_ = &asking;
  stop_ = INT64_MAX;
  team_.run((int)request.threads,
            [](void* self, int thread, Barrier& barrier) { static_cast<Engine*>(self)->work(thread, barrier); }, this);
  if (stop_ != INT64_MAX) throw Cancelled();
  if (counters_.size() != plan_->ops.size()) {
    const Unforked whole;
    counters_.resize(plan_->ops.size());
  }
  std::fill(counters_.begin(), counters_.end(), Counters{});
  for (size_t t = 0; t < (size_t)request.threads; ++t)
    for (size_t i = 0; i < counters_.size(); ++i) add(counters_[i], counts_[t][i]);
}

}  // namespace ptq
