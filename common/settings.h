#pragma once
// Settings in one word of a command line: KEY=VALUE,KEY=VALUE

#include <functional>
#include <span>
#include <string_view>

#include "common/status.h"

namespace moestro {

struct Setting {
  std::string_view key;
  std::function<Status(std::string_view value)> set;
};

/// Sets what `text` names, in its order. kInvalidArgument for what is none of the settings, with the message "'it' is
/// `forms`", for a key given twice, and for what a setting refuses, after its key.
Status read_settings(std::string_view text, std::span<const Setting> known, std::string_view forms);

}  // namespace moestro
