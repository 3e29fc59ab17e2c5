#include "services/cli/common/url.h"

#include "common/config/host_port.h"

namespace moestro::cli {
namespace {

Status bad(std::string_view text, std::string_view why) {
  return invalid_argument("'" + std::string(text) + "' " + std::string(why));
}

}  // namespace

std::string Url::authority() const {
  return config::HostPort{host, port}.text();
}

std::string Url::origin() const { return (secure ? "https://" : "http://") + authority(); }

Result<Url> parse_url(std::string_view text) {
  constexpr std::string_view kPlain = "http://", kSecure = "https://",
                             kHow = "is not a URL of the form http://HOST:PORT or https://HOST:PORT";
  Url url;
  url.secure = text.starts_with(kSecure);
  if (!url.secure && !text.starts_with(kPlain)) return bad(text, kHow);
  std::string_view rest = text.substr(url.secure ? kSecure.size() : kPlain.size());
  const size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  std::string_view base = slash == std::string_view::npos ? std::string_view{} : rest.substr(slash);
  while (base.ends_with('/')) base.remove_suffix(1);
  for (const char c : base)
    if (static_cast<unsigned char>(c) <= 0x20 || c == '?' || c == '#' ||
        static_cast<unsigned char>(c) >= 0x7f)
      return bad(text, "has a path that cannot be used: no query, fragment or spaces");
  const bool has_port = authority.starts_with('[') ? authority.find("]:") != std::string_view::npos
                                                   : authority.find(':') != std::string_view::npos;
  const std::string with_port = std::string(authority) + (has_port ? "" : url.secure ? ":443" : ":80");
  const auto parsed = config::parse_host_port(with_port);
  if (!parsed.is_ok()) return bad(text, kHow);
  url.host = parsed->host;
  url.port = parsed->port;
  url.base = base;
  return url;
}

}  // namespace moestro::cli
