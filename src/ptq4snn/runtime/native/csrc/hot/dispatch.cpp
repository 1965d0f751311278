// Which levels are in this build and run on this machine.
#include <cstring>

#include "../layer.h"

namespace ptq {
namespace hot {

namespace scalar {
extern const Kernels table;
}
#if defined(PTQ_HAVE_AVX2)
namespace avx2 {
extern const Kernels table;
}
#endif
#if defined(PTQ_HAVE_AVX512)
namespace avx512 {
extern const Kernels table;
}
#endif

struct Levels {
  const Kernels* list[3];
  int count;
};

static Levels find_levels() {
  Levels levels = {{&scalar::table, nullptr, nullptr}, 1};
#if defined(PTQ_HAVE_AVX2)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
      __builtin_cpu_supports("popcnt"))
    levels.list[levels.count++] = &avx2::table;
#endif
#if defined(PTQ_HAVE_AVX512)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vbmi") &&
      __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512vnni") &&
      __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma"))
    levels.list[levels.count++] = &avx512::table;
#endif
  return levels;
}

static const Levels& levels() {
  static const Levels all = find_levels();
  return all;
}

int kernel_levels(const Kernels* const** list) {
  *list = levels().list;
  return levels().count;
}

const Kernels* kernels(const char* name) {
  for (int i = 0; i < levels().count; ++i)
    if (std::strcmp(levels().list[i]->name, name) == 0) return levels().list[i];
  return nullptr;
}

}  // namespace hot
}  // namespace ptq
