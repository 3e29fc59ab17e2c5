#include "services/cli/bench/serve/served.h"

#include <nlohmann/json.hpp>

#include "services/cli/common/json_text.h"

namespace moestro::cli {
namespace {

using nlohmann::json;

Served served_of(const Url& url, const json& entry) {
  Served served{.url = url, .model = text_or(entry, "id")};
  const auto meta = entry.find("meta");
  if (meta != entry.end() && meta->is_object()) {
    served.vocab = static_cast<int64_t>(count_or(*meta, "n_vocab"));
    served.limits.context = static_cast<int64_t>(count_or(*meta, "n_ctx"));
    served.limits.source = static_cast<int64_t>(count_or(*meta, "n_source_max"));
  }
  if (served.limits.context == 0) served.limits.context = static_cast<int64_t>(count_or(entry, "max_model_len"));
  return served;
}

}  // namespace

Result<Served> ask_served(const Url& url, const std::string& model, const HttpAccess& access) {
  HttpClient client(url, {}, access);
  MOESTRO_ASSIGN_OR_RETURN(const HttpReply reply, client.get("/v1/models"));
  const std::string where = "http://" + url.authority() + url.base + "/v1/models";
  if (reply.status != 200) return answered_with(reply.status, reply.body).with_context(where);
  const auto body = parse_json(reply.body);
  if (!body.is_ok() || !body->is_object() || !body->contains("data") || !(*body)["data"].is_array())
    return corrupt(where + ": not a list of models");
  std::string names;
  for (const json& entry : (*body)["data"]) {
    const std::string id = text_or(entry, "id");
    if (!id.empty() && (model.empty() || id == model)) return served_of(url, entry);
    names += (names.empty() ? "" : ", ") + id;
  }
  return not_found(where + (model.empty()
                                ? ": it serves no model"
                                : ": there is no model '" + model + "', but " + (names.empty() ? "none" : names)));
}

Result<std::unique_ptr<PrivateBox>> start_box(config::BoxConfig config) {
  config.orchestrator.http = "127.0.0.1:0";
  MOESTRO_ASSIGN_OR_RETURN(auto box, PrivateBox::create(std::move(config)));
  MOESTRO_RETURN_IF_ERROR(box->start_store());
  MOESTRO_RETURN_IF_ERROR(box->start_orchestrator());
  for (size_t worker = 0; worker < box->workers(); ++worker)
    MOESTRO_RETURN_IF_ERROR(box->start_worker(worker).status());
  return box;
}

Url url_of(const PrivateBox& box) {
  Url url;
  url.host = "127.0.0.1";
  url.port = std::to_string(box.http_port());
  return url;
}

}  // namespace moestro::cli
