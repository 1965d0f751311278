#include "tap_runs.h"

#include <cstddef>

using std::size_t;

namespace ptq {
namespace hot {
namespace {

struct Reader {
  int32_t tap, to;
};

// Readers of every input position, by tap.
struct Readers {
  std::vector<int32_t> start;
  std::vector<Reader> all;

  Readers(const int32_t* table, int positions, int taps, int in_positions) : start((size_t)in_positions + 1, 0) {
    const int64_t entries = (int64_t)positions * taps;
    for (int64_t i = 0; i < entries; ++i)
      if (table[i] >= 0) ++start[(size_t)table[i] + 1];
    for (size_t p = 1; p < start.size(); ++p) start[p] += start[p - 1];
    all.resize((size_t)start.back());
    std::vector<int32_t> next(start);
    for (int tap = 0; tap < taps; ++tap)
      for (int p = 0; p < positions; ++p) {
        const int from = table[(int64_t)p * taps + tap];
        if (from >= 0) all[(size_t)next[(size_t)from]++] = {tap, p};
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

// The runs of every class, by its lowest tap.
std::vector<std::vector<Draft>> draft_runs(const Readers& readers, int in_positions, const std::vector<int>& label) {
  std::vector<std::vector<Draft>> all(label.size());
  for (int p = 0; p < in_positions; ++p) {
    const Reader* read_by = readers.of(p);
    const int n = readers.count(p);
    if (n == 0) continue;
    std::vector<Draft>& runs = all[(size_t)label[(size_t)read_by[0].tap]];
    bool taken = false;
    for (int i = (int)runs.size() - 1, looks = 0; !taken && i >= 0 && looks < kLook; --i, ++looks)
      taken = runs[(size_t)i].takes(p, read_by, n);
    if (!taken) runs.push_back({p, 1, 1, 1, n, read_by});
  }
  return all;
}

}  // namespace

std::vector<int32_t> make_runs(const int32_t* table, int positions, int taps, int in_positions) {
  const Readers readers(table, positions, taps, in_positions);
  const std::vector<int> label = class_labels(readers, taps, in_positions);
  const auto drafts = draft_runs(readers, in_positions, label);
  const Classes classes(label);
  const std::vector<int32_t>& order = classes.order;
  std::vector<int32_t> class_start(1, 0), run_start(1, 0), numbers, rank((size_t)taps);
  for (int i = 0; i < taps; ++i) rank[(size_t)order[(size_t)i]] = i;
  for (int c = 0; c < taps; ++c) {
    if (label[(size_t)c] != c) continue;
    class_start.push_back(classes.start[(size_t)c + 1]);
    for (const Draft& run : drafts[(size_t)c]) {
      numbers.insert(numbers.end(), {run.first, run.step, run.count, run.out_step, run.readers});
      for (int i = 0; i < run.readers; ++i)
        numbers.insert(numbers.end(), {rank[(size_t)run.all[i].tap], run.all[i].to});
    }
    run_start.push_back((int32_t)numbers.size());
  }
  std::vector<int32_t> out(1, (int32_t)class_start.size() - 1);
  class_start.resize((size_t)taps + 1), run_start.resize((size_t)taps + 1);
  const std::vector<int32_t>* const parts[] = {&class_start, &order, &run_start, &numbers};
  for (const auto* part : parts) out.insert(out.end(), part->begin(), part->end());
  return out;
}

}  // namespace hot
}  // namespace ptq
