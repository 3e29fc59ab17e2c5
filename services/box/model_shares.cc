#include "services/box/model_shares.h"

#include <algorithm>

#include "common/config/units.h"
#include "services/box/named_pack.h"

namespace moestro::box {
namespace {

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

Result<ModelShare> parse_one(const std::string& text) {
  const auto wrong = [&](const std::string& why) {
    return invalid_argument("store.shares: '" + text + "': " + why +
                            "; write NAME=GUARANTEED..MAXIMAL, as in big=4GiB..12GiB, small=..2GiB or chat=1GiB");
  };
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return wrong("names no size");
  ModelShare share{trimmed(text.substr(0, equals)), 0, std::nullopt};
  if (const Status named = check_model_name(share.model); !named) return wrong("is for no model name");
  const std::string sizes = trimmed(text.substr(equals + 1));
  const size_t dots = sizes.find("..");
  const std::string guaranteed = trimmed(sizes.substr(0, dots)),
                    maximal = dots == std::string::npos ? "" : trimmed(sizes.substr(dots + 2));
  if (guaranteed.empty() && maximal.empty()) return wrong("names no size");
  if (!guaranteed.empty()) {
    const auto size = config::parse_size(guaranteed);
    if (!size) return wrong(size.status().message());
    share.guaranteed = *size;
  }
  if (!maximal.empty()) {
    const auto size = config::parse_size(maximal);
    if (!size) return wrong(size.status().message());
    share.maximal = *size;
    if (share.guaranteed > *size) return wrong("the maximum is below the guarantee");
  }
  return share;
}

}  // namespace

Result<std::vector<ModelShare>> parse_model_shares(const std::string& text) {
  std::vector<ModelShare> shares;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string part = trimmed(text.substr(at, end - at));
    at = end + 1;
    MOESTRO_ASSIGN_OR_RETURN(ModelShare share, parse_one(part));
    if (std::ranges::any_of(shares, [&](const ModelShare& other) { return other.model == share.model; }))
      return invalid_argument("store.shares: model '" + share.model + "' is named twice");
    shares.push_back(std::move(share));
  }
  return shares;
}

}  // namespace moestro::box
