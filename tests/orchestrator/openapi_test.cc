// The OpenAPI document and the routes that are served name the same paths and methods. What it says of them is checked
// on real processes (tests/integration/openapi_test.py).

#include "orchestrator/openapi/openapi.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "orchestrator/api/service.h"
#include "orchestrator/batch/batch_api.h"
#include "orchestrator/dialects/dialect_api.h"
#include "orchestrator/dialects/responses_api.h"

namespace moestro::orchestrator {
namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

TEST(OpenApi, HasEveryRouteThatIsServedAndNoOther) {
  std::set<std::string> served, documented;
  for (const auto& routes : {Service::routes(), BatchApi::routes(), DialectApi::routes(), ResponsesApi::routes()})
    for (const ServedRoute& r : routes)
      EXPECT_TRUE(served.insert(lower(r.method) + " " + r.path).second) << r.path << " is served twice";
  const auto document = nlohmann::json::parse(openapi_document("1.2.3"));
  for (const auto& [path, item] : document.at("paths").items())
    for (const char* method : {"get", "put", "post", "delete", "patch"})
      if (item.contains(method)) documented.insert(std::string(method) + " " + path);
  EXPECT_EQ(documented, served);
  EXPECT_EQ(document.at("info").at("version"), "1.2.3");
}

TEST(OpenApi, AnotherNameOfARouteIsTheSameOperationWithoutItsId) {
  const auto paths = nlohmann::json::parse(openapi_document("1")).at("paths");
  auto operation = paths.at("/v1/embeddings").at("post");
  EXPECT_EQ(operation.erase("operationId"), 1u);
  EXPECT_EQ(paths.at("/embeddings").at("post"), operation);
  EXPECT_FALSE(paths.at("/v1/embeddings").contains("x-moestro-aliases"));
}

}  // namespace
}  // namespace moestro::orchestrator
