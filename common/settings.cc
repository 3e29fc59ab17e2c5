#include "common/settings.h"

#include <algorithm>
#include <set>
#include <string>

namespace moestro {

Status read_settings(std::string_view text, std::span<const Setting> known, std::string_view forms) {
  std::set<std::string_view> seen;
  for (size_t at = 0; at <= text.size();) {
    const std::string_view one = text.substr(at, text.find(',', at) - at);
    at += one.size() + 1;
    const size_t equals = one.find('=');
    const std::string key(one.substr(0, equals));
    const auto setting = std::ranges::find(known, key, &Setting::key);
    if (equals == std::string_view::npos || setting == known.end())
      return invalid_argument("'" + std::string(one) + "' is " + std::string(forms));
    if (!seen.insert(setting->key).second) return invalid_argument(key + "= is given twice");
    MOESTRO_RETURN_IF_ERROR(setting->set(one.substr(equals + 1)).with_context(key));
  }
  return Status::ok();
}

}  // namespace moestro
