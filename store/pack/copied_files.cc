#include "store/pack/copied_files.h"

#include <xxhash.h>

#include <algorithm>
#include <span>

#include "store/pack/file.h"
#include "store/pack/manifest_layout.h"

namespace moestro::store {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizerFiles[] = {"tokenizer.json",      "tokenizer_config.json", "special_tokens_map.json",
                                           "chat_template.jinja", "tool_use.jinja",        "chat_template.json"};
/// Where a checkpoint has the file: a pack has no folders.
fs::path in_checkpoint(std::string_view name) {
  return name == "tool_use.jinja" ? fs::path("additional_chat_templates") / name : fs::path(name);
}
constexpr const char kGenerationConfig[] = "generation_config.json";

/// An orchestrator would read a tokenizer, chat template or defaults of sampling that an earlier run left, of another
/// source.
Status remove_others(const std::vector<TextFile>& files, const fs::path& dir) {
  std::vector<const char*> names(std::begin(kTokenizerFiles), std::end(kTokenizerFiles));
  names.push_back(kGenerationConfig);
  for (const char* name : names) {
    std::error_code error;
    if (std::ranges::find(files, name, &TextFile::name) == files.end() && !fs::remove(dir / name, error) && error)
      return io_error((dir / name).string() + ": cannot be removed", error.value());
  }
  return Status::ok();
}

}  // namespace

Result<std::vector<TextFile>> read_tokenizer_files(const fs::path& from) {
  std::vector<TextFile> files;
  for (const char* name : kTokenizerFiles) {
    MOESTRO_ASSIGN_OR_RETURN(auto text, read_text_file_if_any(from / in_checkpoint(name), kCopiedBytesMax));
    if (text) files.push_back({name, std::move(*text)});
  }
  return files;
}

Result<std::vector<CopiedFile>> write_files(const std::vector<TextFile>& files, const fs::path& to) {
  MOESTRO_RETURN_IF_ERROR(remove_others(files, to));
  std::vector<CopiedFile> copied;
  for (const TextFile& file : files) {
    MOESTRO_RETURN_IF_ERROR(write_file_durably(to, file.name, std::as_bytes(std::span(file.text))));
    copied.push_back({file.name, file.text.size(), XXH3_64bits(file.text.data(), file.text.size())});
  }
  return copied;
}

Status check_copied_file(const fs::path& dir, const CopiedFile& file) {
  MOESTRO_ASSIGN_OR_RETURN(const std::string text, read_text_file(dir / file.name, kCopiedBytesMax));
  if (text.size() == file.bytes && XXH3_64bits(text.data(), text.size()) == file.xxh3_64) return Status::ok();
  return corrupt((dir / file.name).string() +
                 ": is not as it was packed (its checksum differs from the manifest's); pack the model again");
}

Status check_copied_files(const fs::path& dir) {
  MOESTRO_ASSIGN_OR_RETURN(const auto bytes, read_text_file_if_any(dir / "manifest", kManifestBytesMax));
  if (!bytes) return Status::ok();
  const auto manifest = parse_manifest(reinterpret_cast<const std::byte*>(bytes->data()), bytes->size());
  if (!manifest) return manifest.status().with_context(dir.string());
  for (const CopiedFile& file : manifest->copied) MOESTRO_RETURN_IF_ERROR(check_copied_file(dir, file));
  return Status::ok();
}

}  // namespace moestro::store
