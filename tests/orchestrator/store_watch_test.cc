// What the orchestrator knows of a store: a stand-in that answers as one does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/wire/store_messages_generated.h"
#include "orchestrator/api/store_metrics.h"
#include "orchestrator/api/tier_metrics.h"
#include "tests/pack/synthetic_checkpoint.h"

namespace moestro::orchestrator {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

net::Bytes status_message(uint64_t loads) {
  flatbuffers::FlatBufferBuilder b;
  const std::vector<flatbuffers::Offset<wire::StoreWorkerStatus>> workers{
      wire::CreateStoreWorkerStatusDirect(b, 0, "w", "m", 1, 2, 3),
      wire::CreateStoreWorkerStatusDirect(b, 1, "v", "m", 1, 2, 4)};
  const auto list = b.CreateVector(workers);
  const auto warm = wire::CreateStoreWarmStart(b, 9, 900, 5, 500, 1, 0.5, true);
  const std::vector<flatbuffers::Offset<wire::StoreModelStatus>> of_models{
      wire::CreateStoreModelStatusDirect(b, "m\"1\"", "/p", 100, 900, 9, 5, 8, 1, false, 600, 0, 0, 77, 16, 10, 4000),
      wire::CreateStoreModelStatusDirect(b, "m\"1\"", "/old", 1, 1, 1, 1, 1, 1, true, 1)};
  const auto models = b.CreateVector(of_models);
  const std::vector<flatbuffers::Offset<wire::StoreDriveStatus>> of_drives{
      wire::CreateStoreDriveStatusDirect(b, "/packs", "io_uring", 1, 1, 1000, 100 * loads, 2, true)};
  const std::vector<uint32_t> queued{4, 5}, loading{1, 0};
  const auto reading = wire::CreateStoreReadingDirect(b, &of_drives, 0, 0, 0, 0, 0, 0, 0, 0, &queued, &loading,
                                                       0, 0, 11, 12, 13, 14);
  const auto policy = b.CreateString("lfru");
  wire::StoreStatusBuilder status(b);
  status.add_models(models), status.add_reading(reading), status.add_joined(3), status.add_epoch(5),
      status.add_policy(policy);
  status.add_bad_blobs(4), status.add_unreadable(2), status.add_memory_changed_s(60);
  status.add_arena_bytes(1 << 20), status.add_loads(loads), status.add_workers(list), status.add_warm_start(warm);
  const auto body = status.Finish();
  b.Finish(wire::CreateStoreMessage(b, wire::StoreBody::StoreStatus, body.Union()), wire::StoreMessageIdentifier());
  const auto* begin = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
  return {begin, begin + b.GetSize()};
}

TEST(StoreWatch, ReadsWhatAStoreSays) {
  const auto f = read_store_status(status_message(7));
  ASSERT_TRUE(f);
  EXPECT_EQ(f->arena_bytes, 1u << 20);
  EXPECT_EQ(f->loads, 7u);
  EXPECT_EQ(f->bad_blobs, 4u);
  EXPECT_EQ(f->unreadable, 2u);
  EXPECT_EQ(f->memory_changed_s, 60);
  EXPECT_EQ(f->workers, 2u);
  EXPECT_EQ(f->pins, 7u);
  EXPECT_EQ(f->warm_bytes_there, 500u);
  EXPECT_TRUE(f->warm_running);
}

TEST(StoreWatch, KnowsDrivesModelsAndQueues) {
  const auto f = read_store_status(status_message(7));
  ASSERT_TRUE(f);
  ASSERT_EQ(f->models.size(), 1u) << "one that is going has its successor's name";
  EXPECT_EQ(f->models[0].version, 77u);
  EXPECT_EQ(f->models[0].name, "m\"1\"");
  EXPECT_EQ(
      std::tuple(f->models[0].pack_bytes, f->models[0].used_bytes, f->models[0].experts, f->models[0].resident_experts),
      std::tuple(1000u, 600u, 8u, 5u));
  EXPECT_EQ(std::tuple(f->models[0].layers, f->models[0].streamed_layers, f->models[0].streamed_bytes),
            std::tuple(16u, 10u, 4000u));
  ASSERT_EQ(f->drives.size(), 1u);
  EXPECT_EQ(std::tuple(f->drives[0].path, f->drives[0].bytes_read, f->drives[0].retries, f->drives[0].bytes_per_s),
            std::tuple(std::string("/packs"), 700u, 2u, 1000u));
  ASSERT_EQ(f->queues.size(), 3u);
  EXPECT_EQ(std::tuple(f->queues[0].of, f->queues[0].waiting, f->queues[0].reading),
            std::tuple(std::string("demand"), 4u, 1u));
  EXPECT_EQ(f->queues[2].waiting, 0u) << "of a store that says less";
  EXPECT_EQ(f->joined, 3u);
}

TEST(StoreWatch, UtilisationIsWhatADriveReadByWhatItCan) {
  auto before = read_store_status(status_message(7)), now = read_store_status(status_message(12));
  add_rates(*before, 2, *now);
  EXPECT_DOUBLE_EQ(now->drives[0].read_per_s, 250);
  EXPECT_DOUBLE_EQ(now->drives[0].utilisation(), 0.25);
  now = read_store_status(status_message(107));
  add_rates(*before, 1, *now);
  EXPECT_DOUBLE_EQ(now->drives[0].utilisation(), 1) << "from the page cache, say";
  now = read_store_status(status_message(12));
  now->epoch = 6;
  add_rates(*before, 1, *now);
  EXPECT_EQ(now->drives[0].read_per_s, 0) << "another store counts anew";
  now->drives[0].bytes_per_s = 0;
  EXPECT_EQ(now->drives[0].utilisation(), 0);
}

TEST(StoreWatch, OtherBytesAreNoStatus) {
  EXPECT_FALSE(read_store_status({}));
  const net::Bytes whole = status_message(7);
  for (size_t n = 0; n < whole.size() / 2; ++n)
    EXPECT_FALSE(read_store_status({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n)}));
  flatbuffers::FlatBufferBuilder b;
  b.Finish(
      wire::CreateStoreMessage(b, wire::StoreBody::StoreStatusRequest, wire::CreateStoreStatusRequest(b, 1).Union()),
      wire::StoreMessageIdentifier());
  const auto* begin = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
  EXPECT_FALSE(read_store_status({begin, begin + b.GetSize()}));
}

