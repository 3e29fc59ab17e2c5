#pragma once
// Places where a program under test kills or stops itself at the moment that a test needs. Off unless armed at start
// (`run.fault_points`); each then costs one predicted branch. Not for the path of a hit.

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace moestro::fault {

/// All points, in the order of a blob's life. `MOESTRO_FAULT_POINT` marks each in the code.
const std::vector<std::string_view>& points();

/// "POINT=ACTION:N[,...]": at the N-th visit of POINT the process gets SIGKILL (`kill`) or SIGSTOP (`stop`), once, and
/// logs it. Call this once, before the threads that pass such points are started. kInvalidArgument names what is wrong.
Status arm(const std::string& text);

namespace internal {
inline bool armed = false;  ///< written before the threads that read it start
void reached(std::string_view point);
}  // namespace internal

}  // namespace moestro::fault

#define MOESTRO_FAULT_POINT(point)                                                        \
  do {                                                                                    \
    if (moestro::fault::internal::armed) [[unlikely]] moestro::fault::internal::reached(point); \
  } while (false)
