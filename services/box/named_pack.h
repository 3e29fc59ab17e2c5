#pragma once
// Which pack is served under which name.

#include <string>

#include "common/config/box_config.h"
#include "common/status.h"

namespace moestro::box {

struct NamedPack {
  std::string name;
  std::string pack;  ///< directory
};

/// Letters, digits, '.', '_', '-'; not a leading '.' or '-'; at most 64: a name becomes part of paths and of NAME=PACK.
Status check_model_name(const std::string& name);

/// "NAME=PACK", as --model of the store and the orchestrator takes it.
Result<NamedPack> parse_named_pack(const std::string& text);

/// model.pack under model.name or, where that is empty, under the pack directory's name.
Result<NamedPack> model_of(const config::BoxConfig& box);

}  // namespace moestro::box
