#include "services/cli/pack/spread_option.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "store/reader/probe.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;

/// The SHARE of "DIR=SHARE"; `word` keeps DIR.
Result<std::optional<uint32_t>> split_share(std::string& word) {
  const size_t equals = word.rfind('=');
  if (equals == std::string::npos) return std::optional<uint32_t>();
  uint32_t share = 0;
  const char* last = word.data() + word.size();
  const auto [end, error] = std::from_chars(word.data() + equals + 1, last, share);
  if (error != std::errc() || end != last || share == 0 || share > store::kShareMax)
    return invalid_argument("--spread " + word + ": the share after '=' is not a number from 1 to " +
                            std::to_string(store::kShareMax));
  word.resize(equals);
  return std::optional(share);
}

Result<uint32_t> measured_share(const fs::path& directory, const std::function<void(const std::string&)>& note) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return io_error(directory.string() + ": cannot be made", error.value());
  MOESTRO_ASSIGN_OR_RETURN(const uint64_t speed, store::directory_speed(directory));
  const auto share = static_cast<uint32_t>(std::clamp<uint64_t>(speed >> 20, 1, store::kShareMax));
  note(directory.string() + " reads " + std::to_string(share) + " MiB/s");
  return share;
}

}  // namespace

Status read_spread(const std::vector<std::string>& words, const fs::path& pack, store::PackOptions& options,
                   const std::function<void(const std::string&)>& note) {
  size_t given = 0;
  bool own_given = false;
  for (std::string word : words) {
    MOESTRO_ASSIGN_OR_RETURN(const auto share, split_share(word));
    given += share.has_value();
    if (share && fs::weakly_canonical(word) == fs::weakly_canonical(pack)) options.own_share = *share, own_given = true;
    else options.spread.push_back({word, share.value_or(1)});
  }
  if (given != 0 && given != words.size())
    return invalid_argument("--spread: give every directory a share (DIR=SHARE), or none to have all measured");
  if (words.empty() || given != 0 || own_given) return Status::ok();
  MOESTRO_ASSIGN_OR_RETURN(options.own_share, measured_share(pack, note));
  for (store::PackDirectory& directory : options.spread) {
    MOESTRO_ASSIGN_OR_RETURN(directory.share, measured_share(directory.path, note));
  }
  return Status::ok();
}

}  // namespace moestro::cli
