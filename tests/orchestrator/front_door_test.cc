#include "orchestrator/api/front_door.h"

#include <gmock/gmock.h>
#include <openssl/evp.h>

#include <fstream>

#include "tests/orchestrator/api_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using ::testing::HasSubstr;

std::string hashed(const std::string& key) {
  unsigned char hash[32];
  unsigned size = 0;
  EVP_Digest(key.data(), key.size(), hash, &size, EVP_sha256(), nullptr);
  std::string hex;
  for (const unsigned char byte : hash) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", byte);
    hex += two;
  }
  return "sha256:" + hex;
}

ApiKeys keys(const std::string& text) {
  auto k = ApiKeys::parse(text, "keys");
  MOESTRO_CHECK(k.is_ok(), k.status().message());
  return std::move(*k);
}

TEST(ApiKeys, FindsKeysByTheirHash) {
  const ApiKeys k =
      keys("# ours\n" + hashed("secret") + " ann\n\n" + hashed("other") + " bob concurrency=2 # two at once\n");
  ASSERT_NE(k.find("Bearer secret"), nullptr);
  EXPECT_EQ(k.find("Bearer secret")->name, "ann");
  EXPECT_EQ(k.find("bearer other")->concurrency, 2u);
  EXPECT_EQ(k.find("bearer other")->project, "bob") << "its own";
  for (const char* wrong : {"", "Bearer", "Bearer ", "Bearer Secret", "Bearer secret ", "Basic secret", "secret"})
    EXPECT_EQ(k.find(wrong), nullptr) << wrong;
}

TEST(ApiKeys, RefusesFilesThatItDoesNotUnderstand) {
  const std::string good = hashed("a");
  for (const std::string& text :
       {std::string(), std::string("# nothing"), std::string("secret ann"), std::string("sha256:12 ann"), good,
        good + " concurrency=2", good + " a b", good + " a concurrency=0", good + " a concurrency=x",
        good + " a project=", good + " a project=x project=y", good + " project=x", good + " a admin admin",
        good + " a\n" + hashed("b") + " a"}) {
    const auto k = ApiKeys::parse(text, "keys");
    ASSERT_FALSE(k.is_ok()) << text;
    EXPECT_THAT(k.status().message(), HasSubstr("keys"));
  }
  test::TempDir dir;
  EXPECT_FALSE(ApiKeys::load(dir / "missing").is_ok());
  std::ofstream(dir / "keys") << good << " a\n";
  std::filesystem::permissions(dir / "keys", std::filesystem::perms(0644));
  EXPECT_THAT(ApiKeys::load(dir / "keys").status().message(), HasSubstr("everybody"));
  std::filesystem::permissions(dir / "keys", std::filesystem::perms(0640));
  EXPECT_TRUE(ApiKeys::load(dir / "keys").is_ok());
}

struct Door {
  std::vector<std::shared_ptr<Exchange>> inside;  ///< requests that were let in, under way
  std::vector<std::string> owners;                ///< of those
  HttpRequest last;                               ///< of those
  FrontDoor door;
  explicit Door(FrontDoorOptions options)
      : door(std::move(options), [this](HttpRequest r, std::shared_ptr<Exchange> e) {
          inside.push_back(std::move(e));
          owners.push_back(r.owner);
          last = std::move(r);
        }) {}
  std::shared_ptr<FakeExchange> send(const std::string& method, const std::string& path, const std::string& key = "",
                                     const std::string& origin = "", const std::string& asked_headers = "") {
    auto exchange = std::make_shared<FakeExchange>();
    HttpRequest request{method, path, ""};
    request.authorization = key.empty() ? "" : "Bearer " + key;
    request.origin = origin;
    request.asked_headers = asked_headers;
    door.handle(std::move(request), exchange);
    return exchange;
  }
};

TEST(FrontDoor, SaysWhoseARequestIs) {
  Door d({keys(hashed("k") + " ann\n" + hashed("l") + " bob concurrency=2\n"), {}});
  d.send("POST", "/v1/completions", "l");
  d.send("POST", "/v1/completions", "k");
  d.send("GET", "/health");
  EXPECT_EQ(d.owners, (std::vector<std::string>{"bob", "ann", ""}));
}

TEST(FrontDoor, SaysWhoseFilesARequestSees) {
  const auto seen = [](Door& d, const std::string& key) {
    d.send("GET", "/v1/files", key);
    return std::pair(d.last.project, d.last.sees_all);
  };
  Door d({keys(hashed("a") + " ann\n" + hashed("b") + " bob project=team\n" + hashed("c") + " op admin project=team"),
          {}});
  EXPECT_EQ(seen(d, "a"), std::pair(std::string("ann"), false));
  EXPECT_EQ(seen(d, "b"), std::pair(std::string("team"), false));
  EXPECT_EQ(seen(d, "c"), std::pair(std::string("team"), true));
  Door open({std::nullopt, {}});
  EXPECT_EQ(seen(open, ""), std::pair(std::string(), true)) << "without keys all are one";
  d.last.sees_all = true;
  d.send("GET", "/health");
  EXPECT_FALSE(d.last.sees_all) << "what needs no key sees nothing";
}

