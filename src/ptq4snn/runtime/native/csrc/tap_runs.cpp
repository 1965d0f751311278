#include "tap_runs.h"

#include <cstddef>
#include <map>
#include <memory>
#include <utility>

using std::size_t;

namespace ptq {
namespace hot {
namespace {

struct Reader {
  int32_t tap, to;
};

// Readers of every position of an axis, by tap.
struct Readers {
  std::vector<int32_t> start;
  std::vector<Reader> all;

  explicit Readers(const Axis& x) : start((size_t)x.size + 1, 0) {
    each(x, [&](int from, int, int) { ++start[(size_t)from + 1]; });
    for (size_t p = 1; p < start.size(); ++p) start[p] += start[p - 1];
    all.resize((size_t)start.back());
    std::vector<int32_t> next(start);
    each(x, [&](int from, int tap, int to) { all[(size_t)next[(size_t)from]++] = {tap, to}; });
  }

  template <class F>
  static void each(const Axis& x, const F& f) {
    for (int tap = 0; tap < x.kernel; ++tap)
      for (int to = 0; to < x.out; ++to) {
        const int from = to * x.stride - x.before + tap * x.dilation;
        if (from >= 0 && from < x.size) f(from, tap, to);
      }
  }

  int count(int p) const { return start[(size_t)p + 1] - start[(size_t)p]; }
  const Reader* of(int p) const { return all.data() + start[(size_t)p]; }
};

// The lowest tap of what `tap` was joined with so far; the way there is halved for whoever comes next.
int lowest(std::vector<int>& label, int tap) {
  while (label[(size_t)tap] != tap) {
    label[(size_t)tap] = label[(size_t)label[(size_t)tap]];
    tap = label[(size_t)tap];
  }
  return tap;
}

// The lowest tap of the class of every tap: taps that read one position are of one class.
std::vector<int> class_labels(const Readers& readers, int taps, int in_positions) {
  std::vector<int> label((size_t)taps);
  for (int i = 0; i < taps; ++i) label[(size_t)i] = i;
  for (int p = 0; p < in_positions; ++p)
    for (int i = 1; i < readers.count(p); ++i) {
      const int a = lowest(label, readers.of(p)[i - 1].tap), b = lowest(label, readers.of(p)[i].tap);
      label[(size_t)(a < b ? b : a)] = a < b ? a : b;
    }
  for (int i = 0; i < taps; ++i) label[(size_t)i] = label[(size_t)label[(size_t)i]];  // lower ones are done
  return label;
}

// Taps by their class, in their order: those of class c are order[start[c]] ... order[start[c + 1] - 1].
struct Classes {
  std::vector<int32_t> start, order;

  explicit Classes(const std::vector<int>& label) : start(label.size() + 1, 0), order(label.size()) {
    for (int l : label) ++start[(size_t)l + 1];
    for (size_t c = 1; c < start.size(); ++c) start[c] += start[c - 1];
    std::vector<int32_t> next(start);
    for (size_t tap = 0; tap < label.size(); ++tap) order[(size_t)next[(size_t)label[tap]]++] = (int32_t)tap;
  }
};

struct Draft {
  int32_t first, step, count, out_step, readers;
  const Reader* all;

  // Whether position p goes on with this run; then it does. A run of one position may go on anywhere.
  bool takes(int p, const Reader* read_by, int n) {
    if (n != readers || (count > 1 && p != first + count * step)) return false;
    const int32_t moved = read_by[0].to - all[0].to;
    if (count > 1 && moved != count * out_step) return false;
    for (int i = 0; i < n; ++i)
      if (read_by[i].tap != all[i].tap || read_by[i].to - all[i].to != moved) return false;
    if (count == 1) step = p - first, out_step = moved;
    ++count;
    return true;
  }
};

constexpr int kLook = 8;  // how many runs back one may be gone on with

// The runs of an axis.
std::vector<Draft> draft_runs(const Readers& readers, int in_positions) {
  std::vector<Draft> runs;
  for (int p = 0; p < in_positions; ++p) {
    const Reader* read_by = readers.of(p);
    const int n = readers.count(p);
    if (n == 0) continue;
    bool taken = false;
    for (int i = (int)runs.size() - 1, looks = 0; !taken && i >= 0 && looks < kLook; --i, ++looks)
      taken = runs[(size_t)i].takes(p, read_by, n);
    if (!taken) runs.push_back({p, 1, 1, 1, n, read_by});
  }
  return runs;
}

// One axis: the class of every tap, and the runs.
struct AxisRuns {
  Axis axis;
  Readers readers;
  std::vector<int> label;
  std::vector<Draft> runs;

