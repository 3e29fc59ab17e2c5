// fuzz-deps: moestro_batch_text
// A batch's input file, line by line, up to what is run; and what is kept of each line.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "common/check.h"
#include "orchestrator/batch/batch_line.h"
#include "orchestrator/batch/line_reader.h"

namespace api = moestro::orchestrator;

namespace {

constexpr size_t kLineMax = 4096;

class BytesInMemory final : public api::FileBytes {
 public:
  explicit BytesInMemory(std::string bytes) : bytes_(std::move(bytes)) {}
  moestro::Result<std::string> read(uint64_t offset, size_t size) override {
    return bytes_.substr(std::min<uint64_t>(offset, bytes_.size()), size);
  }

 private:
  std::string bytes_;
};

void look_at(const api::LineReader::Line& line, const std::string& endpoint) {
  const std::string batch = "batch_0";
  const api::LinePlace place{batch, line.number};
  const auto read = api::read_batch_line(line.text, endpoint, "m");
  const auto* good = std::get_if<api::BatchLine>(&read);
  std::string kept;
  if (good != nullptr) {
    MOESTRO_CHECK(!good->custom_id.empty() && good->custom_id.size() <= api::kCustomIdBytesMax, "an id that cannot be");
    MOESTRO_CHECK(good->sequences > 0, "a line that counts for nothing");
    MOESTRO_CHECK(nlohmann::json::accept(good->body), "a body that is no JSON");
    kept = api::answered_line(place, good->custom_id, 200, line.text).text;
  } else {
    const auto& problem = std::get<api::LineProblem>(read);
    MOESTRO_CHECK(!problem.code.empty() && !problem.message.empty(), "a refusal without a reason");
    kept = api::refused_line(place, problem).text;
  }
  MOESTRO_CHECK(nlohmann::json::accept(kept) && kept.find('\n') == std::string::npos,
                "what is kept is not one line of JSON");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  api::LineReader lines(std::make_unique<BytesInMemory>(std::string(reinterpret_cast<const char*>(data), size)),
                        kLineMax);
  for (uint64_t last = 0;;) {
    const auto line = lines.next();
    MOESTRO_CHECK(line.is_ok(), "a file in memory cannot be read");
    if (!*line) return 0;
    MOESTRO_CHECK((*line)->number > last && (*line)->text.size() <= kLineMax, "lines out of order or too long");
    last = (*line)->number;
    for (const char* endpoint : {"/v1/completions", "/v1/chat/completions"}) look_at(**line, endpoint);
  }
}
