#pragma once
// The store's part of the model.

#include "tests/store/protocol_model.h"

namespace moestro::store::model {

using Visit = std::function<void(const World&, bool)>;

/// The bytes that are right for a blob; `version` of B's pack.
int8_t content_of(Scene scene, int8_t blob, uint8_t version);
void step_store(World world, Scene scene, Mutant mutant, Findings& found, const Visit& visit);

}  // namespace moestro::store::model
