#pragma once
// Places where a program under test dies or stops by itself, at the very moment that a test is about. Off unless armed
// at start
// (`run.fault_points`); then still one predicted branch each. Not for the path of a hit.

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace moestro::fault {

/// All there are, in the order of a blob's life. Each stands where `MOESTRO_FAULT_POINT` names it.
const std::vector<std::string_view>& points();

/// "POINT=ACTION:N[,...]": at the N-th visit of POINT the process gets SIGKILL (`kill`) or SIGSTOP (`stop`), once. Says
/// so in the log. Once, before the threads that come by are started. kInvalidArgument names what is wrong.
Status arm(const std::string& text);

namespace internal {
inline bool armed = false;  ///< written before the threads that read it
void reached(std::string_view point);
}  // namespace internal

}  // namespace moestro::fault

#define MOESTRO_FAULT_POINT(point)                                                        \
  do {                                                                                    \
    if (moestro::fault::internal::armed) [[unlikely]] moestro::fault::internal::reached(point); \
  } while (false)
