// Random layers against brute force, for every ISA level of this machine. Prints the number of cases; exits with 1 at
// the first difference.
//     kernels_test [seed] [cases]
#include <cstdio>
#include <cstring>

#include "cases.h"

using namespace oracle;

static const Images kOne = {1, 0, 0, 0, 0};

static uint64_t g_case;

static void expect(bool ok, const char* what, const Kernels& k) {
  if (ok) return;
  std::fprintf(stderr, "FAILED: %s, level %s, case %llu\n", what, k.name, (unsigned long long)g_case);
  std::exit(1);
}

// [0, n) in one or two ranges, as threads would take it.
struct Split {
  int count, at[3];
  Split(Random& r, int n) {
    const int middle = (int)r.between(0, n);
    count = middle > 0 && middle < n ? 2 : 1;
    at[0] = 0, at[1] = count == 2 ? middle : n, at[2] = n;
  }
};

struct Case {
  Random& r;
  std::unique_ptr<Input> input;
  Projection p;
  int steps;
  bool narrow;
  int64_t scale;

  Case(Random& random, bool grouped) : r(random) {
    steps = (int)r.between(1, 5);
    const bool image = r.chance(0.3);
    const int height = image ? (int)r.between(5, 7) : 1, width = (int)(image ? r.between(5, 8) : r.between(1, 6));
    const int in_steps = r.chance(0.2) ? 1 : steps, in_positions = height * width;
    const int each =
        grouped ? (int)r.of({1, 1, 2, 3})
                : (int)(image ? r.of({1, 3, 8, 16, 48, 64, 65, 130}) : r.of({1, 3, 5, 31, 64, 65, 100, 128, 300, 513}));
    const int groups = grouped ? (int)r.of({1, 3, 8, 16, 32, 64, 70}) : 1;
    const int bits = (int)r.of({2, 3, 4, 4, 4, 8});
    const int cout =
        grouped ? groups * (int)r.of({1, 1, 2})
                : (int)(image ? r.of({1, 8, 16, 40, 64, 70, 130}) : r.of({1, 8, 10, 17, 48, 64, 65, 100, 128, 200}));
    if (r.chance(0.65))
      input.reset(
          new Input(r, in_positions, in_steps, each * groups, (int)r.between(1, 3), r.of({0.0, 0.02, 0.1, 0.3, 1.0})));
    else
      input.reset(new Input(r, in_positions, in_steps, each * groups,
                            r.of({Type::U8, Type::S8, Type::I8, Type::I16, Type::I32}),
                            std::max<int64_t>(255, (1 << 27) / (25 * each << (bits - 1)))));
    p = random_projection(r, height, width, each * groups, cout, groups, bits);
    if (input->source.rows) p.shift = std::min(p.shift, 3);  // y fits int32
    scale = 1, narrow = true;
    for (int i = 0; i < p.positions; ++i)
      for (int t = 0; t < in_steps; ++t)
        for (int o = 0; o < p.cout; ++o) {
          const int64_t s = p.sum(input->values, i, t, o), y = p.current(input->values, i, t, o);
          narrow = narrow && s >= -32768 && s <= 32767;
          if (y > scale) scale = y;
          if (-y > scale) scale = -y;
        }
    narrow = narrow && r.chance(0.8);
  }
};

static void check_rows(Case& c, const Kernels& k, Path path, bool grouped) {
  const Type type = c.p.m.empty() ? Type::I32 : c.p.hi == 127 ? (c.r.chance(0.5) ? Type::S8 : Type::I8) : Type::I16;
  PackedLayer packed(c.p, c.narrow, path, c.r.chance(0.9));
  if (c.p.groups == 1 && c.r.chance(0.3)) packed.expand(k);
  const Grouped g = {packed.layer, c.p.groups};
  std::vector<uint8_t> out((size_t)c.p.positions * c.steps * c.p.cout * size_of(type));
  const RowsOut rows = {out.data(), type, c.steps, c.p.cout};
  const Split split(c.r, c.p.positions);
  for (int i = 0; i < split.count; ++i) {
    const int begin = split.at[i], end = split.at[i + 1];
    const size_t bytes = grouped ? k.grouped_scratch(g, c.input->source, c.steps, end - begin)
                                 : k.project_scratch(packed.layer, c.input->source, c.steps, end - begin, false, 1);
    const Memory scratch = aligned(bytes);
    const Scratch s = {scratch.get(), bytes};
    grouped ? k.grouped_rows(g, c.input->source, c.steps, rows, begin, end, s)
            : k.project_rows(packed.layer, c.input->source, c.steps, rows, kOne, begin, end, s);
  }
  for (int i = 0; i < c.p.positions; ++i)
    for (int t = 0; t < c.steps; ++t)
      for (int o = 0; o < c.p.cout; ++o) {
        const int64_t want = c.p.value(c.input->values, i, t, o);
        const int64_t got = get_value(out, ((size_t)i * c.steps + t) * c.p.cout + o, type);
        expect(got == want, grouped ? "grouped_rows" : "project_rows", k);
      }
}

