#include "orchestrator/api/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <strings.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

namespace moestro::orchestrator {

namespace {

constexpr std::string_view kHash = "sha256:", kConcurrency = "concurrency=", kProject = "project=", kBearer = "bearer ";

bool read_hex(std::string_view text, std::array<uint8_t, 32>& out) {
  if (text.size() != 2 * out.size()) return false;
  for (size_t i = 0; i < out.size(); ++i) {
    const char* begin = text.data() + 2 * i;
    const auto [end, error] = std::from_chars(begin, begin + 2, out[i], 16);
    if (error != std::errc() || end != begin + 2) return false;
  }
  return true;
}

Status read_option(std::string_view word, ApiKeys::Key& key) {
  const auto unknown = [&] {
    return invalid_argument("'" + std::string(word) + "' is not known here, or there twice");
  };
  if (word == "admin") return std::exchange(key.admin, true) ? unknown() : Status::ok();
  if (word.starts_with(kProject)) {
    if (!key.project.empty()) return unknown();
    key.project = word.substr(kProject.size());
    return key.project.empty() ? invalid_argument("'" + std::string(word) + "' names no project") : Status::ok();
  }
  if (!word.starts_with(kConcurrency) || key.concurrency != 0) return unknown();
  const auto [last, error] =
      std::from_chars(word.data() + kConcurrency.size(), word.data() + word.size(), key.concurrency);
  if (error != std::errc() || last != word.data() + word.size() || key.concurrency == 0)
    return invalid_argument("'" + std::string(word) + "' is not a number above 0");
  return Status::ok();
}

Result<ApiKeys::Key> read_line(const std::string& line) {
  std::istringstream words(line);
  std::string hash, word;
  ApiKeys::Key key;
  words >> hash >> key.name;
  if (!hash.starts_with(kHash) || !read_hex(std::string_view(hash).substr(kHash.size()), key.hash))
    return invalid_argument("it does not begin with sha256: and 64 hexadecimal digits (printf %s KEY | sha256sum)");
  if (key.name.empty() || key.name.starts_with(kConcurrency) || key.name.starts_with(kProject))
    return invalid_argument("the key has no name");
  while (words >> word) MOESTRO_RETURN_IF_ERROR(read_option(word, key));
  if (key.project.empty()) key.project = key.name;
  return key;
}

}  // namespace

Result<ApiKeys> ApiKeys::parse(std::string_view text, const std::string& where) {
  ApiKeys keys;
  std::istringstream lines{std::string(text)};
  std::string line;
  std::set<std::string> names;
  for (int number = 1; std::getline(lines, line); ++number) {
    line.erase(std::min(line.find('#'), line.size()));
    if (std::all_of(line.begin(), line.end(), [](char c) { return c == ' ' || c == '\t' || c == '\r'; })) continue;
    auto key = read_line(line);
    if (key.is_ok() && !names.insert(key->name).second)
      key = invalid_argument("there are two keys named '" + key->name + "'");
    if (!key.is_ok()) return invalid_argument(where + ":" + std::to_string(number) + ": " + key.status().message());
    keys.keys_.push_back(std::move(*key));
  }
  if (keys.keys_.empty()) return invalid_argument(where + " has no keys: nobody could use the API");
  return keys;
}

Result<ApiKeys> ApiKeys::load(const std::filesystem::path& path) {
  std::error_code error;
  const auto mode = std::filesystem::status(path, error).permissions();
  if (error) return not_found("cannot read " + path.string() + ": " + error.message());
  if ((mode & std::filesystem::perms::others_all) != std::filesystem::perms::none)
    return invalid_argument(path.string() + " can be read or written by everybody: chmod o= " + path.string());
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad()) return io_error("cannot read " + path.string(), errno);
  return parse(text, path.string());
}

const ApiKeys::Key* ApiKeys::find(std::string_view authorization) const {
  if (authorization.size() < kBearer.size() || strncasecmp(authorization.data(), kBearer.data(), kBearer.size()) != 0)
    return nullptr;
  authorization.remove_prefix(kBearer.size());
  std::array<uint8_t, 32> hash{};
  unsigned size = 0;
  if (EVP_Digest(authorization.data(), authorization.size(), hash.data(), &size, EVP_sha256(), nullptr) != 1)
    return nullptr;
  const Key* found = nullptr;
  for (const Key& key : keys_)  // all of them, whichever it is
    if (CRYPTO_memcmp(key.hash.data(), hash.data(), hash.size()) == 0) found = &key;
  return found;
}

}  // namespace moestro::orchestrator
