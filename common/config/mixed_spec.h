#pragma once
// What --mixed says: LOW[,t1=SCORE][,t2=SCORE][,share=SHARE]

#include <optional>
#include <string_view>

#include "common/expert_copy.h"
#include "common/status.h"

namespace moestro::config {

/// nullopt: "off". kInvalidArgument names the text, what is wrong with it, and the valid form.
Result<std::optional<MixedOptions>> parse_mixed(std::string_view text);

}  // namespace moestro::config
