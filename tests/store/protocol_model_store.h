#pragma once
// The store's part of the model.

#include "tests/store/protocol_model.h"

namespace moestro::store::model {

using Visit = std::function<void(const World&, bool)>;

/// The bytes that are right for a blob; `version` of B's pack.
int8_t content_of(Scene scene, int8_t blob, uint8_t version);
/// A blob that is found wrong, or was under a store that was killed, is read again where it lies.
inline bool reads_in_place(Scene scene) { return scene == Scene::kDamaged || scene == Scene::kScrub; }
void step_store(World world, Scene scene, Mutant mutant, Findings& found, const Visit& visit);

}  // namespace moestro::store::model
