#pragma once
// Rights of this process beyond those of its user.

namespace moestro::machine {

/// Makes a right that this process may have (by `setcap cap_ipc_lock+p` on its file, say) one that it has. A program
/// file whose capability is effective from the start cannot be started at all where a container grants less. False: it
/// may not have it.
bool raise_capability(int capability);

}  // namespace moestro::machine
