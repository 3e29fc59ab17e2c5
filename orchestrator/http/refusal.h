#pragma once
// A refusal by the server itself.

#include <string>

namespace moestro::orchestrator {

struct Refusal {
  int status = 0;  ///< 0: no answer, the connection is closed
  std::string message = {};
};

}  // namespace moestro::orchestrator
