#pragma once
// The small files that a pack takes over from the checkpoint as they are: what the request plane reads of a model.

#include <filesystem>
#include <vector>

#include "store/pack/manifest.h"

namespace moestro::store {

/// Copies those that the checkpoint has; the result is for the manifest.
Result<std::vector<CopiedFile>> copy_files(const std::filesystem::path& from, const std::filesystem::path& to);

/// A small file that a pack of no checkpoint gets: one of those that would have been copied.
struct TextFile {
  std::string name, text;
};
Result<std::vector<CopiedFile>> write_files(const std::vector<TextFile>& files, const std::filesystem::path& to);

/// Is the file in `dir` what the manifest says? kCorrupt or kNotFound, naming it, if not.
Status check_copied_file(const std::filesystem::path& dir, const CopiedFile& file);

/// All of them, for a program that reads nothing else of a pack: by DIR/manifest. A directory without one is no pack,
/// only a model's tokenizer and configuration, and has nothing to compare with.
Status check_copied_files(const std::filesystem::path& dir);

}  // namespace moestro::store
