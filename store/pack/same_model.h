#pragma once
// Whether one pack may replace another while requests run.

#include "store/pack/manifest.h"

namespace moestro::store {

/// Other weights, or other precisions of them, are another version of a model; another architecture, shape or tokenizer
/// is another model: kInvalidArgument, naming the first difference.
Status check_same_model(const Manifest& before, const Manifest& now);

}  // namespace moestro::store
