#include "engine.h"

#include <algorithm>
#include <chrono>

namespace ptq {

namespace {

constexpr int64_t kTileBytes = 2 << 20;   // values of a tile stay in the second cache
constexpr int64_t kBlockBytes = 512 << 10;  // local values of a block, too
constexpr int64_t kMostSteps = 1 << 20, kMostThreads = 1024;

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

Engine::Engine(std::unique_ptr<Plan> plan, const Operations& operations)
    : plan_(std::move(plan)), operations_(operations) {
  const std::vector<Op>& ops = plan_->ops;
  for (int i = 0; i < (int)ops.size(); ++i) {
    const Op& op = ops[(size_t)i];
    if (i == 0 || op.region != ops[(size_t)i - 1].region) regions_.push_back({i, i, work_of(*plan_, op), false});
    Region& region = regions_.back();
    region.end = i + 1;
    for (int32_t v : {op.output, op.second})
      if (v >= 0 && plan_->values[(size_t)v].place == kLocal) region.blocks = true;
  }
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
  if (r.batch < 1 || r.steps < 1 || r.steps > kMostSteps || r.first_step < 0 || r.first_step > INT32_MAX || whole < 1)
    throw Refused("the call has no samples or an absurd number of steps");
  if (r.numbers != plan_->numbers) throw Refused("the samples have another size than the plan's input");
  if (r.x == nullptr || (r.x_steps != r.steps && r.x_steps != 1)) throw Refused("the samples have other steps");
  for (const Op& op : plan_->ops)
    if (op.kind == kQuantize && plan_->values[(size_t)op.output].time && r.x_steps != r.steps)
      throw Refused("the plan needs an input for every step");
  if (r.threads < 1 || r.threads > kMostThreads || r.path < 0 || r.path > 2)
    throw Refused("the call asks for an absurd number of threads");
  for (size_t i = 0; r.states != nullptr && i < plan_->state_bytes.size(); ++i)
    if (r.states[i] == nullptr || r.state_bytes[i] != times(r.batch, plan_->state_bytes[i]))
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
  const Image image{arena_.data(), 0};
  for (const Region& region : regions_) {
    const int range = region.blocks ? block_ : region.work;
    for (int i = region.begin; i < region.end; ++i) {
      const Op& op = plan_->ops[(size_t)i];
      std::vector<View> views((size_t)op.inputs + 1);
      const Call c = call(op, image, arena_.data(), 0, views.data());
      most = std::max(most, operations_.scratch(operations_, c, range));
    }
  }
  return plus(most, 64) / 64 * 64;
}

void Engine::make_room(const Request& r) {
  request_ = r;
  image_bytes_ = plus(times(plan_->time_bytes, r.steps), plan_->still_bytes);
  tile_ = (int)std::clamp<int64_t>(kTileBytes / (image_bytes_ + 1), 1, r.batch);
  const int64_t position = plus(times(plan_->local_time_bytes, r.steps), plan_->local_still_bytes);
  block_ = (int)std::clamp<int64_t>(kBlockBytes / (position + 1), 4, 4096);
  local_bytes_ = times(position, block_);
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
}

View Engine::view(int32_t number, const Image& image, uint8_t* local, int first) const {
  const Value& v = plan_->values[(size_t)number];
  const int64_t steps = v.time ? request_.steps : 1;
  View out{nullptr, v.positions, v.channels, (int32_t)steps, v.format, v.row};
  if (v.place == kArena) {
    const int64_t at = v.time ? v.offset * request_.steps : plan_->time_bytes * request_.steps + v.offset;
    out.data = image.memory + at;
  } else {
    const int64_t at = v.time ? v.offset * steps : plan_->local_time_bytes * request_.steps + v.offset;
    out.data = before(local + at * block_, (int64_t)first * steps * v.row);
  }
  return out;
}

Call Engine::call(const Op& op, const Image& image, uint8_t* local, int first, View* views) const {
  const Request& r = request_;
  Call c{};
  c.op = &op;
  c.in = views;
  for (int i = 0; i < op.inputs; ++i) views[i] = view(op.sources[i], image, local, first);
  if (op.output >= 0) c.out = view(op.output, image, local, first);
  if (op.second >= 0) c.second = view(op.second, image, local, first);
  c.steps = (int32_t)r.steps;
  c.first_step = r.first_step;
  c.x = r.x + image.number * r.numbers;
  c.x_stride = r.batch * r.numbers;
  if (op.state >= 0 && r.states != nullptr)
    c.state = r.states[op.state] + image.number * plan_->state_bytes[(size_t)op.state];
  if (op.kind == kKeep && r.kept[op.slot] != nullptr) {
    const Value& v = plan_->values[(size_t)op.sources[0]];
    const int64_t each = (int64_t)v.positions * v.channels;
    c.kept = r.kept[op.slot] + image.number * each;
    c.kept_stride = r.batch * each;
  }
  c.scratch = local + local_bytes_;
  c.scratch_bytes = scratch_bytes_;
  c.path = (int32_t)r.path;
  return c;
}

void Engine::run_block(const Region& region, int thread, const Image& image, int begin, int end) {
  const size_t t = (size_t)thread;
  for (int i = region.begin; i < region.end; ++i) {
    const Call c = call(plan_->ops[(size_t)i], image, own_[t].data(), begin, views_[t].data());
    if (!request_.profile) {
      operations_.run(operations_, c, begin, end);
      continue;
    }
    Counters& counters = counts_[t][(size_t)i];
    const int64_t from = nanoseconds();
    operations_.run(operations_, c, begin, end);
    counters.nanoseconds += nanoseconds() - from;
    operations_.count(operations_, c, begin, end, counters);
  }
}

void Engine::run_rows(const Region& region, int thread, const Image& image, int begin, int end) {
  const int step = region.blocks ? block_ : end - begin;
  for (int p = begin; p < end; p += step) run_block(region, thread, image, p, std::min(p + step, end));
}

// Each thread takes the same share of the rows of every region.
void Engine::work(int thread, Barrier& barrier) {
  const Request& r = request_;
  for (int64_t first = 0; first < r.batch; first += tile_) {
    const int64_t images = std::min<int64_t>(tile_, r.batch - first);
    for (const Region& region : regions_) {
      const int64_t rows = images * region.work;
      const int64_t begin = rows * thread / r.threads, end = rows * (thread + 1) / r.threads;
      for (int64_t at = begin; at < end;) {
        const int64_t image = at / region.work, last = std::min(end, (image + 1) * region.work);
        const Image it{arena_.data() + image * image_bytes_, first + image};
        run_rows(region, thread, it, (int)(at - image * region.work), (int)(last - image * region.work));
        at = last;
      }
      barrier.wait();
    }
  }
}

void Engine::run(const Request& request) {
  std::lock_guard<std::mutex> lock(mutex_);
  check(request);
  make_room(request);
  team_.run((int)request.threads,
            [](void* self, int thread, Barrier& barrier) { static_cast<Engine*>(self)->work(thread, barrier); }, this);
  counters_.assign(plan_->ops.size(), Counters{});
  for (size_t t = 0; t < (size_t)request.threads; ++t)
    for (size_t i = 0; i < counters_.size(); ++i) add(counters_[i], counts_[t][i]);
}

}  // namespace ptq
