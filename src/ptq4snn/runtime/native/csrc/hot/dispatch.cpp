// Which levels are in this build and run on this machine.
#include <cstring>

#include "../layer.h"

namespace ptq {
namespace hot {

#define PTQ_DECLARE(level, runs) \
  namespace level {              \
  extern const Kernels table;    \
  }
PTQ_LEVELS(PTQ_DECLARE)
#undef PTQ_DECLARE

#define PTQ_ONE(level, runs) +1
constexpr int kBuilt = PTQ_LEVELS(PTQ_ONE);
#undef PTQ_ONE

struct Levels {
  const Kernels* list[kBuilt];
  int count;
};

static Levels find_levels() {
  Levels levels = {};
#define PTQ_ADD(level, runs) \
  if (runs) levels.list[levels.count++] = &level::table;
  PTQ_LEVELS(PTQ_ADD)
#undef PTQ_ADD
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
