#pragma once
// The fields of a request that say what its answer must be: response_format, and those of vLLM and llama.cpp's server.

#include "orchestrator/api/completion_request.h"
#include "orchestrator/api/field_reader.h"

namespace moestro::orchestrator {

/// At most one of these fields may ask for something.
void read_output_format(FieldReader& f, CompletionRequest& r);

}  // namespace moestro::orchestrator
