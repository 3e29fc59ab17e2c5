#pragma once
// The server of a load: an existing one, or the benchmark's own box.

#include <cstdint>
#include <memory>
#include <string>

#include "common/config/box_config.h"
#include "common/status.h"
#include "services/cli/bench/serve/arrivals.h"
#include "services/cli/bench/store/private_box.h"
#include "services/cli/common/http_client.h"

namespace moestro::cli {

struct Served {
  Url url = {};
  std::string model = {};    ///< its name in requests
  int64_t vocab = 0;    ///< 0: it does not say
  LengthLimits limits = {};
};

/// Asks what it serves: `model`, or, if that is empty, its first model.
Result<Served> ask_served(const Url& url, const std::string& model, const HttpAccess& access = {});

/// Store, orchestrator and workers of one pack, on a free port of 127.0.0.1; returns when they serve.
Result<std::unique_ptr<PrivateBox>> start_box(config::BoxConfig config);
Url url_of(const PrivateBox& box);

}  // namespace moestro::cli
