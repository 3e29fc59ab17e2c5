#pragma once
// What `doctor` makes of the facts.

#include <string>
#include <vector>

#include "services/cli/doctor/machine_facts.h"

namespace moestro::cli {

enum class Verdict : uint8_t {
  kGood,
  kInfo,     ///< neither good nor bad
  kSlower,   ///< works, with a cost that `found` names
  kMissing,  ///< Moestro cannot run
};

std::string_view verdict_name(Verdict verdict);  ///< "good", "info", "slower", "missing"

struct Finding {
  std::string topic;  ///< "io_uring"
  Verdict verdict = Verdict::kGood;
  std::string found;  ///< what is there, and what it costs
  std::string mend;   ///< a command or a setting; empty where nothing needs mending
};

std::vector<Finding> judge(const MachineFacts& facts);

}  // namespace moestro::cli
