#pragma once
// The server's files and batches, for the commands. Answers other than 200 are errors with the server's message.

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "services/cli/common/http_client.h"

namespace moestro::cli {

class BatchClient {
 public:
  explicit BatchClient(Url url, HttpAccess access = {}) : http_(std::move(url), {}, std::move(access)) {}

  /// The id of the file on the server. `progress`: bytes sent so far.
  Result<std::string> upload(const std::filesystem::path& file, const std::function<void(uint64_t)>& progress);
  /// Refused while an unfinished batch uses the file.
  Status remove_file(const std::string& id);
  Result<nlohmann::json> create(const nlohmann::json& order);
  Result<nlohmann::json> batch(const std::string& id);
  Result<nlohmann::json> cancel(const std::string& id, bool drop_results = false);
  Result<nlohmann::json> list(int64_t limit);
  /// Writes a file of the server to `target`, completely or not at all.
  Status download(const std::string& id, const std::filesystem::path& target);

 private:
  Result<nlohmann::json> body_of(const Result<HttpReply>& reply) const;
  HttpClient http_;
};

}  // namespace moestro::cli
