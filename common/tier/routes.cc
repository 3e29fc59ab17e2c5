#include "common/tier/routes.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "common/tier/line_reader.h"

namespace moestro::tier {
namespace {

using nlohmann::json;

constexpr int64_t kLayersMax = 4096, kExpertsMax = 65535, kTopKMax = 256;
constexpr uint64_t kChoicesMax = uint64_t{1} << 31;  ///< of a trace, each two bytes

Result<int64_t> number(const json& line, const char* name, int64_t least, int64_t most) {
  const auto it = line.find(name);
  if (it == line.end()) return invalid_argument(std::string("\"") + name + "\" is missing");
  const bool fits =
      it->is_number_integer() && !(it->is_number_unsigned() && it->get<uint64_t>() > static_cast<uint64_t>(most));
  if (!fits || it->get<int64_t>() < least || it->get<int64_t>() > most)
    return invalid_argument(std::string("\"") + name + "\" is not a whole number from " + std::to_string(least) +
                            " to " + std::to_string(most));
  return it->get<int64_t>();
}

class Reader {
 public:
  Status head(const json& line) {
    const auto format = line.find("format");
    if (format == line.end() || *format != "moestro-routes")
      return invalid_argument("not a routing trace: \"format\" is not \"moestro-routes\"");
    MOESTRO_ASSIGN_OR_RETURN(const int64_t version, number(line, "version", 1, 1 << 30));
    if (version != 1)
      return unsupported("version " + std::to_string(version) + " of the format; this program reads version 1");
    MOESTRO_ASSIGN_OR_RETURN(const int64_t layers, number(line, "layers", 1, kLayersMax));
    MOESTRO_ASSIGN_OR_RETURN(const int64_t experts, number(line, "experts", 1, kExpertsMax));
    MOESTRO_ASSIGN_OR_RETURN(const int64_t top_k, number(line, "top_k", 1, std::min(experts, kTopKMax)));
    routes.layers = static_cast<int32_t>(layers), routes.experts = static_cast<int32_t>(experts),
    routes.top_k = static_cast<int32_t>(top_k);
    if (const auto model = line.find("model"); model != line.end() && model->is_string())
      routes.model = model->get<std::string>();
    return Status::ok();
  }

  Status token(const json& line) {
    MOESTRO_ASSIGN_OR_RETURN(const int64_t id, number(line, "r", 0, std::numeric_limits<int64_t>::max()));
    MOESTRO_ASSIGN_OR_RETURN(const int64_t position, number(line, "t", 0, std::numeric_limits<int32_t>::max()));
    const auto phase = line.find("ph");
    if (phase == line.end() || (*phase != "prefill" && *phase != "decode"))
      return invalid_argument("\"ph\" is neither \"prefill\" nor \"decode\"");
    int64_t token = -1;
    if (line.contains("x")) {
      MOESTRO_ASSIGN_OR_RETURN(token, number(line, "x", 0, std::numeric_limits<int32_t>::max()));
    }
    const size_t first = routes.choices.size();
    if (first + static_cast<size_t>(routes.layers) * static_cast<size_t>(routes.top_k) > kChoicesMax)
      return exhausted("more tokens than fit in memory; cut the trace in parts");
    if (Status s = experts(line); !s.is_ok()) return routes.choices.resize(first), s;
    if (routes.weights.size() == first) add_weights(line);
    const auto [it, fresh] = place_.try_emplace(static_cast<uint64_t>(id), routes.requests.size());
    if (fresh) routes.requests.push_back({static_cast<uint64_t>(id), {}});
    routes.requests[it->second].tokens.push_back(
        {*phase == "decode", static_cast<int32_t>(position), static_cast<uint32_t>(first),
         static_cast<int32_t>(token)});
    return Status::ok();
  }

  Routes routes;

