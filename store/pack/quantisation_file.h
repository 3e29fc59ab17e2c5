#pragma once
// Files beside config.json in which tools describe how they quantised a checkpoint.

#include <filesystem>
#include <string>

#include "common/status.h"

namespace moestro::store {

struct QuantisationFile {
  std::string name;         ///< empty: there is none, or config.json has a quantization_config, which comes first
  std::string config_json;  ///< config.json with what the file says as its quantization_config
};

/// Reads quantize_config.json (AutoGPTQ, GPTQModel), quant_config.json (AutoAWQ) or hf_quant_config.json (ModelOpt).
/// Keys that have other names there get those of quantization_config. Of two such files, none is right.
Result<QuantisationFile> read_quantisation_file(const std::filesystem::path& dir, const std::string& config_json);

}  // namespace moestro::store