// Several images in one call, with room between them; every second one is blank.
static void check_images(Case& c, const Kernels& k, Path path) {
  const Type type = c.p.m.empty() ? Type::I32 : c.p.hi == 127 ? Type::S8 : Type::I16;
  PackedLayer packed(c.p, c.narrow, path, c.r.chance(0.9));
  if (c.p.groups == 1 && c.r.chance(0.3)) packed.expand(k);
  const int count = (int)c.r.between(2, 5);
  const bool spikes = c.input->source.spikes != nullptr;
  const size_t in = spikes ? c.input->words.size() * 8 : c.input->bytes.size(), in_step = (in + 63) / 64 * 64 + 64;
  const size_t out_step = (size_t)c.p.positions * c.steps * c.p.cout * size_of(type) + 8;
  const Values blank(c.input->values.positions, c.input->values.steps, c.input->values.channels);
  const Memory images = aligned(in_step * count);
  for (int i = 0; i < count; ++i) {
    std::vector<uint8_t> zeros(in, 0);
    for (size_t j = 0; !spikes && j < blank.data.size(); ++j) put_value(zeros, j, c.input->rows.type, 0);
    const void* data = i % 2 ? zeros.data() : spikes ? (const void*)c.input->words.data() : c.input->bytes.data();
    std::memcpy(static_cast<char*>(images.get()) + i * in_step, data, in);
  }
  Spikes s = c.input->spikes;
  Rows r = c.input->rows;
  s.data = reinterpret_cast<const uint64_t*>(images.get()), r.data = images.get();
  const Source source = {spikes ? &s : nullptr, spikes ? nullptr : &r};
  const size_t bytes = k.project_scratch(packed.layer, source, c.steps, c.p.positions, false, count);
  const Memory scratch = aligned(bytes);
  std::vector<uint8_t> out(out_step * count);
  k.project_rows(packed.layer, source, c.steps, RowsOut{out.data(), type, c.steps, c.p.cout},
                 Images{count, (int64_t)in_step, (int64_t)out_step, 0, 0}, 0, c.p.positions,
                 Scratch{scratch.get(), bytes});
  for (int image = 0; image < count; ++image) {
    const std::vector<uint8_t> one(out.begin() + image * out_step, out.begin() + (image + 1) * out_step);
    for (int i = 0; i < c.p.positions; ++i)
      for (int t = 0; t < c.steps; ++t)
        for (int o = 0; o < c.p.cout; ++o) {
          const int64_t want = c.p.value(image % 2 ? blank : c.input->values, i, t, o);
          expect(get_value(one, ((size_t)i * c.steps + t) * c.p.cout + o, type) == want, "project_rows of images", k);
        }
  }
}

// Spikes, potentials and states of `cells` driven by numbers.
struct Truth {
  Values spikes, potential, state;  // state after the last step
  int64_t bound;

  template <class F>
  Truth(const Cells& n, int positions, int steps, int first_step, const Values* begin, F current)
      : spikes(positions, steps, n.channels),
        potential(positions, steps, n.channels),
        state(positions, 1, n.channels),
        bound(1) {
    for (int p = 0; p < positions; ++p)
      for (int c = 0; c < n.channels; ++c) {
        int64_t v = begin ? begin->at(p, 0, c) : 0;
        for (int t = 0; t < steps; ++t) {
          bool fires;
          const int64_t a = n.step(current(p, t, c), v, p, c, first_step + t, fires);
          spikes.at(p, steps > 1 ? t : 0, c) = fires;
          potential.at(p, t, c) = a;
          if (a > bound) bound = a;
          if (-a > bound) bound = -a;
        }
        state.at(p, 0, c) = v;
      }
  }
};

struct Outputs {
  std::vector<uint64_t> spikes;
  std::vector<int32_t> potential;
  NeuronOut out;

  Outputs(int positions, int steps, int channels, bool with_potential)
      : spikes((size_t)positions * steps * ((channels + 63) / 64), ~0ull),
        potential(with_potential ? (size_t)positions * steps * channels : 0) {
    out = {spikes.data(), with_potential ? potential.data() : nullptr};
  }
  Outputs(const Outputs&) = delete;

  void compare(const Truth& truth, const char* what, const Kernels& k) const {
    expect(spikes == pack_planes(truth.spikes, 1), what, k);
    for (size_t i = 0; i < potential.size(); ++i) expect(potential[i] == truth.potential.data[i], "potential", k);
  }
};

