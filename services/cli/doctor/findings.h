#pragma once
// The findings of `doctor` from the facts.

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
  std::string found;  ///< what was found, and what it costs
  std::string mend;   ///< a command or a setting that fixes it; empty if nothing needs to be fixed
};

std::vector<Finding> judge(const MachineFacts& facts);

}  // namespace moestro::cli
