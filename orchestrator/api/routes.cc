// The list of what Service serves. A new route is one entry here, and one file in orchestrator/openapi.

#include <algorithm>

#include "common/percent_decode.h"
#include "orchestrator/api/service.h"

namespace moestro::orchestrator {

const std::vector<Service::Served>& Service::served() {
  using Rest = const std::string&;
  static const std::vector<Served> kServed{
      {"POST", {"/v1/completions", "/completions"}, [](Service& s, const Call& c, Rest) { s.complete_own(c, false); }},
      {"POST",
       {"/v1/chat/completions", "/chat/completions"},
       [](Service& s, const Call& c, Rest) { s.complete_own(c, true); }},
      {"POST", {"/v1/embeddings", "/embeddings"}, [](Service& s, const Call& c, Rest) { s.embed(c); }},
      {"POST", {"/tokenize"}, [](Service& s, const Call& c, Rest) { s.answer_text(c, &Service::tokens_of); }},
      {"POST", {"/detokenize"}, [](Service& s, const Call& c, Rest) { s.answer_text(c, &Service::text_of); }},
      {"POST", {"/apply-template"}, [](Service& s, const Call& c, Rest) { s.answer_text(c, &Service::prompt_of); }},
      {"GET", {"/v1/models", "/models"}, [](Service& s, const Call& c, Rest) { s.models(c); }},
      {"GET",
       {"/v1/models/{model}", "/models/{model}"},  // its slashes may be escaped or not
       [](Service& s, const Call& c, Rest id) { s.model(c, percent_decoded(id).value_or(id)); }},
      {"GET", {"/health", "/v1/health", "/ping"}, [](Service& s, const Call& c, Rest) { s.health(c); }},
      {"GET", {"/version"}, [](Service& s, const Call& c, Rest) { s.version(c); }},
      {"GET", {"/load"}, [](Service& s, const Call& c, Rest) { s.load(c); }},
      {"GET", {"/metrics"}, [](Service& s, const Call& c, Rest) { s.metrics(c); }},
      {"GET", {"/v1/moestro/status"}, [](Service& s, const Call& c, Rest) { s.status(c); }},
      {"GET", {"/openapi.json"}, [](Service& s, const Call& c, Rest) { s.openapi(c); }},
      {"GET", {"/"}, [](Service& s, const Call& c, Rest) { s.page(c); }},
  };
  return kServed;
}

const Service::Served* Service::find_route(const std::string& path, std::string& rest) {
  const auto serves = [&](const std::string& known) {
    const size_t open = known.find('{');
    rest = open == std::string::npos || path.size() <= open ? "" : path.substr(open);
    return open == std::string::npos ? path == known : !rest.empty() && path.starts_with(known.substr(0, open));
  };
  const auto has_it = [&](const Served& s) { return std::ranges::any_of(s.paths, serves); };
  const auto found = std::ranges::find_if(served(), has_it);
  return found == served().end() ? nullptr : &*found;
}

std::vector<ServedRoute> Service::routes() {
  std::vector<ServedRoute> routes;
  for (const Served& s : served())
    for (const std::string& path : s.paths) routes.push_back({s.method, path});
  return routes;
}

}  // namespace moestro::orchestrator
