#pragma once
// YAML into a Schema. The only place that includes yaml-cpp.

#include <filesystem>
#include <string>

#include "common/config/schema.h"

namespace moestro::config {

inline constexpr uintmax_t kConfigBytesMax = 1 << 20;

/// Reads sections of `key: value` into the schema's fields. Stops at the first error: "NAME line N: section.key: why".
/// Fields that were set before it keep their new values, so discard the object.
Status load_yaml(const std::string& text, const std::string& name, Schema& schema);

/// The same from a file of at most kConfigBytesMax.
Status load_yaml_file(const std::filesystem::path& path, Schema& schema);

/// Every key with the value it has now, as YAML that reads back to the same values.
std::string to_yaml(const Schema& schema);

}  // namespace moestro::config
