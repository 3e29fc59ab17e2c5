#pragma once
// The small files that a pack copies unchanged from the checkpoint: the files of a model that the orchestrator reads.

#include <filesystem>
#include <vector>

#include "store/pack/manifest.h"

namespace moestro::store {

struct TextFile {
  std::string name, text;
};
/// Those of the tokenizer and the chat template that the checkpoint has. The configs are read where it is opened.
Result<std::vector<TextFile>> read_tokenizer_files(const std::filesystem::path& from);

/// Writes the small files of a pack, copied or made; no other tokenizer or chat template stays there. The result is for
/// the manifest.
Result<std::vector<CopiedFile>> write_files(const std::vector<TextFile>& files, const std::filesystem::path& to);

/// Checks the file in `dir` against the manifest. kCorrupt or kNotFound names it.
Status check_copied_file(const std::filesystem::path& dir, const CopiedFile& file);

/// Checks all of them against DIR/manifest, for a program that reads nothing else of a pack. A directory without a
/// manifest is not a pack, only a model's tokenizer and configuration; there is nothing to compare.
Status check_copied_files(const std::filesystem::path& dir);

}  // namespace moestro::store