static void compare_state(PackedState& got, const Truth& truth, const Values& begin, int positions, const Kernels& k) {
  const std::vector<uint8_t> data = got.data, left = got.left;
  if (!left.empty()) {
    for (int p = 0; p < positions; ++p) got.put(p, &begin.data[(size_t)p * begin.channels]);
    expect(data == got.data, "state that the call began with", k);
  }
  for (int p = 0; p < positions; ++p) got.put(p, &truth.state.data[(size_t)p * truth.state.channels]);
  expect((left.empty() ? data : left) == got.data, "state", k);
}

static Values random_state(Random& r, const Cells& n, int positions) {
  Values v(positions, 1, n.channels);
  for (int p = 0; p < positions; ++p)
    for (int c = 0; c < n.channels; ++c) v.at(p, 0, c) = r.between(n.lo[c], n.hi[c]);
  return v;
}

template <class Call>
static void check_neuron(Case& c, const Kernels& k, const Cells& cells, int positions, const Truth& truth,
                         const Values* begin, const char* what, Call call) {
  PackedState state(cells, positions, c.r.chance(0.5));
  for (int p = 0; begin && p < positions; ++p) state.put(p, &begin->data[(size_t)p * cells.channels]);
  Outputs out(positions, c.steps, cells.channels, c.r.chance(0.3));
  const Split split(c.r, positions);
  for (int i = 0; i < split.count; ++i) call(out.out, begin ? &state.state : nullptr, split.at[i], split.at[i + 1]);
  out.compare(truth, what, k);
  if (begin) compare_state(state, truth, *begin, positions, k);
}

static void check_project_neuron(Case& c, const Kernels& k, Path path, const Cells& cells, int first_step,
                                 const Truth& truth, const Values* begin) {
  PackedLayer packed(c.p, c.narrow, path, c.r.chance(0.9));
  const Neuron n = neuron_of(cells, c.r.chance(0.7) ? truth.bound : 0);
  check_neuron(c, k, cells, c.p.positions, truth, begin, "project_neuron",
               [&](const NeuronOut& out, const State* state, int from, int to) {
                 const size_t bytes = k.project_scratch(packed.layer, c.input->source, c.steps, to - from, state, 1);
                 const Memory scratch = aligned(bytes);
                 k.project_neuron(packed.layer, n, c.input->source, c.steps, first_step, out, state, kOne, from, to,
                                  Scratch{scratch.get(), bytes});
               });
}

static void check_neuron_rows(Case& c, const Kernels& k) {
  if (c.input->source.spikes) return;
  const Values& x = c.input->values;
  const Cells cells = random_cells(c.r, x.channels, 300, x.positions);
  const Values start = random_state(c.r, cells, x.positions);
  const Values* begin = c.r.chance(0.5) ? &start : nullptr;
  const int first_step = (int)c.r.between(0, 20);
  const Truth truth(cells, x.positions, c.steps, first_step, begin,
                    [&](int p, int t, int ch) { return x.at(p, t, ch); });
  const Neuron n = neuron_of(cells, c.r.chance(0.7) ? truth.bound : 0);
  check_neuron(
      c, k, cells, x.positions, truth, begin, "neuron_rows",
      [&](const NeuronOut& out, const State* state, int from, int to) {
        const size_t bytes = k.neuron_scratch(n, c.steps, to - from, state);
        const Memory scratch = aligned(bytes);
        k.neuron_rows(n, c.input->rows, c.steps, first_step, out, state, from, to, Scratch{scratch.get(), bytes});
      });
}

static void check_words(Random& r, const Kernels& k) {
  const int positions = (int)r.between(1, 5), steps = (int)r.between(1, 3), channels = (int)r.of({1, 63, 64, 65, 200});
  const int pa = (int)r.between(1, 2), pb = (int)r.between(1, 2);
  const Input a(r, r.chance(0.2) ? 1 : positions, r.chance(0.2) ? 1 : steps, channels, pa, 0.3);
  const Input b(r, positions, steps, channels, pb, 0.3);
  const int words = (channels + 63) / 64, planes = pa == 2 || pb == 2 ? 3 : 2;
  Values sum(positions, steps, channels), both(positions, steps, channels), without(positions, steps, channels);
  const auto at = [&](const Values& v, int p, int t, int c) { return v.at(v.positions > 1 ? p : 0, t, c); };
  for (int p = 0; p < positions; ++p)
    for (int t = 0; t < steps; ++t)
      for (int c = 0; c < channels; ++c) {
        const int64_t x = at(a.values, p, t, c), y = at(b.values, p, t, c);
        sum.at(p, t, c) = x + y, both.at(p, t, c) = x & y & 1, without.at(p, t, c) = x & ~y & 1;
      }
  std::vector<uint64_t> out((size_t)positions * steps * planes * words, ~0ull);
  k.add_spikes(a.spikes, b.spikes, steps, planes, out.data(), 0, positions, 0, a.spikes.words);
  expect(out == pack_planes(sum, planes), "add_spikes", k);
  if (pa == 1 && pb == 1) {
    std::vector<uint64_t> o((size_t)positions * steps * words, ~0ull);
    k.logic_spikes(Logic::And, a.spikes, b.spikes, steps, o.data(), 0, positions);
    expect(o == pack_planes(both, 1), "logic_spikes", k);
    k.logic_spikes(Logic::AndNot, a.spikes, b.spikes, steps, o.data(), 0, positions);
    expect(o == pack_planes(without, 1), "logic_spikes", k);
  }
  int64_t total = 0;
  for (int64_t v : b.values.data) total += v;
  expect(k.sum_spikes(b.spikes) == total, "sum_spikes", k);
}

