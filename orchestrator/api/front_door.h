#pragma once
// What every request passes before its route: keys, their limits, and what browsers of other origins may do. Server's
// thread only.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orchestrator/api/api_error.h"
#include "orchestrator/api/api_keys.h"
#include "orchestrator/http/exchange.h"

namespace moestro::orchestrator {

/// The body of an error that a client of `path` gets.
using ErrorBodyOf = std::function<std::string(const std::string& path, const ApiError&, const std::string& request_id)>;

struct FrontDoorOptions {
  std::optional<ApiKeys> keys;        ///< none: everybody who can connect
  std::vector<std::string> origins;   ///< that browsers may call from; "*": any; empty: no CORS headers at all
  ErrorBodyOf error_body = [](const std::string&, const ApiError& error, const std::string&) { return error.body(); };
};

class FrontDoor {
 public:
  FrontDoor(FrontDoorOptions options, Handler inside) : options_(std::move(options)), inside_(std::move(inside)) {}
  /// Answers itself, or hands on. /health is open to all, and so is the status page, which has no figures: it asks for
  /// them with a key.
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);
  /// Whether a request with this head brings a key that handle() lets in: nobody else's body is to be read.
  bool knows(const HttpRequest& head) const {
    return !options_.keys || options_.keys->find(head.authorization) != nullptr;
  }

 private:
  class Guarded;
  Headers cors_headers(const HttpRequest& request) const;

  const FrontDoorOptions options_;
  const Handler inside_;
  std::shared_ptr<std::map<std::string, uint32_t>> under_way_ =
      std::make_shared<std::map<std::string, uint32_t>>();  ///< by key's name
};

}  // namespace moestro::orchestrator
