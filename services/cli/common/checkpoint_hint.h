#pragma once
// What to do when a path is no checkpoint, or no pack: whole commands to copy.

#include <optional>
#include <string>

#include "common/status.h"

namespace moestro::cli {

/// `text` as one word of a POSIX shell; quoted only where it must be.
std::string shell_quoted(const std::string& text);

/// "ORG/NAME" of a model on Hugging Face, if `text` looks like that or is the URL of its page.
std::optional<std::string> hub_model(const std::string& text);

/// OK if `source` is a directory or a GGUF file. Else kNotFound or kInvalidArgument: how to download it into a
/// directory that `moestro pack` reads, if it looks like a model on Hugging Face.
Status check_checkpoint_source(const std::string& source, const std::string& pack);

/// kNotFound: why `path` is no pack, and how to make one of what lies there.
Status no_pack_at(const std::string& path);

}  // namespace moestro::cli
