// What Python calls. Functions return 0, or write one sentence into `error`.
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>

#include "engine.h"
#include "layer.h"
#include "levels.h"

#ifndef PTQ_HASH
#define PTQ_HASH "unknown"
#endif

using namespace ptq;

namespace {

// One sentence into `out`, cut off where it does not fit.
void write_text(char* out, int64_t size, const char* text) {
  if (out != nullptr && size > 0) std::snprintf(out, (size_t)size, "%s", text);
}

template <class F>
int guarded(char* error, int64_t size, F&& f) {
  try {
    f();
    return 0;
  } catch (const std::exception& why) {
    write_text(error, size, why.what());
    return 1;
  }
}

Engine* engine_of(void* p) { return static_cast<Engine*>(p); }

}  // namespace

#define PTQ_API extern "C" __attribute__((visibility("default")))

// Of the sources and of how they were built.
PTQ_API const char* ptq_hash() { return PTQ_HASH; }

// Names of the levels that this machine runs, the best last, with commas between them.
PTQ_API int ptq_levels(char* out, int64_t size) {
  return guarded(out, size, [&] { write_text(out, size, level_names().c_str()); });
}

// `expanded`: weights stay expanded in memory.
PTQ_API void* ptq_create(const uint8_t* plan, int64_t size, const char* level, int expanded, char* error,
                         int64_t error_size) {
  Engine* made = nullptr;
  guarded(error, error_size, [&] {
    const Operations operations = level_operations(level);
    made = new Engine(read_plan(plan, size), operations, expanded != 0);
  });
  return made;
}

PTQ_API void ptq_destroy(void* engine) { delete engine_of(engine); }

// Called with the lock of `caller`, if it has one, and returns with it.
PTQ_API int ptq_run(void* engine, const Request* request, const Caller* caller, char* error, int64_t error_size) {
  Asking asking(*caller);
  return guarded(error, error_size, [&] { engine_of(engine)->run(*request, asking); });
}

// 0 weights and parameters, 1 values and scratch of the last call, 2 packed state of a sample, 3 operations.
PTQ_API int64_t ptq_size(void* engine, int what) {
  const Engine& e = *engine_of(engine);
  switch (what) {
    case 0: return e.weights_bytes();
    case 1: return e.arena_bytes();
    case 2: return e.state_bytes();
    default: return (int64_t)e.counters().size();
  }
}

// Counters of the last call that was profiled, by operation; `count` of them at most.
PTQ_API void ptq_statistics(void* engine, Counters* out, int64_t count) {
  const std::vector<Counters>& counters = engine_of(engine)->counters();
  for (int64_t i = 0; i < count && i < (int64_t)counters.size(); ++i) out[i] = counters[(size_t)i];
}

PTQ_API double ptq_peak(const char* level, int kind, int milliseconds) {
  double out = 0.0;
  guarded(nullptr, 0, [&] { out = level_operations(level).peak(kind, milliseconds); });
  return out;
}
