#include "common/lanes/schedule.h"

#include "common/check.h"

namespace moestro::lanes {

TaskId Schedule::assume(int32_t, TaskGraph&) {
  MOESTRO_CHECK(false, "this schedule assumes nothing");
}

void Schedule::retract(int32_t, TaskGraph&) { MOESTRO_CHECK(false, "this schedule assumes nothing"); }

}  // namespace moestro::lanes