 private:
  Status experts(const json& line) {
    const auto layers = line.find("e");
    if (layers == line.end() || !layers->is_array()) return invalid_argument("\"e\" is not a list of layers");
    if (layers->size() != static_cast<size_t>(routes.layers))
      return invalid_argument("\"e\" has " + std::to_string(layers->size()) + " layers, the first line says " +
                              std::to_string(routes.layers));
    for (size_t l = 0; l < layers->size(); ++l) {
      const json& row = (*layers)[l];
      const auto where = [&] { return "\"e\", layer " + std::to_string(l) + ": "; };
      if (!row.is_array() || row.size() != static_cast<size_t>(routes.top_k))
        return invalid_argument(where() + "not " + std::to_string(routes.top_k) + " experts");
      for (const json& expert : row) {
        if (!expert.is_number_unsigned() || expert.get<uint64_t>() >= static_cast<uint64_t>(routes.experts))
          return invalid_argument(where() + "an expert that is not from 0 to " + std::to_string(routes.experts - 1));
        routes.choices.push_back(static_cast<uint16_t>(expert.get<uint64_t>()));
      }
    }
    return Status::ok();
  }

  /// Of a token without usable weights, none: from then on the trace has none.
  void add_weights(const json& line) {
    const auto layers = line.find("w");
    if (layers == line.end() || !layers->is_array()) return;
    for (const json& row : *layers) {
      if (!row.is_array()) return;
      for (const json& weight : row) {
        if (!weight.is_number()) return;
        routes.weights.push_back(weight.get<float>());
      }
    }
  }

  std::unordered_map<uint64_t, size_t> place_;
};

}  // namespace

Result<Routes> read_routes(const std::filesystem::path& path) {
  MOESTRO_ASSIGN_OR_RETURN(LineReader lines, LineReader::open(path));
  Reader reader;
  Status bad;  // of the line before: of the last one it is forgiven, if it is no JSON
  for (uint64_t number = 1;; ++number) {
    MOESTRO_ASSIGN_OR_RETURN(const auto text, lines.next());
    if (!text) break;
    if (!bad.is_ok()) return bad;
    if (text->empty() && number > 1) continue;
    const std::string where = path.string() + " line " + std::to_string(number);
    const json line = json::parse(*text, nullptr, false);
    if (!line.is_object()) {
      bad = invalid_argument(where + ": not a JSON object");
      if (number == 1 || !line.is_discarded()) return bad;
      continue;
    }
    MOESTRO_RETURN_IF_ERROR((number == 1 ? reader.head(line) : reader.token(line)).with_context(where));
  }
  if (reader.routes.layers == 0)
    return invalid_argument(path.string() + ": empty; the first line of a routing trace names its format");
  if (reader.routes.requests.empty()) return invalid_argument(path.string() + ": no tokens behind its first line");
  if (reader.routes.weights.size() != reader.routes.choices.size()) reader.routes.weights.clear();
  return std::move(reader.routes);
}

Status append_routes(Routes& routes, const Routes& more) {
  if (routes.layers != more.layers || routes.experts != more.experts || routes.top_k != more.top_k)
    return invalid_argument("traces of different shapes: " + std::to_string(routes.layers) + " layers of " +
                            std::to_string(routes.experts) + " experts, top " + std::to_string(routes.top_k) +
                            ", and " + std::to_string(more.layers) + " of " + std::to_string(more.experts) + ", top " +
                            std::to_string(more.top_k));
  if (routes.weights.empty() || more.weights.empty()) routes.weights.clear();
  else routes.weights.insert(routes.weights.end(), more.weights.begin(), more.weights.end());
  const auto offset = static_cast<uint32_t>(routes.choices.size());
  routes.choices.insert(routes.choices.end(), more.choices.begin(), more.choices.end());
  uint64_t id = 0;
  for (const RoutedRequest& request : routes.requests) id = std::max(id, request.id);
  for (RoutedRequest request : more.requests) {
    request.id = ++id;
    for (RoutedToken& token : request.tokens) token.first += offset;
    routes.requests.push_back(std::move(request));
  }
  return Status::ok();
}

}  // namespace moestro::tier
