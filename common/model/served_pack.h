#pragma once
#include <filesystem>
#include <string>

#include "common/model/model_spec.h"
#include "common/status.h"

namespace moestro::model {

/// kUnsupported, by name, if the model has an encoder and `device` is a GPU.
Status check_device(const ModelSpec& spec, const std::string& device, bool is_gpu);
/// The same for a pack's model. What is wrong with its config.json is said by those who open the pack.
Status check_device(const std::filesystem::path& pack, const std::string& device, bool is_gpu);

}  // namespace moestro::model
