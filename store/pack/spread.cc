#include "store/pack/spread.h"

#include <algorithm>
#include <sstream>

#include "store/pack/file.h"
#include "store/pack/shards.h"

namespace moestro::store {
namespace {

namespace fs = std::filesystem;

bool is_pack_file(const fs::path& path) {
  const std::string name = path.filename().string();
  return (name.starts_with("dense") || name.starts_with("experts-")) && name.ends_with(".bin");
}

Status prepare_shard(const fs::path& directory, bool unfinished) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return io_error(directory.string() + ": cannot be made", error.value());
  for (const auto& entry : fs::directory_iterator(directory, error))
    if (!unfinished || !is_pack_file(entry.path()))
      return invalid_argument(directory.string() + ": is not empty; a pack is spread over directories of its own");
  return error ? io_error(directory.string() + ": cannot be read", error.value()) : Status::ok();
}

Status make_link(const fs::path& target, const fs::path& link) {
  std::error_code error;
  if (fs::is_symlink(link, error)) fs::remove(link, error);
  fs::create_directory_symlink(target, link, error);
  return error ? io_error("cannot link " + link.string() + " to " + target.string(), error.value()) : Status::ok();
}

/// "SHARE PATH" a line, the pack's own first.
std::string text_of(uint32_t own_share, const std::vector<PackDirectory>& others) {
  std::string text = std::to_string(own_share) + " .\n";
  for (const PackDirectory& other : others) text += std::to_string(other.share) + " " + other.path.string() + "\n";
  return text;
}

/// The shares in the text, if it speaks of these directories.
std::optional<std::vector<uint32_t>> shares_in(const std::string& text, const std::vector<PackDirectory>& others) {
  std::istringstream lines(text);
  std::vector<uint32_t> shares;
  uint32_t share = 0;
  std::string path;
  while (lines >> share && std::getline(lines.ignore(1), path)) {
    if (share == 0 || share > kShareMax || shares.size() > others.size()) return std::nullopt;
    if (!shares.empty() && others[shares.size() - 1].path != path) return std::nullopt;
    shares.push_back(share);
  }
  return shares.size() == others.size() + 1 ? std::optional(shares) : std::nullopt;
}

}  // namespace

void remove_pack_files(const fs::path& directory) {
  std::error_code ignored;
  std::vector<fs::path> mine;
  for (const auto& entry : fs::directory_iterator(directory, ignored))
    if (is_pack_file(entry.path())) mine.push_back(entry.path());
  for (const fs::path& path : mine) fs::remove(path, ignored);
}

Result<std::vector<uint32_t>> settle_spread(const fs::path& pack, uint32_t own_share,
                                            const std::vector<PackDirectory>& given) {
  if (given.size() >= kDirectoriesMax)
    return invalid_argument("a pack is spread over " + std::to_string(kDirectoriesMax) + " directories at most");
  std::vector<PackDirectory> others = given;
  std::vector<fs::path> seen{fs::weakly_canonical(pack)};
  for (PackDirectory& other : others) {
    other.path = fs::weakly_canonical(fs::absolute(other.path));
    if (std::ranges::find(seen, other.path) != seen.end())
      return invalid_argument(other.path.string() + ": is given twice");
    seen.push_back(other.path);
  }
  MOESTRO_ASSIGN_OR_RETURN(const auto before, read_text_file_if_any(pack / kSharesName, 1 << 20));
  const auto kept = before ? shares_in(*before, others) : std::nullopt;
  if (before && !kept)
    return invalid_argument(pack.string() + ": holds an unfinished pack that is spread over other directories (" +
                            (pack / kSharesName).string() + " lists them): give the same ones, or remove it");
  for (uint32_t i = 0; i < others.size(); ++i) {
    MOESTRO_RETURN_IF_ERROR(prepare_shard(others[i].path, kept.has_value()));
    MOESTRO_RETURN_IF_ERROR(make_link(others[i].path, shard_path(pack, i + 1)));
  }
  if (kept) return *kept;
  std::vector<uint32_t> shares{own_share};
  for (const PackDirectory& other : others) shares.push_back(other.share);
  if (others.empty()) return shares;
  const std::string text = text_of(own_share, others);
  MOESTRO_RETURN_IF_ERROR(write_file_durably(pack, kSharesName, std::as_bytes(std::span(text))));
  return shares;
}

}  // namespace moestro::store
