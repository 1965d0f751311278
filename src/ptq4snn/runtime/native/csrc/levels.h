// The instruction set levels of this build, chosen when the engine is made.
#pragma once
#include <string>

#include "plan.h"

namespace ptq {

std::string level_names();

// The operations of a level; an empty name: the best that this machine runs.
Operations level_operations(const char* name);

}  // namespace ptq
