#include "orchestrator/state/redis_records.h"

#include <charconv>

namespace moestro::orchestrator {
namespace {

template <typename Record, typename Value>
struct Field {
  const char* name;
  Value Record::*member;
};

constexpr Field<FileRecord, std::string> kFileTexts[] = {{"id", &FileRecord::id},
                                                         {"name", &FileRecord::name},
                                                         {"purpose", &FileRecord::purpose},
                                                         {"checksum", &FileRecord::checksum},
                                                         {"owner", &FileRecord::owner}};
constexpr Field<FileRecord, int64_t> kFileTimes[] = {{"created_at", &FileRecord::created_at},
                                                     {"expires_at", &FileRecord::expires_at}};
constexpr Field<FileRecord, uint64_t> kFileCounts[] = {{"bytes", &FileRecord::bytes}};

constexpr Field<BatchRecord, std::string> kTexts[] = {
    {"id", &BatchRecord::id},
    {"endpoint", &BatchRecord::endpoint},
    {"model", &BatchRecord::model},
    {"input_file", &BatchRecord::input_file},
    {"completion_window", &BatchRecord::completion_window},
    {"metadata", &BatchRecord::metadata},
    {"output_file", &BatchRecord::output_file},
    {"error_file", &BatchRecord::error_file},
    {"error_code", &BatchRecord::error_code},
    {"error_message", &BatchRecord::error_message},
    {"owner", &BatchRecord::owner},
};
constexpr Field<BatchRecord, int64_t> kTimes[] = {
    {"created_at", &BatchRecord::created_at},     {"in_progress_at", &BatchRecord::in_progress_at},
    {"expires_at", &BatchRecord::expires_at},     {"finalizing_at", &BatchRecord::finalizing_at},
    {"completed_at", &BatchRecord::completed_at}, {"failed_at", &BatchRecord::failed_at},
    {"expired_at", &BatchRecord::expired_at},     {"cancelling_at", &BatchRecord::cancelling_at},
    {"cancelled_at", &BatchRecord::cancelled_at}, {"output_seconds", &BatchRecord::output_seconds},
};
constexpr Field<BatchRecord, uint64_t> kTotals[] = {{"total", &BatchRecord::total}};
/// What put_results counts, in its script.
constexpr Field<BatchRecord, uint64_t> kCounts[] = {
    {"completed", &BatchRecord::completed},         {"failed", &BatchRecord::failed},
    {"prompt_tokens", &BatchRecord::prompt_tokens}, {"cached_tokens", &BatchRecord::cached_tokens},
    {"completion_tokens", &BatchRecord::completion_tokens},
};

template <typename Number>
Number number_of(std::string_view text) {
  Number n = 0;
  std::from_chars(text.data(), text.data() + text.size(), n);
  return n;
}

template <typename Record, typename Value, size_t N>
void write(std::vector<std::string>& words, const Record& record, const Field<Record, Value> (&fields)[N]) {
  for (const auto& field : fields) {
    words.emplace_back(field.name);
    if constexpr (std::is_same_v<Value, std::string>) words.push_back(record.*field.member);
    else words.push_back(std::to_string(record.*field.member));
  }
}

template <typename Record, typename Value, size_t N>
void read(Record& record, std::string_view name, std::string_view value, const Field<Record, Value> (&fields)[N]) {
  for (const auto& field : fields) {
    if (name != field.name) continue;
    if constexpr (std::is_same_v<Value, std::string>) record.*field.member = value;
    else record.*field.member = number_of<Value>(value);
  }
}

BatchStatus status_of(std::string_view text) { return static_cast<BatchStatus>(number_of<uint8_t>(text) & 7); }

/// Puts how many words `add` has added before them.
template <typename Add>
void counted(std::vector<std::string>& words, Add add) {
  const size_t at = words.size();
  words.emplace_back();
  add();
  words[at] = std::to_string(words.size() - at - 1);
}

}  // namespace

void add_fields(std::vector<std::string>& words, const FileRecord& file) {
  counted(words, [&] {
    write(words, file, kFileTexts);
    write(words, file, kFileTimes);
    write(words, file, kFileCounts);
  });
}

void add_fields(std::vector<std::string>& words, const BatchRecord& batch) {
  counted(words, [&] {
    write(words, batch, kTexts);
    write(words, batch, kTimes);
    write(words, batch, kTotals);
    for (const auto& [name, status] : {std::pair("status", batch.status), std::pair("outcome", batch.outcome)}) {
      words.emplace_back(name);
      words.push_back(std::to_string(static_cast<int>(status)));
    }
  });
}

FileRecord file_of(const RedisValue& hash) {
  FileRecord file;
  for (size_t i = 0; i + 1 < hash.size(); i += 2) {
    const std::string_view name = hash[i].text(), value = hash[i + 1].text();
    read(file, name, value, kFileTexts);
    read(file, name, value, kFileTimes);
    read(file, name, value, kFileCounts);
  }
  return file;
}

BatchRecord batch_of(const RedisValue& hash) {
  BatchRecord batch;
  for (size_t i = 0; i + 1 < hash.size(); i += 2) {
    const std::string_view name = hash[i].text(), value = hash[i + 1].text();
    read(batch, name, value, kTexts);
    read(batch, name, value, kTimes);
    read(batch, name, value, kTotals);
    read(batch, name, value, kCounts);
    if (name == "status") batch.status = status_of(value);
    if (name == "outcome") batch.outcome = status_of(value);
  }
  return batch;
}

LineResult line_result_of(uint64_t line, std::string_view packed) {
  LineResult result{line, false, "", 0, 0, 0};
  const size_t end = std::min(packed.find('\n'), packed.size());
  std::string_view figures = packed.substr(0, end);
  uint64_t good = 0;
  for (uint64_t* n : {&good, &result.prompt_tokens, &result.cached_tokens, &result.completion_tokens}) {
    const size_t space = std::min(figures.find(' '), figures.size());
    *n = number_of<uint64_t>(figures.substr(0, space));
    figures.remove_prefix(std::min(space + 1, figures.size()));
  }
  result.good = good != 0;
  result.text = packed.substr(std::min(end + 1, packed.size()));
  return result;
}

}  // namespace moestro::orchestrator
