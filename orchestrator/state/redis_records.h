#pragma once
// Records as the fields of Redis' hashes.

#include <string>
#include <vector>

#include "orchestrator/state/records.h"
#include "orchestrator/state/redis_link.h"

namespace moestro::orchestrator {

/// The number of words that follow, then field, value, ...; without what Redis counts by itself.
void add_fields(std::vector<std::string>& words, const FileRecord& file);
void add_fields(std::vector<std::string>& words, const BatchRecord& batch);
/// From HGETALL. A field that is not there leaves the record's default.
FileRecord file_of(const RedisValue& hash);
BatchRecord batch_of(const RedisValue& hash);

/// "1 3 0 2\ntext", as kPutResults makes it.
LineResult line_result_of(uint64_t line, std::string_view packed);

}  // namespace moestro::orchestrator
