#pragma once
#include "store/pack/checkpoint.h"

namespace moestro::store {

/// Both tensors have the same shape. OK if all values are equal, in any formats. Reads a few MiB at a time. An error
/// says why they must be (`because`), and how to `mend` it.
Status check_equal_tensors(const Checkpoint& checkpoint, const std::string& name, const std::string& other,
                           const std::string& because, const std::string& mend);

}  // namespace moestro::store
