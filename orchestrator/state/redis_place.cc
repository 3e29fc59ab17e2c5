#include "orchestrator/state/redis_place.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>

#include "common/percent_decode.h"

namespace moestro::orchestrator {
namespace {

constexpr std::string_view kScheme = "redis://", kTlsScheme = "rediss://";
constexpr int64_t kWindowLeast = 2, kWindowMost = 3600, kDatabaseMost = 1'000'000;

std::optional<int64_t> number(std::string_view text) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return n;
}

Status bad(const std::string& what) {
  return invalid_argument("orchestrator.state: " + what +
                          "; it is redis://[[USER]:PASSWORD@]HOST[:PORT][/DB][?window=2s&password_file=PATH]");
}

Result<std::string> first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  if (!in)
    return invalid_argument("orchestrator.state: cannot open the password file " + path + ": " +
                            std::strerror(errno) + "; the orchestrator's user must be able to read it");
  if (!std::getline(in, line) || line.empty())
    return invalid_argument("orchestrator.state: the password file " + path + " has no first line; write it there");
  if (line.back() == '\r') line.pop_back();
  return line;
}

Status read_option(std::string_view option, RedisPlace& place) {
  const size_t equals = option.find('=');
  const std::string_view key = option.substr(0, equals),
                         value = equals == std::string_view::npos ? "" : option.substr(equals + 1);
  if (key == "window") {
    const auto seconds = value.ends_with('s') ? number(value.substr(0, value.size() - 1)) : std::nullopt;
    if (!seconds || *seconds < kWindowLeast || *seconds > kWindowMost)
      return bad("'window' is a number of seconds as 2s, from " + std::to_string(kWindowLeast) +
                 " (fsync comes each second, and may be one late)");
    place.window_seconds = *seconds;
    return Status::ok();
  }
  if (key != "password_file") return bad("the option '" + std::string(key.substr(0, 40)) + "' is not known");
  const auto path = percent_decoded(value);
  if (!path || !path->starts_with('/')) return bad("'password_file' is not the path of a file from the root");
  MOESTRO_ASSIGN_OR_RETURN(place.password, first_line(*path));
  return Status::ok();
}

Status read_login(std::string_view login, RedisPlace& place) {
  const size_t colon = login.find(':');
  if (colon == std::string_view::npos) return bad("there is a user without a password before the @");
  const auto user = percent_decoded(login.substr(0, colon)), password = percent_decoded(login.substr(colon + 1));
  if (!user || !password) return bad("an escape (%XX) in user or password is wrong");
  place.user = *user, place.password = *password;
  return Status::ok();
}

Status read_host(std::string_view text, RedisPlace& place) {
  size_t colon = text.rfind(':');
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) return bad("the address has no ]");
    place.host = text.substr(1, close - 1);
    colon = close + 1 < text.size() ? close + 1 : std::string_view::npos;
    if (colon != std::string_view::npos && text[colon] != ':') return bad("what follows ] is no port");
  } else {
    place.host = text.substr(0, colon);
  }
  if (place.host.empty()) return bad("there is no host");
  if (place.host.find_first_of(" \t\r\n:") != std::string::npos && !text.starts_with('['))
    return bad("the host is not one");
  if (colon == std::string_view::npos) return Status::ok();
  const auto port = number(text.substr(colon + 1));
  if (!port || *port < 1 || *port > 65535) return bad("the port is not one");
  place.port = static_cast<uint16_t>(*port);
  return Status::ok();
}

}  // namespace

std::string RedisPlace::shown() const {
  const bool six = host.find(':') != std::string::npos;
  return "redis://" + (six ? "[" + host + "]" : host) + ":" + std::to_string(port) + "/" + std::to_string(database);
}

bool is_redis_url(const std::string& setting) {
  return setting.starts_with(kScheme) || setting.starts_with(kTlsScheme);
}

Result<RedisPlace> parse_redis_url(const std::string& url) {
  if (url.starts_with(kTlsScheme))
    return unsupported(
        "orchestrator.state: rediss:// (TLS) is not in this version; give redis:// over a private network or a tunnel "
        "(stunnel, WireGuard)");
  if (!url.starts_with(kScheme)) return bad("it does not begin with redis://");
  std::string_view rest = std::string_view(url).substr(kScheme.size());
  std::string_view options;
  if (const size_t question = rest.find('?'); question != std::string_view::npos) {
    options = rest.substr(question + 1);
    rest = rest.substr(0, question);
  }
  RedisPlace place;
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
    MOESTRO_RETURN_IF_ERROR(read_login(rest.substr(0, at), place));
    rest = rest.substr(at + 1);
  }
  if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
    const auto database = slash + 1 == rest.size() ? 0 : number(rest.substr(slash + 1));
    if (!database || *database < 0 || *database > kDatabaseMost) return bad("the database is not a number");
    place.database = *database;
    rest = rest.substr(0, slash);
  }
  MOESTRO_RETURN_IF_ERROR(read_host(rest, place));
  std::set<std::string_view> seen;
  while (!options.empty()) {
    const size_t end = options.find('&');
    const std::string_view option = options.substr(0, end), key = option.substr(0, option.find('='));
    MOESTRO_RETURN_IF_ERROR(read_option(option, place));
    if (!seen.insert(key).second) return bad("'" + std::string(key) + "' is given twice");
    options = end == std::string_view::npos ? "" : options.substr(end + 1);
  }
  return place;
}

}  // namespace moestro::orchestrator
