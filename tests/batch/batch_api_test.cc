// Files and batches from their upload to their results.

#include <future>

#include "tests/batch/batch_api_fixture.h"

namespace moestro::orchestrator {
namespace {

TEST_P(BatchApiTest, FilesComeAndGo) {
  const auto uploaded = upload_form(form_of("abc"));
  ASSERT_EQ(uploaded->status, 200) << uploaded->body;
  const json file = uploaded->json();
  EXPECT_EQ(file["object"], "file");
  EXPECT_EQ(file["bytes"], 3);
  EXPECT_EQ(file["purpose"], "batch");
  EXPECT_EQ(file["created_at"], 1000);
  const std::string id = file["id"];
  EXPECT_EQ(content(id), "abc");
  EXPECT_EQ(ask("GET", "/v1/files/" + id), file);
  EXPECT_EQ(ask("GET", "/v1/files")["data"], json::array({file}));
  EXPECT_EQ(ask("DELETE", "/v1/files/" + id)["deleted"], true);
  EXPECT_EQ(files_kept(), 0u);
  ask("GET", "/v1/files/" + id, {}, 404);
  ask("GET", "/v1/files/" + id + "/content", {}, 404);
}

TEST_P(BatchApiTest, AKeySeesItsOwnProjectAlone) {
  key_ = "ann";
  const std::string input = upload(lines(2));
  const std::string id = create(input);  // no worker yet: it is under way
  const auto under_way = [&] { return ask("GET", "/v1/moestro/status")["batches"]["under_way"].size(); };
  run_until([&] { return under_way() == 1; });
  const json order{{"input_file_id", input}, {"endpoint", "/v1/completions"}, {"completion_window", "24h"}};
  const auto is_closed = [&](const std::string& file) {
    for (const auto& [method, path] :
         std::vector<std::pair<std::string, std::string>>{{"GET", "/v1/files/" + file},
                                                          {"GET", "/v1/files/" + file + "/content"},
                                                          {"DELETE", "/v1/files/" + file},
                                                          {"GET", "/v1/batches/" + id},
                                                          {"POST", "/v1/batches/" + id + "/cancel"}})
      ask(method, path, {}, 404);
    EXPECT_TRUE(ask("GET", "/v1/files")["data"].empty());
    EXPECT_TRUE(ask("GET", "/v1/batches")["data"].empty());
  };
  key_ = "bob";
  is_closed(input);
  EXPECT_EQ(ask("POST", "/v1/batches", order, 400)["error"]["param"], "input_file_id");
  EXPECT_EQ(under_way(), 0u);
  key_ = "ann";
  join();
  const json batch = wait_for(id, "completed");
  EXPECT_EQ(ask("GET", "/v1/batches")["data"].size(), 1u);
  EXPECT_EQ(ask("GET", "/v1/files")["data"].size(), 2u) << "the output is whose the batch is";
  key_ = "bob";
  is_closed(batch["output_file_id"]);
  key_ = "admin";
  EXPECT_EQ(ask("GET", "/v1/files")["data"].size(), 2u);
  EXPECT_EQ(ask("GET", "/v1/batches/" + id)["id"], id);
  EXPECT_EQ(ask("DELETE", "/v1/files/" + input)["deleted"], true);
}

TEST_P(BatchApiTest, ABatchBelongsToTheOwnerOfItsFile) {
  key_ = "ann";
  const std::string input = upload(lines(2));
  key_ = "admin";
  const std::string id = create(input);
  key_ = "ann";
  EXPECT_THAT(ask("DELETE", "/v1/files/" + input, {}, 409)["error"]["message"].get<std::string>(), HasSubstr(id));
  ask("POST", "/v1/batches/" + id + "/cancel");
  EXPECT_FALSE(content(wait_for(id, "cancelled")["error_file_id"]).empty());
  EXPECT_EQ(ask("DELETE", "/v1/files/" + input)["deleted"], true);
}

TEST_P(BatchApiTest, WhatIsNoFileOfOursIsNotLookedFor) {
  test::write_file(dir_ / "secret", "s");
  for (const char* path : {"/v1/files/../state.db", "/v1/files/..%2fsecret/content", "/v1/files//etc/passwd",
                           "/v1/files/file-..%2f", "/v1/batches/../x", "/v1/files/"})
    ask("GET", path, {}, 404);
  EXPECT_EQ(ask("POST", "/v1/batches/mine/cancel", {}, 404)["error"]["message"], "there is no batch 'mine'");
  EXPECT_EQ(ask("GET", "/v1/files/mine/content", {}, 404)["error"]["message"], "there is no file 'mine'");
  ask("PUT", "/v1/files", {}, 405);
  ask("GET", "/v1/files?limit=x", {}, 404);  // the server takes the query off
}

TEST_P(BatchApiTest, FilesCanBeDeletedWhileTheyAreListed) {
  for (int i = 0; i < 7; ++i) upload("x");
  const auto page_after = [&](const std::string& id, int status = 200) {
    HttpRequest request{"GET", "/v1/files", ""};
    request.query = "limit=3&after=" + id;
    auto exchange = std::make_shared<FakeExchange>();
    service_->handle(as(key_, std::move(request)), exchange);
    finish(*exchange);
    EXPECT_EQ(exchange->status, status) << exchange->body;
    return exchange->json();
  };
  int deleted = 0;
  for (std::string last; deleted < 100;) {
    const json page = page_after(last);
    for (const json& file : page["data"]) {
      last = file["id"];
      ask("DELETE", "/v1/files/" + last);
      ++deleted;
    }
    if (page["has_more"] == false) break;
  }
  EXPECT_EQ(deleted, 7);
  const json refused = page_after("file-nobody", 400);
  EXPECT_EQ(refused["error"]["param"], "after");
  EXPECT_THAT(refused["error"]["message"].get<std::string>(), HasSubstr("'file-nobody'"));
}

TEST_P(BatchApiTest, AFormThatIsWrongLeavesNothing) {
  EXPECT_EQ(upload_form(form_of("abc", "fine-tune"))->status, 400);
  EXPECT_EQ(upload_form(form_of("abc").substr(0, 150))->status, 400);
  EXPECT_EQ(upload_form("--XX\r\nContent-Disposition: form-data; name=\"color\"\r\n\r\nred\r\n--XX--")->status, 400);
  ask("POST", "/v1/files", {{"file", "x"}}, 400);
  EXPECT_EQ(files_kept(), 0u);
  EXPECT_TRUE(ask("GET", "/v1/files")["data"].empty());
}

TEST_P(BatchApiTest, ABatchRunsItsGoodLinesAndNamesTheBad) {
  join();
  const std::string input =
      upload(lines(10) + "nonsense\n" + line("id-3") + "\n" +
             R"({"custom_id":"u","method":"POST","url":"/v1/embeddings","body":{}})" + "\n" +
             R"({"custom_id":"w","method":"POST","url":"/v1/completions","body":{"max_tokens":-1}})");
  const std::string id = create(input);
  ask("DELETE", "/v1/files/" + input, {}, 409);
  const json batch = wait_for(id, "completed");
  EXPECT_EQ(batch["request_counts"], (json{{"total", 14}, {"completed", 10}, {"failed", 4}}));
  EXPECT_EQ(batch["metadata"], (json{{"k", "v"}}));
  EXPECT_GT(batch["usage"]["output_tokens"], 0);
  const std::string output = content(batch["output_file_id"]), errors = content(batch["error_file_id"]);
  const auto done = custom_ids(output);
  EXPECT_EQ(done.size(), 10u);
  EXPECT_EQ(std::set<std::string>(done.begin(), done.end()).size(), 10u);
  EXPECT_THAT(output, HasSubstr(R"("text":"hey")"));
  EXPECT_EQ(custom_ids(errors), (std::multiset<std::string>{"null", "\"id-3\"", "\"u\"", "\"w\""}));
  EXPECT_THAT(errors, HasSubstr("duplicate_custom_id"));
  run_until([&] {
    return ask("GET", "/v1/moestro/status")["batches"]["by_status"]["completed"] == 1;
  });  // published once a round of the runner
  EXPECT_THAT(send("GET", "/metrics")->body, HasSubstr("moestro_batch_lines_total{model=\"m\",result=\"ok\"} 10"));
  EXPECT_THAT(send("GET", "/metrics")->body, HasSubstr("moestro_batch_lines_total{model=\"m\",result=\"error\"} 4"));
  ask("POST", "/v1/batches/" + id + "/cancel", {}, 400);
  EXPECT_EQ(ask("DELETE", "/v1/files/" + input)["deleted"], true);
}

TEST_P(BatchApiTest, ALineWhoseSchemaCannotBeFollowedFailsAndTheBatchEnds) {
  join();
  json bad = json::parse(line("bad"));
  bad["body"]["response_format"] = {
      {"type", "json_schema"},
      {"json_schema", {{"name", "x"}, {"schema", {{"type", "string"}, {"pattern", "^x((a?){70}){70}$"}}}}}};
  const json batch = wait_for(create(upload(bad.dump() + "\n" + lines(3))), "completed");
  EXPECT_EQ(batch["request_counts"], (json{{"total", 4}, {"completed", 3}, {"failed", 1}}));
  EXPECT_EQ(json::parse(content(batch["error_file_id"]))["response"]["status_code"], 400);
}

TEST_P(BatchApiTest, ARestartGoesOnAndStoresNothingTwice) {
  join();
  const std::string id = create(upload(lines(40)));
  run_until([&] { return ask("GET", "/v1/batches/" + id)["request_counts"]["completed"].get<int>() >= 10; });
  stop();
  if (GetParam() == test::Backend::kSqlite)
    test::write_file(box_->database().string() + ".files/" + new_id("file-"), "left by a crash");
  start();
  const json batch = wait_for(id, "completed");
  EXPECT_EQ(batch["request_counts"], (json{{"total", 40}, {"completed", 40}, {"failed", 0}}));
  const auto done = custom_ids(content(batch["output_file_id"]));
  EXPECT_EQ(done.size(), 40u);
  EXPECT_EQ(std::set<std::string>(done.begin(), done.end()).size(), 40u);
  EXPECT_EQ(files_kept(), 2u);
}

TEST_P(BatchApiTest, ACancelledBatchHasWhatWasDoneAndNamesTheRest) {
  const std::string id = create(upload(lines(8)));  // no worker: its lines wait
  run_until([&] { return ask("GET", "/v1/batches/" + id)["status"] == "in_progress"; });
  EXPECT_THAT(ask("POST", "/v1/batches/" + id + "/cancel")["status"].get<std::string>(), HasSubstr("cancel"));
  const json batch = wait_for(id, "cancelled");
  EXPECT_TRUE(batch["output_file_id"].is_null());
  const std::string errors = content(batch["error_file_id"]);
  EXPECT_EQ(custom_ids(errors).size(), 8u);
  EXPECT_THAT(errors, HasSubstr("batch_cancelled"));
}

TEST_P(BatchApiTest, ABatchExpires) {
  const std::string id = create(upload(lines(3)), "60s");
  run_until([&] { return ask("GET", "/v1/batches/" + id)["status"] == "in_progress"; });
  now_ = 1060;
  const json batch = wait_for(id, "expired");
  EXPECT_EQ(batch["expired_at"], 1060);
  EXPECT_THAT(content(batch["error_file_id"]), HasSubstr("batch_expired"));
}

TEST_P(BatchApiTest, ABatchWhoseFilesAreBeingWrittenCanBeCancelled) {
  const std::string id = create(upload(lines(3000)), "60s");  // no worker: its lines wait
  run_until([&] { return ask("GET", "/v1/batches/" + id)["status"] == "in_progress"; });
  std::atomic<bool> cancelled{false};
  int turns = 0;
  const std::function<void()> cancel = [&] {  // its lines that were not run are written in many turns
    const auto kept = runner_->state().batch(id);
    const bool is_writing = kept.is_ok() && (*kept)->status == BatchStatus::kFinalizing;
    if (is_writing && ++turns == 5) cancelled = runner_->cancel(id).is_ok();
    else runner_->ask(cancel);
  };
  runner_->ask(cancel);
  now_ = 1060;
  const json batch = wait_for(id, "cancelled");
  EXPECT_TRUE(cancelled);
  const std::string errors = content(batch["error_file_id"]);
  const auto named = custom_ids(errors);
  EXPECT_EQ(std::set<std::string>(named.begin(), named.end()).size(), 3000u);
  EXPECT_EQ(named.size(), 3000u) << "a line is there twice";
  EXPECT_EQ(errors.find("batch_expired"), std::string::npos) << "what was written before is written anew";
}

TEST_P(BatchApiTest, WhatWasDoneBeforeABatchExpiredStays) {
  join();
  const std::string id = create(upload(lines(200)), "60s");
  run_until([&] { return ask("GET", "/v1/batches/" + id)["request_counts"]["completed"].get<int>() >= 5; });
  now_ = 1060;
  const json batch = wait_for(id, "expired");
  const auto done = custom_ids(content(batch["output_file_id"])), rest = custom_ids(content(batch["error_file_id"]));
  EXPECT_GE(done.size(), 5u);
  EXPECT_EQ(done.size() + rest.size(), 200u);
  std::set<std::string> all(done.begin(), done.end());
  all.insert(rest.begin(), rest.end());
  EXPECT_EQ(all.size(), 200u) << "a line is in both files";
  EXPECT_EQ(batch["request_counts"]["completed"], done.size());
}

TEST_P(BatchApiTest, ABatchOfAModelThatIsNotServedWaits) {
  stop();
  model_ = "old";
  start();
  const std::string named = R"({"custom_id":"named","url":"/v1/completions","body":{"prompt":"a","model":"old"}})";
  const std::string kept = create(upload(lines(3))), cancelled = create(upload(lines(3) + named)),
                    expired = create(upload(lines(3)), "60s");
  for (const std::string& id : {kept, cancelled, expired})
    run_until([&] { return ask("GET", "/v1/batches/" + id)["status"] == "in_progress"; });
  stop();
  model_ = "m";
  start();
  join();
  wait_for(create(upload(lines(20))), "completed");
  for (const std::string& id : {kept, cancelled, expired})
    EXPECT_EQ(ask("GET", "/v1/batches/" + id)["request_counts"]["completed"], 0);
  const json under_way = ask("GET", "/v1/moestro/status")["batches"]["under_way"];
  EXPECT_EQ(under_way[0]["waits_for_model"], "old") << under_way;

  ask("POST", "/v1/batches/" + cancelled + "/cancel");
  const std::string errors = content(wait_for(cancelled, "cancelled")["error_file_id"]);
  EXPECT_EQ(custom_ids(errors).size(), 4u);
  EXPECT_THAT(errors, Not(HasSubstr("model_not_found"))) << "this server does not know that model's names";
  now_ = 1060;
  EXPECT_THAT(content(wait_for(expired, "expired")["error_file_id"]), HasSubstr("batch_expired"));
  EXPECT_EQ(ask("GET", "/v1/batches/" + kept)["status"], "in_progress");
  stop();
  aliases_ = {"old"};
  start();
  EXPECT_EQ(wait_for(kept, "completed")["request_counts"]["completed"], 3);
}

TEST_P(BatchApiTest, OnlySoManyQuestionsWaitForTheState) {
  stop();
  limits_.questions_max = 2;
  start();
  std::promise<void> held, go_on;
  runner_->ask([&held, wait = go_on.get_future().share()] { held.set_value(), wait.wait(); });
  held.get_future().wait();
  const auto first = send("GET", "/v1/batches"), second = send("GET", "/v1/files"), third = send("GET", "/v1/files");
  finish(*third);
  EXPECT_EQ(third->status, 429) << third->body;
  EXPECT_EQ(third->header("Retry-After"), "1");
  go_on.set_value();
  for (const auto& asked : {first, second}) {
    finish(*asked);
    EXPECT_EQ(asked->status, 200) << asked->body;
  }
  ask("GET", "/v1/files");
}

TEST_P(BatchApiTest, OneBatchTooManyIsToBeSentAgainLater) {
  stop();
  limits_.batches_max = 1;
  start();
  const std::string file = upload(lines(1)), id = create(file);
  const json order{{"input_file_id", file}, {"endpoint", "/v1/completions"}, {"completion_window", "24h"}};
  EXPECT_EQ(ask("POST", "/v1/batches", order, 429)["error"]["type"], "rate_limit_error");
  ask("POST", "/v1/batches/" + id + "/cancel");
  wait_for(id, "cancelled");
  ask("POST", "/v1/batches", order);
}

TEST_P(BatchApiTest, AnEmptyInputFails) {
  const json batch = wait_for(create(upload("\n \n")), "failed");
  EXPECT_EQ(batch["errors"]["data"][0]["code"], "empty_file");
}

TEST_P(BatchApiTest, OrdersThatAreWrong) {
  const std::string file = upload(lines(1));
  const json good{{"input_file_id", file}, {"endpoint", "/v1/completions"}, {"completion_window", "24h"}};
  for (const json& change :
       {json{{"endpoint", "/v1/images"}}, json{{"completion_window", "soon"}}, json{{"input_file_id", "../x"}},
        json{{"metadata", {{"a", 1}}}}, json{{"color", "red"}},
        json{{"output_expires_after", {{"anchor", "created_at"}, {"seconds", 5}}}}, json{{"input_file_id", nullptr}}}) {
    json order = good;
    order.update(change);
    EXPECT_TRUE(ask("POST", "/v1/batches", order, 400).contains("error")) << order;
  }
  EXPECT_TRUE(ask("GET", "/v1/batches")["data"].empty());
}

INSTANTIATE_TEST_SUITE_P(Every, BatchApiTest, ::testing::Values(test::Backend::kSqlite, test::Backend::kRedis),
                         [](const auto& each) { return test::backend_name(each.param); });

}  // namespace
}  // namespace moestro::orchestrator
