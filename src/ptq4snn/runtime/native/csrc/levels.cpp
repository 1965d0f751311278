#include "levels.h"

#include <cstring>

#include "layer.h"

namespace ptq {

namespace scalar {
extern const Operations operations;
}
#ifdef PTQ_HAVE_AVX2
namespace avx2 {
extern const Operations operations;
}
#endif
#ifdef PTQ_HAVE_AVX512
namespace avx512 {
extern const Operations operations;
}
#endif

namespace {

const Operations* built(const char* name) {
#ifdef PTQ_HAVE_AVX512
  if (std::strcmp(name, "avx512") == 0) return &avx512::operations;
#endif
#ifdef PTQ_HAVE_AVX2
  if (std::strcmp(name, "avx2") == 0) return &avx2::operations;
#endif
  return std::strcmp(name, "scalar") == 0 ? &scalar::operations : nullptr;
}

}  // namespace

std::string level_names() {
  const hot::Kernels* const* levels = nullptr;
  const int count = hot::kernel_levels(&levels);
  std::string names;
  for (int i = 0; i < count; ++i) names += (i ? "," : "") + std::string(levels[i]->name);
  return names;
}

Operations level_operations(const char* name) {
  const hot::Kernels* const* levels = nullptr;
  const int count = hot::kernel_levels(&levels);
  for (int i = count - 1; i >= 0; --i) {
    const bool wanted = *name == 0 || std::strcmp(levels[i]->name, name) == 0;
    const Operations* operations = wanted ? built(levels[i]->name) : nullptr;
    if (operations == nullptr) continue;
    Operations out = *operations;
    out.hot = levels[i];
    return out;
  }
  throw Refused("this machine or this build has no kernels '" + std::string(name) + "'; there are " + level_names());
}

}  // namespace ptq