static void check_moves(Random& r, const Kernels& k) {
  const int positions = (int)r.between(1, 5), steps = (int)r.between(1, 3), channels = (int)r.of({1, 63, 64, 65, 200});
  const int planes = (int)r.between(1, 3);
  const Input x(r, positions, steps, channels, planes, 0.5);
  for (Type type : {Type::U8, Type::S8, Type::I8, Type::I16, Type::I32}) {
    std::vector<uint8_t> rows(x.values.data.size() * size_of(type));
    k.spikes_to_rows(x.spikes, RowsOut{rows.data(), type, steps, channels}, 0, positions);
    for (size_t i = 0; i < x.values.data.size(); ++i)
      expect(get_value(rows, i, type) == x.values.data[i], "spikes_to_rows", k);
    std::vector<uint64_t> words(x.words.size(), ~0ull);
    k.rows_to_spikes(Rows{rows.data(), type, positions, steps, channels}, planes, words.data(), 0, positions);
    expect(words == x.words, "rows_to_spikes", k);
  }
  Window window = {1, {random_axis(r, positions)}};
  const bool listed = r.chance(0.5);
  const int outputs = listed ? (int)r.between(1, 4) : window.axes[0].out, taps = listed ? 4 : window.axes[0].kernel;
  std::vector<int32_t> table = taps_of(window), room((size_t)taps);
  if (listed) table.clear();
  for (int i = 0; listed && i < outputs * taps; ++i) table.push_back((int32_t)r.between(-1, positions - 1));
  Values best(outputs, steps, channels);
  for (int p = 0; p < outputs; ++p)
    for (int i = 0; i < taps; ++i)
      for (int t = 0; t < steps; ++t)
        for (int c = 0; table[p * taps + i] >= 0 && c < channels; ++c)
          best.at(p, t, c) = std::max(best.at(p, t, c), x.values.at(table[p * taps + i], t, c));
  std::vector<uint64_t> out((size_t)outputs * steps * planes * x.spikes.words, ~0ull);
  const Taps read = {taps, listed ? nullptr : &window, listed ? table.data() : nullptr};
  k.max_pool(x.spikes, read, out.data(), 0, outputs, room.data());
  expect(out == pack_planes(best, planes), "max_pool", k);
}

static void run_case(uint64_t seed, const Kernels* const* levels, int count) {
  Random r(seed);
  Case plain(r, false), grouped(r, true);
  const Cells cells = random_cells(r, plain.p.cout, plain.scale, plain.p.positions);
  const Values start = random_state(r, cells, plain.p.positions);
  const Values* begin = r.chance(0.5) ? &start : nullptr;
  const int first_step = (int)r.between(0, 20);
  const Truth truth(cells, plain.p.positions, plain.steps, first_step, begin,
                    [&](int p, int t, int o) { return plain.p.current(plain.input->values, p, t, o); });
  if (r.chance(0.5)) add_rescale(r, plain.p, Type::I8), add_rescale(r, grouped.p, Type::I16);
  for (int i = 0; i < count; ++i) {
    const Kernels& k = *levels[i];
    for (Path path : {Path::Auto, Path::Event, Path::Dense}) {
      check_rows(plain, k, path, false);
      check_images(plain, k, path);
      if (plain.p.m.empty()) check_project_neuron(plain, k, path, cells, first_step, truth, begin);
    }
    check_rows(grouped, k, Path::Auto, true);
    check_neuron_rows(plain, k);
    check_words(r, k);
    check_moves(r, k);
  }
}

int main(int argc, char** argv) {
  const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const uint64_t cases = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 200;
  const Kernels* const* levels;
  const int count = kernel_levels(&levels);
  for (g_case = seed; g_case < seed + cases; ++g_case) run_case(g_case, levels, count);
  std::printf("%llu cases passed:", (unsigned long long)cases);
  for (int i = 0; i < count; ++i) std::printf(" %s", levels[i]->name);
  std::printf("\n");
  return 0;
}