  explicit AxisRuns(const Axis& x)
      : axis(x), readers(x), label(class_labels(readers, x.kernel, x.size)), runs(draft_runs(readers, x.size)) {}
  AxisRuns(const AxisRuns&) = delete;
};

constexpr Axis kNone = {1, 1, 1, 0, 1, 1};  // an axis of one position

// A position of the axes before the last two, or a row of them: its number, its readers, the class of these.
struct Outer {
  int32_t at, tap_class;
  std::vector<Reader> readers;
};

// Readers of a position of two axes are those of one with those of the other.
std::vector<Reader> both(const std::vector<Reader>& outer, const Axis& x, const Draft& run, int moved) {
  std::vector<Reader> out;
  for (const Reader& a : outer)
    for (int i = 0; i < run.readers; ++i)
      out.push_back({a.tap * x.kernel + run.all[i].tap, a.to * x.out + run.all[i].to + moved});
  return out;
}

// All positions of one more axis.
std::vector<Outer> unrolled(const std::vector<Outer>& outer, const AxisRuns& a) {
  std::vector<Outer> out;
  for (const Outer& o : outer)
    for (const Draft& run : a.runs)
      for (int i = 0; i < run.count; ++i)
        out.push_back({o.at * a.axis.size + run.first + i * run.step,
                       o.tap_class * a.axis.kernel + a.label[(size_t)run.all[0].tap],
                       both(o.readers, a.axis, run, i * run.out_step)});
  return out;
}

// The runs of the last two axes beside one position of the others; numbers of their taps are not ranks yet.
struct Product {
  const AxisRuns &rows, &columns;
  std::map<int, std::vector<int32_t>> of_class;  // by its lowest tap

  void add(const Outer& outer) {
    for (const Draft& y : rows.runs)
      for (const Draft& x : columns.runs) add(outer, y, x);
  }

  void add(const Outer& outer, const Draft& y, const Draft& x) {
    const Axis &a = rows.axis, &b = columns.axis;
    const int lowest = (outer.tap_class * a.kernel + rows.label[(size_t)y.all[0].tap]) * b.kernel +
                       columns.label[(size_t)x.all[0].tap];
    const std::vector<Reader> readers = both(both(outer.readers, a, y, 0), b, x, 0);
    std::vector<int32_t>& out = of_class[lowest];
    out.push_back((outer.at * a.size + y.first) * b.size + x.first);
    if (x.count > 1)
      out.insert(out.end(), {x.step, x.count, x.out_step, y.count, y.step * b.size, y.out_step * b.out});
    else  // a column
      out.insert(out.end(), {y.step * b.size, y.count, y.out_step * b.out, 1, 0, 0});
    out.push_back((int32_t)readers.size());
    for (const Reader& r : readers) out.insert(out.end(), {r.tap, r.to});
  }
};

// Numbers of taps become their ranks.
void rank_readers(std::vector<int32_t>& runs, const std::vector<int32_t>& rank) {
  constexpr size_t kFields = 8;  // before the readers, the last one their number
  for (size_t at = 0; at < runs.size();) {
    const size_t readers = (size_t)runs[at + kFields - 1];
    at += kFields;
    for (size_t i = 0; i < readers; ++i, at += 2) runs[at] = rank[(size_t)runs[at]];
  }
}

// The class of every tap of the window, by its lowest one.
std::vector<int> all_labels(const std::vector<std::unique_ptr<AxisRuns>>& axes) {
  std::vector<int> out(1, 0);
  for (const auto& a : axes) {
    std::vector<int> longer;
    for (int before : out)
      for (int l : a->label) longer.push_back(before * a->axis.kernel + l);
    out = std::move(longer);
  }
  return out;
}

}  // namespace

std::vector<int32_t> make_runs(const Window& window) {
  std::vector<std::unique_ptr<AxisRuns>> axes;
  if (window.rank == 1) axes.push_back(std::make_unique<AxisRuns>(kNone));
  for (int a = 0; a < window.rank; ++a) axes.push_back(std::make_unique<AxisRuns>(window.axes[a]));
  std::vector<Outer> outer = {{0, 0, {{0, 0}}}};
  for (size_t a = 0; a + 2 < axes.size(); ++a) outer = unrolled(outer, *axes[a]);
  Product product = {*axes[axes.size() - 2], *axes.back(), {}};
  for (const Outer& o : outer) product.add(o);
  const std::vector<int> label = all_labels(axes);
  const size_t taps = label.size();
  const Classes classes(label);
  std::vector<int32_t> rank(taps), class_start(1, 0), run_start(1, 0), numbers;
  for (size_t i = 0; i < taps; ++i) rank[(size_t)classes.order[i]] = (int32_t)i;
  for (size_t c = 0; c < taps; ++c) {
    if (label[c] != (int)c) continue;
    std::vector<int32_t>& runs = product.of_class[(int)c];
    rank_readers(runs, rank);
    numbers.insert(numbers.end(), runs.begin(), runs.end());
    class_start.push_back(classes.start[c + 1]);
    run_start.push_back((int32_t)numbers.size());
  }
  std::vector<int32_t> out(1, (int32_t)class_start.size() - 1);
  class_start.resize(taps + 1), run_start.resize(taps + 1);
  const std::vector<int32_t>* const parts[] = {&class_start, &classes.order, &run_start, &numbers};
  for (const auto* part : parts) out.insert(out.end(), part->begin(), part->end());
  return out;
}

}  // namespace hot
}  // namespace ptq
