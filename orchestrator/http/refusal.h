#pragma once
// What the server itself refuses.

#include <string>

namespace moestro::orchestrator {

struct Refusal {
  int status = 0;  ///< 0: nothing is said, the connection ends
  std::string message = {};
};

}  // namespace moestro::orchestrator
