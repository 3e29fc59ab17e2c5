#pragma once
// The report of `moestro inspect`: figures of a pack from its manifest and its model, as JSON or as text.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/status.h"
#include "store/pack/manifest.h"

namespace moestro::cli {

Result<nlohmann::json> pack_report(const std::filesystem::path& dir, const store::Manifest& manifest);
std::string pack_report_text(const nlohmann::json& report);

}  // namespace moestro::cli
