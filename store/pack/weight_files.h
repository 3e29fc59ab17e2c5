#pragma once
// Which files of a directory hold the weights of a safetensors checkpoint.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/status.h"

namespace moestro::store {

struct WeightFiles {
  std::vector<std::string> names;
  std::string index;                           ///< the file that lists them; empty: there is one file
  std::map<std::string, std::string> weights;  ///< the file of each tensor, by the index
};

/// Whether there is a safetensors file or an index of such files.
bool has_safetensors(const std::filesystem::path& dir);

/// model.safetensors, or the files that model.safetensors.index.json lists. Without them, those that have another name
/// instead of "model": that which config.json says (model_file_base_name of quantization_config, as AutoGPTQ wrote it),
/// or any, if only one file or index is there. An error names what is there. `config_json` has been parsed before.
Result<WeightFiles> find_weight_files(const std::filesystem::path& dir, const std::string& config_json);

}  // namespace moestro::store
