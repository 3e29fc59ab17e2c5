#pragma once
// The status page as it is served.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moestro::orchestrator {

struct StatusPage {
  std::string html;
  std::vector<std::pair<std::string, std::string>> headers;
};

/// Made at the first call.
const StatusPage& status_page();

/// "'sha256-BASE64'" of what stands between <TAG> and </TAG>, the first of its kind; empty if there is none. For
/// Content-Security-Policy.
std::string inline_hash(std::string_view html, std::string_view tag);

}  // namespace moestro::orchestrator
