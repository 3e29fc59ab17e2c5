#pragma once
#include "store/pack/checkpoint.h"

namespace moestro::store {

/// Both tensors have one shape. OK if all values are equal, whatever their formats. Reads a few MiB at a time.
Status check_equal_tensors(const Checkpoint& checkpoint, const std::string& name, const std::string& other);

}  // namespace moestro::store