TEST(StoreWatch, HasTheNewestAnswerOrNone) {
  const testing::TemporaryDirectory dir;
  const std::string endpoint = "ipc://" + (dir.path() / "store.sock").string();
  auto store = net::RouterSocket::bind(endpoint);
  ASSERT_TRUE(store) << store.status().message();
  const StoreWatch watch(endpoint);
  EXPECT_FALSE(watch.latest());
  for (uint64_t loads = 1; loads <= 2; ++loads) {
    ASSERT_TRUE(*store->wait(milliseconds(20000)));
    const auto asked = store->receive();
    ASSERT_TRUE(asked && *asked);
    ASSERT_TRUE(store->send((*asked)->peer, status_message(loads)));
  }
  while (!watch.latest() || watch.latest()->loads < 2) std::this_thread::yield();
  EXPECT_EQ(watch.latest()->pins, 7u);
}

TEST(StoreWatch, NobodyWaitsForAStoreThatIsAway) {
  const testing::TemporaryDirectory dir;
  const auto begun = std::chrono::steady_clock::now();
  {
    const StoreWatch watch("ipc://" + (dir.path() / "none.sock").string());
    EXPECT_FALSE(watch.latest());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5));
}

TEST(StoreMetrics, NameEveryFigure) {
  const auto figures = read_store_status(status_message(7));
  const std::string text = store_metrics_text(figures);
  EXPECT_THAT(text, HasSubstr("moestro_store_up 1\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE moestro_store_loads_total counter\nmoestro_store_loads_total 7\n"));
  EXPECT_THAT(
      text, HasSubstr("# TYPE moestro_store_warm_start_there_bytes gauge\nmoestro_store_warm_start_there_bytes 500\n"));
  EXPECT_THAT(text, HasSubstr("moestro_store_warm_start_running 1\n"));
  EXPECT_EQ(store_status(figures)["warm_start_there_bytes"], 500);
  const std::string tiers = tier_metrics_text("m", {}, figures);
  EXPECT_THAT(tiers, HasSubstr("moestro_tier_experts{model=\"m\\\"1\\\"\",tier=\"dram\"} 5\n"))
      << "a name with quotes stays a label";
  EXPECT_THAT(tiers, HasSubstr("moestro_tier_late_total{tier=\"dram\"} 3\n"));
  EXPECT_THAT(tiers, HasSubstr("moestro_tier_used_bytes{tier=\"nvme\"} 1000\n"));
  EXPECT_THAT(text, HasSubstr("moestro_drive_read_bytes_total{drive=\"/packs\"} 700\n"));
  EXPECT_THAT(text, HasSubstr("moestro_store_read_queue{class=\"prefetch\",state=\"waiting\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("moestro_store_foreseen_below_floor_total 11\n"));
  EXPECT_THAT(text, HasSubstr("moestro_store_foreseen_over_budget_total 12\n"));
  EXPECT_THAT(text, HasSubstr("moestro_store_foreseen_early_total 13\n"));
  EXPECT_THAT(text, HasSubstr("moestro_store_foreseen_guarded_total 14\n"));
  EXPECT_EQ(store_status(figures)["foreseen_early"], 13);
  EXPECT_EQ(store_status(figures)["drives"][0]["read_bytes"], 700);
  EXPECT_EQ(store_status(figures)["queues"]["demand"]["waiting"], 4);
  const std::string away = store_metrics_text(std::nullopt);
  EXPECT_THAT(away, HasSubstr("moestro_store_up 0\n"));
  EXPECT_THAT(away, Not(HasSubstr("loads")));
  EXPECT_THAT(away, Not(HasSubstr("tier")));
  EXPECT_TRUE(store_status(std::nullopt).is_null());
}

}  // namespace
}  // namespace moestro::orchestrator
