#include "services/cli/common/checkpoint_hint.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <vector>

#include "common/may_read.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPacksNamed = 5;  // in one message

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-';
}

std::string last_part(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

/// "hf download ORG/NAME --local-dir NAME && moestro pack NAME -o PACK"
std::string download_and_pack(const std::string& model, const std::string& pack) {
  const std::string dir = last_part(model);
  return "hf download " + model + " --local-dir " + dir + " && moestro pack " + dir + " -o " + shell_quoted(pack);
}

/// A place for a pack of that checkpoint: packs/NAME, or a longer name if there is something. NAME is fit for a model.
std::string pack_for(const std::string& checkpoint) {
  std::error_code error;
  fs::path dir = fs::weakly_canonical(fs::absolute(checkpoint), error);
  std::string name = (dir.has_filename() ? dir : dir.parent_path()).filename().string();
  std::ranges::replace_if(
      name, [](char c) { return !is_name_character(c); }, '-');
  name.erase(0, name.find_first_not_of(".-"));
  std::string pack = "packs/" + (name.empty() ? "model" : name);
  while (fs::exists(pack, error)) pack += "-pack";
  return pack;
}

/// "packs/demo, packs/qwen3 and 4 more": the packs that are directly in `dir`; empty: none.
std::string packs_in(const fs::path& dir) {
  std::error_code error;
  std::vector<std::string> packs;
  for (fs::directory_iterator entry(dir, error), end; !error && entry != end; entry.increment(error))
    if (std::error_code ignored; fs::is_regular_file(entry->path() / "manifest", ignored))
      packs.push_back(entry->path().string());
  std::ranges::sort(packs);
  std::string text;
  for (size_t i = 0; i < std::min(packs.size(), kPacksNamed); ++i) text += (i > 0 ? ", " : "") + packs[i];
  return packs.size() > kPacksNamed ? text + " and " + std::to_string(packs.size() - kPacksNamed) + " more" : text;
}

}  // namespace

std::string shell_quoted(const std::string& text) {
  const bool plain = std::ranges::all_of(text, [](char c) {
    return is_name_character(c) || std::string_view("/:=,+@%").find(c) != std::string_view::npos;
  });
  if (plain && !text.empty()) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::optional<std::string> hub_model(const std::string& text) {
  std::string name = text;
  for (const std::string_view start : {"https://huggingface.co/", "https://hf.co/", "hf.co/", "hf:"})
    if (name.starts_with(start)) name.erase(0, start.size());
  if (name.ends_with('/')) name.pop_back();
  const size_t slash = name.find('/');
  const auto is_part = [](std::string_view part) {
    return !part.empty() && std::isalnum(static_cast<unsigned char>(part.front())) != 0 &&
           std::ranges::all_of(part, is_name_character);
  };
  if (slash == std::string::npos || !is_part(std::string_view(name).substr(0, slash)) ||
      !is_part(std::string_view(name).substr(slash + 1)))
    return std::nullopt;
  return name;
}

Status check_checkpoint_source(const std::string& source, const std::string& pack) {
  MOESTRO_RETURN_IF_ERROR(check_may_read(fs::path(source) / "config.json", source));
  std::error_code error;
  if (fs::is_directory(source, error)) return Status::ok();
  if (fs::is_regular_file(source, error)) MOESTRO_RETURN_IF_ERROR(check_may_read(source));
  if (fs::is_regular_file(source, error) && source.ends_with(".gguf")) return Status::ok();
  if (fs::exists(source, error))
    return invalid_argument(source +
                            " is a file; give a GGUF file, or the directory of a checkpoint, which has config.json, "
                            "*.safetensors and tokenizer.json");
  const std::string missing = "there is no directory " + source;
  const auto model = hub_model(source);
  if (!model) return not_found(missing);
  return not_found(missing + "; if you mean the model on Hugging Face, download it first: " +
                   download_and_pack(*model, pack) + " (hf comes with: pip install huggingface_hub)");
}

Status no_pack_at(const std::string& path) {
  std::error_code error;
  const std::string no_pack = "no pack at " + path + ": ";
  const auto first_make = [&](const std::string& pack) {
    return "make a pack of it first: moestro pack " + shell_quoted(path) + " -o " + shell_quoted(pack) +
           " && moestro up --model " + shell_quoted(pack);
  };
  if (fs::exists(fs::path(path) / "unfinished-pack.journal", error))  // store/pack/journal.h
    return not_found("the pack at " + path + " is unfinished; run its `moestro pack` command again: it continues");
  if (fs::exists(fs::path(path) / "config.json", error))
    return not_found(no_pack + "that is a checkpoint; " + first_make(pack_for(path)));
  if (fs::is_regular_file(path, error))
    return not_found(no_pack + (path.ends_with(".gguf")
                                    ? "that is a GGUF file; " + first_make(pack_for(fs::path(path).stem()))
                                    : "that is a file, and a pack is a directory made by `moestro pack`"));
  if (fs::exists(path, error)) {
    const std::string packs = packs_in(path);
    const std::string hint = packs.empty() ? "make one: moestro pack HF_DIR -o packs/NAME" : "below it are " + packs;
    return not_found(no_pack + "no file 'manifest' is in it; " + hint);
  }
  if (fs::is_symlink(path, error))
    return not_found(no_pack + "it is a link to " + fs::read_symlink(path, error).string() + ", which is not there");
  const fs::path parent = fs::path(path.ends_with('/') ? path.substr(0, path.size() - 1) : path).parent_path();
  const std::string missing = no_pack + "there is no such directory; ";
  if (const std::string packs = packs_in(parent); !packs.empty()) return not_found(missing + "there are " + packs);
  // A name of two parts is one on Hugging Face, unless its first part is a directory here.
  if (const auto model = hub_model(path); model && !fs::exists(parent, error)) {
    const std::string pack = pack_for(*model);
    return not_found(missing + "make one: " + download_and_pack(*model, pack) + " && moestro up --model " +
                     shell_quoted(pack));
  }
  return not_found(missing + "make one: moestro pack HF_DIR -o " + shell_quoted(path));
}

}  // namespace moestro::cli