TEST(FrontDoor, WantsAKeyForAllButHealthAndTheEmptyPage) {
  Door d({keys(hashed("k") + " ann"), {}});
  EXPECT_EQ(d.send("POST", "/v1/completions")->status, 401);
  const auto wrong = d.send("GET", "/metrics", "x");
  EXPECT_EQ(wrong->json()["error"]["type"], "authentication_error");
  EXPECT_EQ(wrong->json()["error"]["code"], "invalid_api_key");
  EXPECT_EQ(wrong->header("WWW-Authenticate"), "Bearer");
  EXPECT_TRUE(d.inside.empty());
  EXPECT_EQ(d.send("POST", "/")->status, 401);
  EXPECT_EQ(d.send("GET", "/v1/moestro/status")->status, 401);
  d.send("GET", "/health");
  d.send("GET", "/");
  d.send("GET", "/v1/models", "k");
  EXPECT_EQ(d.inside.size(), 3u);
}

TEST(FrontDoor, LimitsRequestsUnderWayByKey) {
  Door d({keys(hashed("k") + " ann concurrency=2\n" + hashed("l") + " bob"), {}});
  for (int i = 0; i < 2; ++i) d.send("POST", "/v1/completions", "k");
  ASSERT_EQ(d.inside.size(), 2u);
  const auto third = d.send("POST", "/v1/completions", "k");
  EXPECT_EQ(third->status, 429);
  EXPECT_EQ(third->header("Retry-After"), "1");
  d.send("GET", "/v1/models", "k");
  d.send("POST", "/v1/completions", "l");
  EXPECT_EQ(d.inside.size(), 4u) << "looking is free, and so are others";
  d.inside[0]->respond(200, "text/plain", "", {});
  d.send("POST", "/v1/completions", "k");
  EXPECT_EQ(d.inside.size(), 5u) << "an answer makes room";
  d.inside[1]->begin_stream({});
  EXPECT_EQ(d.send("POST", "/v1/completions", "k")->status, 429) << "a stream counts to its end";
  d.inside[1]->end_stream();
  d.inside[4].reset();  // one whose client is gone
  d.send("POST", "/v1/completions", "k");
  d.send("POST", "/v1/completions", "k");
  EXPECT_EQ(d.inside.size(), 7u);
}

TEST(FrontDoor, ErrorsHaveTheShapeOfTheirPath) {
  FrontDoorOptions options{keys(hashed("k") + " ann"), {}};
  options.error_body = [](const std::string& path, const ApiError& e, const std::string&) {
    return path + " " + std::to_string(e.http_status);
  };
  Door d(std::move(options));
  EXPECT_EQ(d.send("POST", "/v1/messages", "wrong")->body, "/v1/messages 401");
}

TEST(FrontDoor, CorsIsOffUnlessAsked) {
  Door off({std::nullopt, {}});
  const auto preflight = off.send("OPTIONS", "/v1/completions", "", "https://a.example");
  ASSERT_EQ(off.inside.size(), 1u) << "a method like any other";
  off.inside[0]->respond(405, "text/plain", "", {});
  EXPECT_EQ(preflight->header("Access-Control-Allow-Origin"), "");
}

TEST(FrontDoor, CorsForTheOriginsThatWereNamed) {
  Door d({keys(hashed("k") + " ann"), {"https://a.example"}});
  const auto preflight = d.send("OPTIONS", "/v1/completions", "", "https://a.example");
  EXPECT_EQ(preflight->status, 204) << "browsers send no key with it";
  EXPECT_EQ(preflight->header("Access-Control-Allow-Origin"), "https://a.example");
  EXPECT_THAT(preflight->header("Access-Control-Allow-Headers"), HasSubstr("Authorization"));
  EXPECT_EQ(d.send("OPTIONS", "/v1/completions", "", "https://b.example")->header("Access-Control-Allow-Origin"), "");
  const auto answer = d.send("POST", "/v1/completions", "k", "https://a.example");
  d.inside.at(0)->begin_stream({});
  EXPECT_EQ(answer->header("Access-Control-Allow-Origin"), "https://a.example");
  EXPECT_EQ(answer->header("Vary"), "Origin");
  Door any({std::nullopt, {"*"}});
  EXPECT_EQ(any.send("OPTIONS", "/v1/models", "", "https://b.example")->header("Access-Control-Allow-Origin"), "*");
}

/// What the preflight of OpenAI's client for JavaScript asks for.
TEST(FrontDoor, CorsAllowsTheHeadersOfOpenAisClients) {
  Door d({std::nullopt, {"*"}});
  const auto allowed = [&](const std::string& asked) {
    return d.send("OPTIONS", "/v1/chat/completions", "", "https://a.example", asked)
        ->header("Access-Control-Allow-Headers");
  };
  const std::string sdk = allowed(
      "authorization,content-type,x-stainless-arch,x-stainless-lang,x-stainless-os,x-stainless-package-version,"
      "x-stainless-retry-count,x-stainless-runtime,x-stainless-runtime-version,x-stainless-timeout");
  for (const char* name : {"Authorization", "Content-Type", "x-stainless-arch", "x-stainless-retry-count",
                           "x-stainless-runtime-version", "x-stainless-timeout"})
    EXPECT_THAT(sdk, HasSubstr(name));
  EXPECT_THAT(allowed("X-Stainless-OS, OpenAI-Project"), HasSubstr("x-stainless-os, openai-project"));
  EXPECT_EQ(allowed("Cookie, X-Stainless-\"a, x-stainless,,"), allowed(""));
}

}  // namespace
}  // namespace moestro::orchestrator
