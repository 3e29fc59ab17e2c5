#pragma once
// Records as the fields of Redis' hashes.

#include <string>
#include <vector>

#include "orchestrator/state/records.h"
#include "orchestrator/state/redis_link.h"

namespace moestro::orchestrator {

/// Appends the number of following words, then field, value, ..., without fields that Redis counts itself.
void add_fields(std::vector<std::string>& words, const FileRecord& file);
void add_fields(std::vector<std::string>& words, const BatchRecord& batch);
/// From HGETALL. A missing field keeps the record's default.
FileRecord file_of(const RedisValue& hash);
BatchRecord batch_of(const RedisValue& hash);

/// Parses "1 3 0 2\ntext", the form of kPutResults.
LineResult line_result_of(uint64_t line, std::string_view packed);

}  // namespace moestro::orchestrator
