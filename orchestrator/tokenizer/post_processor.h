#pragma once
// The "post_processor" of tokenizer.json, for single sequences: the ids it puts before and after the text's.

#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "orchestrator/tokenizer/json_fields.h"

namespace moestro::tok {

struct PostProcessor {
  /// `part` may be null: adds nothing.
  static Result<PostProcessor> parse(const Json* part);

  std::vector<TokenId> before, after;

 private:
  Status add(const Json& part, int depth);
  Status add_template(const Json& part);
  Status add_pair(const Json& part);
};

}  // namespace moestro::tok
