#include "services/cli/batch/batch_input.h"

#include <cerrno>
#include <nlohmann/json.hpp>
#include <variant>

#include "common/model/strict_json.h"
#include "orchestrator/api/request_json.h"
#include "services/cli/common/json_text.h"

namespace moestro::cli {

namespace fs = std::filesystem;

/// Members keep their order: a schema's properties are answered in it.
Result<BatchLine> parse_batch_line(const std::string& text, uint64_t number) {
  auto parsed = orchestrator::parse_body(text, "it");
  if (const auto* error = std::get_if<orchestrator::ApiError>(&parsed)) return invalid_argument(error->message);
  const orchestrator::RequestJson& line = std::get<orchestrator::RequestJson>(parsed);
  const auto text_of = [&line](const char* key, std::string otherwise = {}) {
    const auto it = line.find(key);
    return it != line.end() && it->is_string() ? it->get<std::string>() : otherwise;
  };
  BatchLine result;
  result.number = number;
  result.custom_id = text_of("custom_id");
  if (result.custom_id.empty() || result.custom_id.size() > 512)
    return invalid_argument("'custom_id' must be a text of 1 to 512 bytes");
  const std::string method = text_of("method", "POST");
  if (method != "POST") return invalid_argument("'method' is " + model::in_quotes(method) + "; only 'POST' can be");
  result.path = text_of("url");
  if (!result.path.starts_with("/v1/") || result.path.size() > 200 ||
      result.path.find_first_of(" \r\n?#\t") != std::string::npos)
    return invalid_argument("'url' must be a path as '/v1/completions', not " + model::in_quotes(result.path));
  const auto body = line.find("body");
  if (body == line.end() || !body->is_object()) return invalid_argument("'body' must be an object");
  const auto stream = body->find("stream");
  if (stream != body->end() && *stream == true)
    return invalid_argument("'body' asks for a stream; a batch has none");
  result.body = body->dump();
  return result;
}

Result<BatchInput> BatchInput::open(const fs::path& path) {
  BatchInput input(path);
  std::error_code error;
  if (!fs::is_regular_file(path, error))
    return not_found("input " + path.string() +
                     (fs::exists(path, error) ? " is not a plain file" : " is not there"));
  input.in_.open(path, std::ios::binary);
  if (!input.in_) return io_error("cannot read " + path.string(), errno);
  return input;
}

Result<std::optional<BatchLine>> BatchInput::next() {
  std::string text;
  while (std::getline(in_, text)) {
    ++number_;
    if (number_ == 1 && text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = path_.string() + " line " + std::to_string(number_);
    if (text.size() > kBatchLineBytesMax) return invalid_argument(where + ": longer than 64 MiB");
    Result<BatchLine> line = parse_batch_line(text, number_);
    if (!line.is_ok()) return line.status().with_context(where);
    return std::optional<BatchLine>(std::move(*line));
  }
  if (in_.bad()) return io_error("reading " + path_.string(), errno);
  return std::optional<BatchLine>();
}

std::string endpoint_of_batch(const fs::path& path) {
  constexpr int kLinesMax = 1000;
  std::ifstream in(path, std::ios::binary);
  std::string text;
  for (int i = 0; i < kLinesMax && std::getline(in, text); ++i) {
    const std::string_view line = i == 0 && text.starts_with("\xef\xbb\xbf") ? std::string_view(text).substr(3) : text;
    const auto parsed = parse_json(line);
    if (!parsed.is_ok() || !parsed->is_object()) continue;
    if (std::string url = text_or(*parsed, "url"); !url.empty()) return url;
  }
  return {};
}

Result<std::unordered_map<std::string, uint64_t>> survey_batch(const fs::path& path) {
  MOESTRO_ASSIGN_OR_RETURN(BatchInput input, BatchInput::open(path));
  std::unordered_map<std::string, uint64_t> numbers;
  Status first;
  uint64_t bad = 0;
  for (;;) {
    Result<std::optional<BatchLine>> line = input.next();
    Status wrong = line.status();
    if (line.is_ok()) {
      if (!line->has_value()) break;
      const auto [it, fresh] = numbers.emplace((*line)->custom_id, (*line)->number);
      if (!fresh)
        wrong =
            invalid_argument(path.string() + " line " + std::to_string((*line)->number) + ": custom_id " +
                             model::in_quotes(it->first) + " stands already in line " + std::to_string(it->second));
    } else if (wrong.code() == Code::kIo) {
      return wrong;
    }
    if (wrong.is_ok()) continue;
    if (bad++ == 0) first = wrong;
  }
  if (bad > 1)
    return invalid_argument(first.message() + " (and " + std::to_string(bad - 1) +
                            " more bad lines); nothing was run");
  if (bad == 1) return invalid_argument(first.message() + "; nothing was run");
  if (numbers.empty()) return invalid_argument("input " + path.string() + " holds no lines");
  return numbers;
}

}  // namespace moestro::cli
