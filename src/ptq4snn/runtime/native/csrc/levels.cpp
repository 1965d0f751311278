#include "levels.h"

#include <cstring>

#include "layer.h"

namespace ptq {

#define PTQ_DECLARE(level, runs)      \
  namespace level {                   \
  extern const Operations operations; \
  }
PTQ_LEVELS(PTQ_DECLARE)
#undef PTQ_DECLARE

namespace {

const Operations* built(const char* name) {
#define PTQ_FIND(level, runs) \
  if (std::strcmp(name, #level) == 0) return &level::operations;
  PTQ_LEVELS(PTQ_FIND)
#undef PTQ_FIND
  return nullptr;
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
