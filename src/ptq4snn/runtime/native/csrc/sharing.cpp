// How the threads of a call share its work: images, rows of one image, or channels.

#include "engine.h"

#include "layer.h"

#include <algorithm>

namespace ptq {

namespace {

constexpr int64_t kSums = 9;  // that a projection by events keeps in registers

// Whether an operation makes one word of channels from the same word of its region's values, in kernels that take
// words: projections with neurons that keep nothing else, sums of spikes.
bool goes_by_words(const Plan& plan, const Op& op) {
  const auto format = [&](int32_t value) { return plan.values[(size_t)value].format; };
  if (op.kind == kProjectNeuron) return op.project.groups == 1 && op.second < 0 && !op.neuron.dither;
  const bool sum =
      op.kind == kCombine && op.inputs == 2 && !op.constant && op.coefficients[0] == 1 && op.coefficients[1] == 1;
  return sum && is_planes(format(op.output)) && is_planes(format(op.sources[0])) && is_planes(format(op.sources[1]));
}

// Whether the states of some words can be read and written beside those of others: fields of one width in their order,
// in lines of their own.
bool states_go_by_words(const Op& op, int64_t words) {
  if (op.state < 0) return true;
  const Fields& f = op.fields;
  for (int i = 0; i < kWidthCount && !f.order && !f.zero; ++i)
    if (f.widths[i] == f.count) return f.count % 64 == 0 && kWidths[i] % 4 == 0 && kWidths[i] * words % 8 == 0;
  return false;
}

// Taps of a projection that can meet at one input position.
int64_t meeting_taps(const hot::Window& w, int64_t taps) {
  for (int a = 0; a < w.rank; ++a) taps = (taps + w.axes[a].stride - 1) / w.axes[a].stride;
  return taps;
}

}  // namespace

// Words of the channels of operations that all go by words, at least one of them with weights; else 0.
int words_of_region(const Plan& plan, int begin, int end) {
  int64_t words = 0;
  bool weights = false;
  for (int i = begin; i < end; ++i) {
    const Op& op = plan.ops[(size_t)i];
    if (op.kind == kKeep) continue;  // if nobody asks for it
    if (!goes_by_words(plan, op)) return 0;
    const int64_t own = words_of(plan.values[(size_t)op.output].channels);
    if (words > 0 && own != words) return 0;
    words = own, weights = weights || op.kind == kProjectNeuron;
  }
  // what a projection of the region reads is all there: it comes from outside
  for (int i = begin; i < end && weights; ++i)
    for (int j = begin; j < i; ++j)
      if (plan.ops[(size_t)i].kind == kProjectNeuron && plan.ops[(size_t)i].sources[0] == plan.ops[(size_t)j].output)
        return 0;
  return weights ? (int)words : 0;
}

// Thread 0, which is the caller's, asks; the others hear of it. A phase lies between two barriers: all threads end
// behind the same one, that of the phase in which it was asked.
bool Engine::stopped(int thread, int64_t phase) {
  if (thread == 0 && stop_.load(std::memory_order_relaxed) == INT64_MAX && asking_->cancelled())
    stop_.store(phase, std::memory_order_release);
  return stop_.load(std::memory_order_acquire) != INT64_MAX;
}

// Rows [begin, end) of the images from `first` on.
void Engine::work_on_rows(const Region& region, int thread, int64_t phase, const Image& first, int64_t begin,
                          int64_t end) {
  for (int64_t at = begin; at < end && !stopped(thread, phase);) {
    const int64_t number = at / region.work, before = number * region.work;
    const Image image{first.memory + number * image_bytes_, first.number + number, 0, first.step};
    const int64_t whole = at == before ? std::min<int64_t>((end - at) / region.work, region.images) : 0;
    const int64_t last = whole > 1 ? at + whole * region.work : std::min(end, before + region.work);
    if (whole > 1)
      run_images(region, thread, image, (int)whole);
    else
      run_rows(region, thread, phase, image, (int)(at - before), (int)(last - before));
    at = last;
  }
}

// Whether threads share the channels of a region: every weight is then expanded by one of them, not by all. Where its
// largest projection has taps and words enough for the sums that the kernels keep at once.
bool Engine::splits_words(const Region& region) const {
  if (request_.threads == 1 || region.words == 0 || region.words % request_.threads != 0) return false;
  if (expanded_.bytes() > 0) return false;
  int64_t most = 0;
  bool fills = false;
  for (int i = region.begin; i < region.end; ++i) {
    const Op& op = plan_->ops[(size_t)i];
    const Projection& w = op.project;
    if (op.kind == kKeep && request_.kept[op.slot] != nullptr) return false;
    if (request_.states != nullptr && !states_go_by_words(op, region.words / request_.threads)) return false;
    if (op.kind != kProjectNeuron || (int64_t)w.taps * w.cin < most) continue;
    most = (int64_t)w.taps * w.cin;
    fills = meeting_taps(w.window, w.taps) * region.words / request_.threads >= kSums;
  }
  return fills;
}

// Where the share of a thread begins among the rows of one image: shares of whole lines, that cost about the same.
// Spikes are not everywhere as many; what a row costs besides them is worth kOfRow of them for each word and step.
int Engine::share(const Region& region, const Image& image, int64_t thread) const {
  constexpr int kSegments = 64, kOfRow = 16;
  const int64_t threads = request_.threads, even = region.work * thread / threads;
  const Op& op = plan_->ops[(size_t)region.begin];
  const hot::Window& w = op.project.window;
  if (thread == 0 || thread == threads || !takes_images(op) || w.rank < 2 || w.axes[0].out < 2 * threads)
    return (int)even;
  const Value& in = plan_->values[(size_t)op.sources[0]];
  if (!is_planes(in.format) || in.place != kArena) return (int)even;
  const View v = view(region, op.sources[0], image, nullptr, 0);
  const int64_t words = words_of(v.channels), segments = std::min(kSegments, w.axes[0].size);
  int64_t before[kSegments + 1] = {};
  for (int64_t i = 0; i < segments; ++i) {
    const int64_t from = v.positions * i / segments, to = v.positions * (i + 1) / segments;
    const hot::Spikes part = {reinterpret_cast<const uint64_t*>(v.data + from * v.steps * v.row),
                              (int)(to - from),
                              v.steps,
                              v.format,
                              (int)words,
                              v.channels};
    before[i + 1] = before[i] + operations_.hot->sum_spikes(part) + (to - from) * v.steps * words * kOfRow;
  }
  const int64_t wanted = before[segments] * thread / threads, line = region.work / w.axes[0].out;
  int64_t i = 0;
  while (before[i + 1] < wanted) ++i;
  const double inside = (double)(wanted - before[i]) / (double)(before[i + 1] - before[i]);
  const int64_t lines = (int64_t)(((double)i + inside) / (double)segments * w.axes[0].out + 0.5);
  return (int)(std::clamp<int64_t>(lines, 0, w.axes[0].out) * line);
}

// With an image or more for each thread, each takes the same share of the rows. Else threads share channels, or rows
// that cost about the same.
void Engine::work_on(const Region& region, int thread, int64_t phase, int64_t first, int64_t images, int64_t step) {
  const int64_t threads = request_.threads, rows = images * region.work;
  const Image image{arena_.data(), first, 0, step};
  if (images < threads && splits_words(region)) {
    const int words = (int)(region.words / threads);
    for (int64_t i = 0; i < images; ++i)
      run_rows(region, thread, phase, {image.memory + i * image_bytes_, first + i, 0, step}, 0, region.work,
               thread * words, words);
    return;
  }
  if (images == 1 && threads > 1)
    return work_on_rows(region, thread, phase, image, share(region, image, thread), share(region, image, thread + 1));
  work_on_rows(region, thread, phase, image, rows * thread / threads, rows * (thread + 1) / threads);
}

// Regions one after the other; those of a loop for one step after the other.
void Engine::work(int thread, Barrier& barrier) {
  int64_t phase = 0;
  for (int64_t first = 0; first < request_.batch; first += tile_) {
    const int64_t images = std::min<int64_t>(tile_, request_.batch - first);
    for (size_t begin = 0, end = 1; begin < regions_.size(); begin = end) {
      const int loop = regions_[begin].loop;
      end = begin + 1;
      while (loop >= 0 && end < regions_.size() && regions_[end].loop == loop) ++end;
      for (int64_t step = 0; step < (loop < 0 ? 1 : request_.steps); ++step)
        for (size_t i = begin; i < end; ++i) {
          work_on(regions_[i], thread, phase, first, images, step);
          barrier.wait();
          if (stop_.load(std::memory_order_acquire) <= phase++) return;
        }
    }
  }
}

}  // namespace ptq
