#pragma once
// The events of OpenAI's completion and chat streams.

#include <string>
#include <string_view>

#include "common/status.h"

namespace moestro::cli {

struct StreamEvent {
  bool done = false;          ///< "[DONE]"
  std::string text;           ///< of choice 0, of either kind of stream
  std::string reasoning;      ///< of choice 0, what the model thinks before it answers
  std::string finish_reason;  ///< "stop", "length"; empty until the end
};

/// An event that carries an error becomes that error; one that is not JSON is kCorrupt.
Result<StreamEvent> parse_stream_event(std::string_view data);

/// Text that is safe for a terminal: control characters other than tab and line break are dropped.
std::string printable(std::string_view text);

}  // namespace moestro::cli
