#include "services/cli/batch/batch_client.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "services/cli/batch/batch_targets.h"
#include "services/cli/common/json_text.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Ids go into paths: what cannot be one is not sent.
Status check_id(const std::string& id) {
  const bool fine =
      !id.empty() && id.size() <= 100 &&
      id.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == std::string::npos;
  return fine ? Status::ok() : invalid_argument("'" + id.substr(0, 100) + "' is not an id");
}

std::string random_boundary() {
  std::random_device device;
  std::string text = "moestro-";
  for (int i = 0; i < 32; ++i) text += "0123456789abcdef"[device() % 16];
  return text;
}

}  // namespace

Result<json> BatchClient::body_of(const Result<HttpReply>& reply) const {
  MOESTRO_RETURN_IF_ERROR(reply.status());
  if (reply->status != 200) return answered_with(reply->status, reply->body);
  MOESTRO_ASSIGN_OR_RETURN(json body, parse_json(reply->body));
  if (!body.is_object()) return corrupt("the server's answer is not an object");
  return body;
}

Result<std::string> BatchClient::upload(const fs::path& file, const std::function<void(uint64_t)>& progress) {
  std::error_code error;
  if (!fs::is_regular_file(file, error))
    return not_found("input " + file.string() + (fs::exists(file, error) ? " is not a plain file" : " is not there"));
  const uint64_t size = fs::file_size(file, error);
  std::ifstream in(file, std::ios::binary);
  if (error || !in) return io_error("cannot read " + file.string(), error ? error.value() : errno);
  const std::string boundary = random_boundary();
  const std::string head =
      "--" + boundary + "\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--" + boundary +
      "\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" +
      (file.filename().string().find_first_of("\"\\\r\n") == std::string::npos ? file.filename().string()
                                                                               : "in.jsonl") +
      "\"\r\nContent-Type: application/jsonl\r\n\r\n";
  const std::string tail = "\r\n--" + boundary + "--\r\n";
  uint64_t read = 0;
  bool begun = false;
  const auto next = [&]() -> Result<std::string> {
    if (!std::exchange(begun, true)) return head;
    if (read == size) return tail;
    std::string piece(std::min<uint64_t>(256 << 10, size - read), '\0');
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    piece.resize(static_cast<size_t>(in.gcount()));
    read += piece.size();
    progress(read);
    return piece;
  };
  MOESTRO_ASSIGN_OR_RETURN(const json body,
                           body_of(http_.upload("/v1/files", "multipart/form-data; boundary=" + boundary,
                                                head.size() + size + tail.size(), next)));
  const std::string id = text_or(body, "id");
  if (id.empty()) return corrupt("the server's answer has no file id");
  return id;
}

Status BatchClient::remove_file(const std::string& id) {
  MOESTRO_RETURN_IF_ERROR(check_id(id));
  return body_of(http_.remove("/v1/files/" + id)).status();
}

Result<json> BatchClient::create(const json& order) { return body_of(http_.post("/v1/batches", json_text(order))); }

Result<json> BatchClient::batch(const std::string& id) {
  MOESTRO_RETURN_IF_ERROR(check_id(id));
  return body_of(http_.get("/v1/batches/" + id));
}

Result<json> BatchClient::cancel(const std::string& id, bool drop_results) {
  MOESTRO_RETURN_IF_ERROR(check_id(id));
  const json order = drop_results ? json{{"drop_results", true}} : json::object();
  return body_of(http_.post("/v1/batches/" + id + "/cancel", order.dump()));
}

Result<json> BatchClient::list(int64_t limit) {
  return body_of(http_.get("/v1/batches?limit=" + std::to_string(limit)));
}

Status BatchClient::download(const std::string& id, const fs::path& target) {
  MOESTRO_RETURN_IF_ERROR(check_id(id));
  const fs::path part = part_of_target(target);
  std::ofstream out(part, std::ios::binary | std::ios::trunc);
  if (!out) return io_error("cannot write " + part.string(), errno);
  const auto reply = http_.get_stream("/v1/files/" + id + "/content", [&](std::string_view piece) -> Status {
    out.write(piece.data(), static_cast<std::streamsize>(piece.size()));
    return out ? Status::ok() : io_error("writing " + part.string(), errno);
  });
  Status status = reply.status();
  if (status.is_ok() && reply->status != 200) status = answered_with(reply->status, reply->body);
  out.close();
  if (status.is_ok() && !out) status = io_error("writing " + part.string(), errno);
  if (status.is_ok()) return finish_target(target);
  std::error_code ignored;
  fs::remove(part, ignored);
  return status;
}

}  // namespace moestro::cli
