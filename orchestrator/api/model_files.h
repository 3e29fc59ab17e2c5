#pragma once
// The small files of a model: of a pack, of a checkpoint, or made of a GGUF file's metadata.

#include <functional>
#include <optional>
#include <string>

#include "common/status.h"

namespace moestro::orchestrator {

/// The small files of a model, and what they are called in errors.
struct ModelFiles {
  std::function<Result<std::optional<std::string>>(const std::string& name)> read;  ///< nothing if it is not there
  std::function<std::string(const std::string& name)> label;
};

}  // namespace moestro::orchestrator
