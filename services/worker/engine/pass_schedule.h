#pragma once
// The tasks of a pass's steps (common/lanes/schedule.h), as the engine's options say.

#include <memory>

#include "services/worker/engine/pass.h"

namespace moestro::engine {

std::unique_ptr<lanes::Schedule> make_schedule(const PassParts& parts);

}  // namespace moestro::engine
