#pragma once
// Whether one pack may replace another while requests run.

#include <string>

#include "store/pack/manifest.h"

namespace moestro::store {

/// Other weights, or other precisions of them, are another version of a model; another architecture, shape or tokenizer
/// is another model: kInvalidArgument, naming the first difference.
Status check_same_model(const Manifest& before, const Manifest& now);

/// "chat_template.jinja, generation_config.json": what programs read once, when they start, and the two have different;
/// empty: nothing, or one of the packs is from before the list of such files.
std::string other_texts(const Manifest& before, const Manifest& now);

}  // namespace moestro::store
