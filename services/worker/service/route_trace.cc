#include "services/worker/service/route_trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "common/json_escape.h"
#include "common/log.h"

namespace moestro::worker {
namespace {

void append_number(std::string& out, const char* format, double value) {
  char text[32];
  const int n = std::snprintf(text, sizeof text, format, value);
  out.append(text, static_cast<size_t>(n));
}

}  // namespace

Result<std::unique_ptr<RouteTrace>> RouteTrace::create(const std::filesystem::path& path, const std::string& model,
                                                       const model::ModelSpec& spec) {
  if (path.extension() == ".zst")
    return unsupported("--trace " + path.string() + ": a compressed trace; name it .jsonl and run zstd on it");
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return invalid_argument(io_error("--trace " + path.string(), errno).message());
  std::unique_ptr<RouteTrace> trace(new RouteTrace(fd));
  trace->buffer_ = "{\"format\":\"moestro-routes\",\"version\":1,\"model\":\"" + json_escaped(model) +
                   "\",\"layers\":" + std::to_string(spec.moe_layers()) +
                   ",\"experts\":" + std::to_string(spec.moe().experts) +
                   ",\"top_k\":" + std::to_string(spec.moe().top_k) + "}\n";
  if (!trace->write_out()) return io_error("--trace " + path.string(), errno);
  return trace;
}

RouteTrace::~RouteTrace() {
  for (auto& [id, lines] : waiting_) stand(lines, INT64_MAX);  // nobody has said that they do not
  flush();
  ::close(fd_);
}

void RouteTrace::append_token(const engine::RoutedTokens& t, int64_t index) {
  buffer_ += "{\"r\":" + std::to_string(t.sequence.value) + ",\"ph\":\"" + (t.decode ? "decode" : "prefill") +
             "\",\"t\":" + std::to_string(t.first_position + index) + ",\"e\":[";
  const auto cell = [&](int64_t layer, int64_t rank) {
    return static_cast<size_t>((layer * t.step_tokens + t.first_row + index) * t.top_k + rank);
  };
  for (int64_t layer = 0; layer < t.moe_layers; ++layer) {
    buffer_ += layer == 0 ? "[" : ",[";
    for (int64_t rank = 0; rank < t.top_k; ++rank) {
      if (rank > 0) buffer_ += ',';
      buffer_ += std::to_string(t.ids[cell(layer, rank)]);
    }
    buffer_ += ']';
  }
  buffer_ += "],\"w\":[";
  for (int64_t layer = 0; layer < t.moe_layers; ++layer) {
    buffer_ += layer == 0 ? "[" : ",[";
    for (int64_t rank = 0; rank < t.top_k; ++rank) {
      if (rank > 0) buffer_ += ',';
      append_number(buffer_, "%.6g", static_cast<double>(t.weights[cell(layer, rank)]));
    }
    buffer_ += ']';
  }
  buffer_ += "]}\n";
}

void RouteTrace::write(const engine::RoutedTokens& tokens) {
  if (failed_) return;
  std::vector<Line>& lines = waiting_[tokens.sequence];
  // What was computed beyond where it goes on from was dropped.
  std::erase_if(lines, [&](const Line& line) { return line.position >= tokens.first_position; });
  if (!tokens.text_ends) stand(lines, tokens.first_position);
  flush();
  for (int64_t i = 0; i < tokens.tokens; ++i) {
    append_token(tokens, i);
    lines.push_back({tokens.first_position + i, std::exchange(buffer_, {})});
  }
}

/// Lines before position `length` are written.
void RouteTrace::stand(std::vector<Line>& lines, int64_t length) {
  for (const Line& line : lines)
    if (line.position < length) buffer_ += line.text;
  lines.clear();
}

void RouteTrace::release(const ReleasedSequence& released) {
  auto node = waiting_.extract(released.id);
  if (node.empty()) return;
  stand(node.mapped(), released.length);
  flush();
}

void RouteTrace::flush() {
  if (failed_ || write_out()) return;
  failed_ = true;
  log::warn("trace: write failed ({}); no more routes are recorded", std::strerror(errno));
}

bool RouteTrace::write_out() {
  size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t n = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (n > 0) done += static_cast<size_t>(n);
    else if (errno != EINTR) return false;
  }
  buffer_.clear();
  return true;
}

}  // namespace moestro::worker
