// Time of every layer of a SEW-ResNet18/CIFAR-shaped network, beside the machine's peak rate of byte additions measured
// in the same run. Build with tests/runtime/native/build.sh.
//     kernels_bench [level] [event|dense|auto] [narrow|wide] [fused|stream] [passes] [rates ...]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "network.h"

using namespace bench;

static double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

#if defined(__x86_64__)
#define PTQ_WIDE __attribute__((target("avx512f,avx512bw")))
typedef uint8_t Wide __attribute__((vector_size(64), aligned(1)));
#else
#define PTQ_WIDE
typedef uint8_t Wide __attribute__((vector_size(16), aligned(1)));
#endif

// Additions of rows that lie in the first-level cache, without lists: bytes a second.
PTQ_WIDE static double peak_adds(const uint8_t* rows, uint8_t* out) {
  double best = 0;
  for (int trial = 0; trial < 20; ++trial) {
    Wide a[8] = {};
    const int rounds = 2000, count = 16384 / (int)sizeof(Wide);
    const double start = now();
    for (int r = 0; r < rounds; ++r)
      for (int i = 0; i < count; i += 8)
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) a[j] += *reinterpret_cast<const Wide*>(rows + (size_t)(i + j) * sizeof(Wide));
    const double seconds = now() - start;
    for (int j = 0; j < 8; ++j) std::memcpy(out + j * sizeof(Wide), &a[j], sizeof(Wide));
    best = std::max(best, (double)rounds * count * (double)sizeof(Wide) / seconds);
  }
  return best;
}

static double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

static void bench_rate(const Kernels& k, Path path, bool narrow, bool stream, int passes, double rate, double peak) {
  const int T = stream ? 1 : 4;
  Network net = sew_resnet18(T);
  std::mt19937 random(7);
  for (auto& s : net) s->make(rate, narrow, path, random);
  size_t bytes = 0;
  for (auto& s : net) bytes = std::max(bytes, s->scratch(k, stream));
  const Aligned scratch(bytes);  // one for all layers, as an engine has
  std::vector<std::vector<double>> times(net.size() + 1);
  for (int i = 0; i < passes + 2; ++i) {
    double total = 0;
    for (size_t j = 0; j < net.size(); ++j) {
      const double start = now();
      net[j]->run(k, stream ? &net[j]->state : nullptr, scratch);
      const double seconds = now() - start;
      if (i >= 2) times[j].push_back(seconds);
      total += seconds;
    }
    if (i >= 2) times[net.size()].push_back(total);
  }
  std::printf("\n%s, firing %.0f %%, %s\n", k.name, rate * 100, stream ? "one step with packed state" : "T = 4 fused");
  std::printf("%-16s %9s %9s %8s %8s %7s\n", "layer", "min us", "median us", "M adds", "G adds/s", "of peak");
  double adds = 0;
  for (size_t j = 0; j < net.size(); ++j) {
    const double a = net[j]->events * net[j]->cout, least = *std::min_element(times[j].begin(), times[j].end());
    adds += a;
    std::printf("%-16s %9.1f %9.1f %8.1f %8.1f %6.0f%%\n", net[j]->name.c_str(), least * 1e6, median(times[j]) * 1e6,
                a * 1e-6, a / least * 1e-9, 100 * a / least / peak);
  }
  const std::vector<double>& all = times.back();
  const double least = *std::min_element(all.begin(), all.end());
  std::printf("%-16s %9.1f %9.1f %8.1f %8.1f %6.0f%%\n", "network", least * 1e6, median(all) * 1e6, adds * 1e-6,
              adds / least * 1e-9, 100 * adds / least / peak);
}

int main(int argc, char** argv) {
  const Kernels* const* levels;
  const int count = kernel_levels(&levels);
  const Kernels* k = levels[count - 1];
  if (argc > 1 && !(k = kernels(argv[1]))) return std::fprintf(stderr, "no level %s\n", argv[1]), 1;
  const std::string path = argc > 2 ? argv[2] : "auto", narrow = argc > 3 ? argv[3] : "narrow";
  const std::string mode = argc > 4 ? argv[4] : "fused";
  const int passes = argc > 5 ? std::atoi(argv[5]) : 30;
  std::vector<double> rates;
  for (int i = 6; i < argc; ++i) rates.push_back(std::atof(argv[i]));
  if (rates.empty()) rates = {0.05, 0.10, 0.15, 0.20};
  Aligned rows(16384), out(1024);
  std::memset(rows.data, 1, rows.bytes);
  const double peak = peak_adds(static_cast<const uint8_t*>(rows.data), static_cast<uint8_t*>(out.data));
  std::printf("peak %.0f G byte-adds/s\n", peak * 1e-9);
  for (double rate : rates)
    bench_rate(*k,
               path == "event"   ? Path::Event
               : path == "dense" ? Path::Dense
                                 : Path::Auto,
               narrow == "narrow", mode == "stream", passes, rate, peak);
  return 0;
}
