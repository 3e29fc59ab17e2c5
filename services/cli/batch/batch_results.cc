#include "services/cli/batch/batch_results.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "services/cli/common/json_text.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool is_success(const json& line) {
  const auto response = line.find("response");
  if (response == line.end() || !response->is_object()) return false;
  const uint64_t status = count_or(*response, "status_code");
  return status >= 200 && status < 300;
}

/// Syncs the directory, so that a new file's name survives a crash as its bytes do.
void sync_directory_of(const fs::path& path) {
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const int fd = ::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

BatchResult make_batch_result(uint64_t line_number, const std::string& custom_id, const HttpReply& reply) {
  BatchResult result;
  json line{{"id", "batch_req_" + std::to_string(line_number)},
            {"custom_id", custom_id},
            {"response", nullptr},
            {"error", nullptr}};
  Result<json> body = parse_json(reply.body);
  if (body.is_ok()) {
    const auto usage = body->is_object() ? body->find("usage") : body->end();
    if (body->is_object() && usage != body->end()) {
      result.prompt_tokens = count_or(*usage, "prompt_tokens");
      result.completion_tokens = count_or(*usage, "completion_tokens");
    }
    const std::string id = reply.request_id.empty() ? text_or(*body, "id") : reply.request_id;
    line["response"] = {{"status_code", reply.status}, {"request_id", id}, {"body", std::move(*body)}};
    result.failed = reply.status < 200 || reply.status >= 300;
  } else {
    result.failed = true;
    line["error"] = {{"code", "bad_answer"},
                     {"message", "status " + std::to_string(reply.status) +
                                     " with a body that is not JSON: " + reply.body.substr(0, 200)}};
  }
  result.line = json_text(line);
  return result;
}

Result<BatchResults> BatchResults::open(const fs::path& path) {
  BatchResults results(path);
  std::error_code error;
  const bool is_new = !fs::exists(path, error);
  results.fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (results.fd_ < 0) return io_error("cannot write results to " + path.string(), errno);
  if (!fs::is_regular_file(path, error))
    return invalid_argument("output " + path.string() + " is not a plain file");
  if (::flock(results.fd_, LOCK_EX | LOCK_NB) != 0)
    return unavailable("another run writes to " + path.string() + "; let it end, or give another -o");
  if (is_new) sync_directory_of(path);
  MOESTRO_RETURN_IF_ERROR(results.read_back());
  return results;
}

BatchResults::BatchResults(BatchResults&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      was_torn_(other.was_torn_),
      done_(std::move(other.done_)) {}

BatchResults::~BatchResults() {
  if (fd_ >= 0) ::close(fd_);
}

Status BatchResults::read_back() {
  std::ifstream in(path_, std::ios::binary);
  uint64_t number = 0;
  off_t whole = 0;  // bytes up to the end of the last whole line
  for (std::string text; std::getline(in, text);) {
    ++number;
    if (in.eof()) {  // no line break behind it
      was_torn_ = true;
      break;
    }
    whole += static_cast<off_t>(text.size()) + 1;
    const Result<json> line = parse_json(text);
    const std::string custom_id = line.is_ok() ? text_or(*line, "custom_id") : "";
    if (custom_id.empty() || !line->contains("response"))
      return corrupt(path_.string() + " line " + std::to_string(number) +
                     " is not a batch result; give another -o, or move the file away");
    done_[custom_id] = !is_success(*line);
  }
  if (in.bad()) return io_error("reading " + path_.string(), errno);
  if (was_torn_ && ::ftruncate(fd_, whole) != 0)
    return io_error("cannot cut the torn last line off " + path_.string(), errno);
  return Status::ok();
}

Status BatchResults::append(const BatchResult& result) {
  const std::string text = result.line + "\n";
  for (size_t written = 0; written < text.size();) {
    const ssize_t n = ::write(fd_, text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return io_error(
          "writing results to " + path_.string() + " (run again when it is mended: finished lines are kept)",
          errno);
    written += static_cast<size_t>(n);
  }
  if (::fdatasync(fd_) != 0) return io_error("syncing " + path_.string(), errno);
  return Status::ok();
}

}  // namespace moestro::cli
