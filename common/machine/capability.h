#pragma once
// Rights of this process beyond those of its user.

namespace moestro::machine {

/// Makes a permitted capability (given by `setcap cap_ipc_lock+p` on the program's file, for example) effective. If the
/// file made it effective from the start, the program could not be started at all in a container that does not grant
/// it. False: it is not permitted.
bool raise_capability(int capability);

}  // namespace moestro::machine
