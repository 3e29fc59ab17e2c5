#pragma once
// A program that another one has started and looks after (`moestro up`), and that is to end with it.

#include "common/status.h"

namespace moestro::machine {

/// The environment variable that names the supervisor's process.
inline constexpr char kSupervisorVariable[] = "MOESTRO_SUPERVISOR";

/// From now on this process gets SIGTERM when its supervisor dies, also by SIGKILL. The supervisor has asked the kernel
/// for that before the program began, but the kernel forgets it where the program's file has capabilities or belongs to
/// another user (prctl(2), PR_SET_PDEATHSIG). Nothing where there is no supervisor. kUnavailable: it has ended already.
Status end_with_supervisor();

}  // namespace moestro::machine
