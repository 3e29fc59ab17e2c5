#pragma once
// Tokenizers of files, for tests and benchmarks. Programs have theirs from a pack (orchestrator/api/served_model.cc).

#include <filesystem>
#include <fstream>
#include <sstream>

#include "orchestrator/tokenizer/tokenizer.h"

namespace moestro::test {

/// `path`: a tokenizer.json, or a directory that holds one.
inline Result<Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  const auto file = std::filesystem::is_directory(path) ? path / "tokenizer.json" : path;
  std::ostringstream text;
  if (!(text << std::ifstream(file, std::ios::binary).rdbuf())) return io_error("cannot read " + file.string());
  return Tokenizer::from_json(text.view());
}

}  // namespace moestro::test
