#pragma once
// Which pack is served under which name.

#include <string>
#include <vector>

#include "common/config/box_config.h"
#include "common/status.h"

namespace moestro::box {

struct NamedPack {
  std::string name;
  std::string pack;  ///< directory
};

/// Parts with '/' between, as in Qwen/Qwen3-30B-A3B: each of letters, digits, '.', '_', '-' and ':', with no '.' or '-'
/// first. At most 128 bytes. So a name fits into NAME=PACK, comma-separated lists, URLs and, by name_in_path, paths.
Status check_model_name(const std::string& name);
/// The name as one level of a path: '/' and ':' become "--".
std::string name_in_path(const std::string& name);

/// "NAME=PACK", as --model of the store and the orchestrator takes it.
Result<NamedPack> parse_named_pack(const std::string& text);

/// model.aliases, each a model's name, none given twice or that of the model itself.
Result<std::vector<std::string>> aliases_of(const config::BoxConfig& box);

/// model.pack under model.name or, where that is empty, under the pack directory's name.
Result<NamedPack> model_of(const config::BoxConfig& box);

}  // namespace moestro::box
