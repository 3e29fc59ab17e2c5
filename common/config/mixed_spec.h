#pragma once
// What --mixed says: LOW[,t1=SCORE][,t2=SCORE][,share=SHARE]

#include <optional>
#include <string>
#include <string_view>

#include "common/expert_copy.h"
#include "common/status.h"

namespace moestro::config {

/// nullopt: "off". kInvalidArgument names the text, what is wrong with it, and the valid form.
Result<std::optional<MixedOptions>> parse_mixed(std::string_view text);

/// The text that parse_mixed reads back: "int4,t1=0.6,t2=1,share=0.1".
std::string mixed_text(const MixedOptions& options);

}  // namespace moestro::config
