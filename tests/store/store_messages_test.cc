// What a store makes of messages that no client of ours sends.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <random>

#include "common/wire/store_messages_generated.h"
#include "store/client/status_client.h"
#include "store/server/refusals.h"
#include "tests/store/store_fixture.h"

namespace moestro::store {
namespace {

using ::testing::HasSubstr;

template <typename T>
net::Bytes message(flatbuffers::FlatBufferBuilder& b, wire::StoreBody kind, flatbuffers::Offset<T> body) {
  b.Finish(wire::CreateStoreMessage(b, kind, body.Union()), wire::StoreMessageIdentifier());
  const auto* begin = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
  return net::Bytes(begin, begin + b.GetSize());
}

class StoreMessages : public ::testing::Test {
 protected:
  StoreMessages()
      : pack_(3),
        store_(store_options(pack_, pack_.dram(6))),
        socket_(*net::DealerSocket::connect(store_.endpoint())) {}
  /// The text of the refusal that `body` gets.
  std::string refusal_of(const net::Bytes& body) {
    EXPECT_TRUE(socket_.send(body));
    EXPECT_TRUE(*socket_.wait(std::chrono::seconds(10)));
    const auto bytes = *socket_.receive();
    if (!bytes) return "";
    const auto* reply = wire::GetStoreMessage(bytes->data());
    return reply->body_type() == wire::StoreBody::StoreRefused ? reply->body_as_StoreRefused()->message()->str()
                                                               : "not a refusal";
  }
  SmallPack pack_;
  RunningStore store_;
  net::DealerSocket socket_;
};

TEST_F(StoreMessages, RubbishIsRefusedAndNothingElseNotices) {
  ASSERT_TRUE(store_.status()) << store_.status().message();
  EXPECT_THAT(refusal_of({}), HasSubstr("not a message"));
  std::mt19937 random(3);
  flatbuffers::FlatBufferBuilder b;
  const net::Bytes good =
      message(b, wire::StoreBody::AttachStore, wire::CreateAttachStoreDirect(b, 99, 99, "tiny", "x"));
  EXPECT_THAT(refusal_of(good), HasSubstr("run both from one build"));
  for (int i = 0; i < 300; ++i) {
    net::Bytes bad = good;
    bad.resize(1 + random() % bad.size());
    bad[random() % bad.size()] ^= std::byte(static_cast<unsigned char>(1 + random() % 255));
    EXPECT_NE(refusal_of(bad), "");
  }
  const auto client = StoreClient::attach({.endpoint = store_.endpoint(), .model = "tiny"});
  EXPECT_TRUE(client) << client.status().message();
}

TEST_F(StoreMessages, KindWithoutBodyIsRefused) {
  ASSERT_TRUE(store_.status());
  for (const wire::StoreBody kind : wire::EnumValuesStoreBody()) {
    flatbuffers::FlatBufferBuilder b;
    EXPECT_THAT(refusal_of(message(b, kind, flatbuffers::Offset<wire::StoreStatus>())),
                ::testing::AnyOf(HasSubstr("without a body"), HasSubstr("not a message")));
  }
}

TEST_F(StoreMessages, StrangersSlotsAndBlobsOutOfRangeAreRefused) {
  ASSERT_TRUE(store_.status());
  const auto client = StoreClient::attach({.endpoint = store_.endpoint(), .model = "tiny"});
  ASSERT_TRUE(client);
  const auto fetch = [](uint32_t slot, uint64_t incarnation, std::vector<uint32_t> blobs) {
    flatbuffers::FlatBufferBuilder b;
    return message(b, wire::StoreBody::FetchBlobs, wire::CreateFetchBlobsDirect(b, slot, incarnation, 1, 0, &blobs));
  };
  EXPECT_THAT(refusal_of(fetch(70000, 1, {0})), HasSubstr("no worker of this store has slot 70000"));
  EXPECT_THAT(refusal_of(fetch((*client)->slot(), 12345, {0})), HasSubstr("attach again"));
  EXPECT_THAT(refusal_of(fetch((*client)->slot(), (*client)->incarnation(), {100000})),
              HasSubstr("asked for blob 100000"));
  EXPECT_TRUE((*client)->check());
}

/// Every message that names a slot, for a slot that is free, out of range, or another incarnation's.
TEST_F(StoreMessages, ForeignSlotsAreRefusedByEveryMessage) {
  ASSERT_TRUE(store_.status());
  const auto client = StoreClient::attach({.endpoint = store_.endpoint(), .model = "tiny"});
  ASSERT_TRUE(client);
  const std::vector<uint32_t> blobs{0};
  const uint32_t mine = (*client)->slot();
  for (const auto& [slot, incarnation] : std::vector<std::pair<uint32_t, uint64_t>>{
           {mine, 1}, {mine + 1, (*client)->incarnation()}, {kWorkerSlotsMax, 1}, {UINT32_MAX, UINT64_MAX}}) {
    using Body = wire::StoreBody;
    const auto refused = [&](flatbuffers::FlatBufferBuilder& b, Body kind, auto body) {
      EXPECT_THAT(refusal_of(message(b, kind, body)),
                  HasSubstr("no worker of this store has slot " + std::to_string(slot)))
          << wire::EnumNameStoreBody(kind);
    };
    flatbuffers::FlatBufferBuilder b[5];
    refused(b[0], Body::ConfirmAttach, wire::CreateConfirmAttach(b[0], slot, incarnation));
    refused(b[1], Body::DetachStore, wire::CreateDetachStore(b[1], slot, incarnation));
    refused(b[2], Body::FetchBlobs, wire::CreateFetchBlobsDirect(b[2], slot, incarnation, 1, 0, &blobs));
    refused(b[3], Body::CancelFetches, wire::CreateCancelFetches(b[3], slot, incarnation));
    refused(b[4], Body::Foresee, wire::CreateForeseeDirect(b[4], slot, incarnation));
  }
  EXPECT_TRUE((*client)->check()) << "and its holder is still there";
}

TEST_F(StoreMessages, TheLastWordsOfOneThatHasGoneAreNoRefusal) {
  ASSERT_TRUE(store_.status());
  uint32_t slot = 0;
  uint64_t incarnation = 0;
  {
    const auto client = StoreClient::attach({.endpoint = store_.endpoint(), .model = "tiny"});
    ASSERT_TRUE(client);
    slot = (*client)->slot(), incarnation = (*client)->incarnation();
  }
  const auto refused = [&] { return query_store(store_.endpoint(), std::chrono::seconds(10))->refused; };
  while (!query_store(store_.endpoint(), std::chrono::seconds(10))->workers.empty()) {
  }
  flatbuffers::FlatBufferBuilder a, b;
  EXPECT_THAT(refusal_of(message(a, wire::StoreBody::DetachStore, wire::CreateDetachStore(a, slot, incarnation))),
              HasSubstr("attach again"));
  EXPECT_EQ(refused(), 0u);
  refusal_of(message(b, wire::StoreBody::DetachStore, wire::CreateDetachStore(b, slot, incarnation + 1)));
  EXPECT_EQ(refused(), 1u) << "a stranger's";
}

TEST_F(StoreMessages, OddOutlooksAreRefused) {
  ASSERT_TRUE(store_.status());
  const auto client = StoreClient::attach({.endpoint = store_.endpoint(), .model = "tiny", .client = "seer"});
  ASSERT_TRUE(client);
  const auto foresee = [&](const std::vector<wire::ForeseenBlob>& blobs) {
    flatbuffers::FlatBufferBuilder b;
    return message(b, wire::StoreBody::Foresee,
                   wire::CreateForeseeDirect(b, (*client)->slot(), (*client)->incarnation(), false, false, &blobs));
  };
  const auto first = pack_.experts_list[0];
  for (const float probability : {std::nanf(""), -0.01F, 1.01F, INFINITY, -INFINITY})
    EXPECT_THAT(refusal_of(foresee({{first, 1, 0}, {first, probability, 0}})), HasSubstr("with a probability of"));
  const auto blobs = static_cast<uint32_t>(pack_.manifest.blobs.size());
  EXPECT_THAT(refusal_of(foresee({{blobs, 1, 0}})), HasSubstr("worker 'seer' foresees blob"));
  EXPECT_THAT(refusal_of(foresee(std::vector(1025, wire::ForeseenBlob(first, 1, 0)))),
              HasSubstr("an outlook of 1025 blobs"));
  EXPECT_FALSE((*client)->try_pin(first)) << "nothing of them has been read";
  ASSERT_TRUE(socket_.send(foresee(std::vector(1024, wire::ForeseenBlob(first, 1, UINT32_MAX)))));
  ASSERT_TRUE(socket_.send(foresee({{0, 1, 0}})));  // dense weights
  EXPECT_TRUE(query_store(store_.endpoint(), std::chrono::seconds(10)));
}

/// Plans that nobody has made, layers that the model does not have: orders of reading, and nothing else.
TEST_F(StoreMessages, PlansAndLayersOutOfTheirRangeDoNoHarm) {
  ASSERT_TRUE(store_.status());
  const auto client = StoreClient::attach({.endpoint = store_.endpoint(), .model = "tiny"});
  ASSERT_TRUE(client);
  std::vector<uint32_t> all = pack_.experts_list;
  for (const uint64_t plan : {uint64_t{0}, uint64_t{UINT64_MAX}}) {
    flatbuffers::FlatBufferBuilder b;
    ASSERT_TRUE(socket_.send(message(
        b, wire::StoreBody::FetchBlobs,
        wire::CreateFetchBlobsDirect(b, (*client)->slot(), (*client)->incarnation(), plan, UINT32_MAX, &all))));
  }
  ASSERT_TRUE((*client)->fetch(all, {PlanId(UINT64_MAX), MoeLayerId(UINT32_MAX)}));
  for (size_t i = 0; i < all.size(); ++i) {
    const auto lease = (*client)->next_arrival(std::chrono::seconds(20));
    ASSERT_TRUE(lease) << lease.status().message();
    EXPECT_TRUE(pack_.holds(*lease));
  }
}

TEST_F(StoreMessages, AnotherBuildsRequestForTheStatusIsRefused) {
  ASSERT_TRUE(store_.status());
  for (const uint32_t protocol : {kStoreProtocol - 1, kStoreProtocol + 1}) {
    flatbuffers::FlatBufferBuilder b;
    const auto body = wire::CreateStoreStatusRequest(b, protocol);
    EXPECT_THAT(refusal_of(message(b, wire::StoreBody::StoreStatusRequest, body)),
                HasSubstr("a request for the status in store protocol " + std::to_string(protocol)));
  }
}

TEST_F(StoreMessages, ConfirmingWithoutTheLockIsRefused) {
  ASSERT_TRUE(store_.status());
  flatbuffers::FlatBufferBuilder b;
  ASSERT_TRUE(socket_.send(message(b, wire::StoreBody::AttachStore,
                                   wire::CreateAttachStoreDirect(b, kStoreProtocol, kSharedVersion, "tiny", "x"))));
  ASSERT_TRUE(*socket_.wait(std::chrono::seconds(10)));
  const auto bytes = *socket_.receive();
  ASSERT_TRUE(bytes);
  const auto* reply = wire::GetStoreMessage(bytes->data())->body_as_AttachedStore();
  ASSERT_NE(reply, nullptr);
  flatbuffers::FlatBufferBuilder c;
  EXPECT_THAT(refusal_of(message(c, wire::StoreBody::ConfirmAttach,
                                 wire::CreateConfirmAttach(c, reply->slot(), reply->incarnation()))),
              HasSubstr("without holding its lock"));
}

TEST_F(StoreMessages, AFloodOfBlobsOrOfAttachesIsRefusedByName) {
  ASSERT_TRUE(store_.status());
  const auto client = StoreClient::attach({.endpoint = store_.endpoint(), .model = "tiny", .client = "flooder"});
  ASSERT_TRUE(client);
  const std::vector<uint32_t> many(pack_.manifest.blobs.size() + 1, 0);
  flatbuffers::FlatBufferBuilder b;
  EXPECT_THAT(
      refusal_of(message(b, wire::StoreBody::FetchBlobs,
                         wire::CreateFetchBlobsDirect(b, (*client)->slot(), (*client)->incarnation(), 1, 0, &many))),
      HasSubstr("worker 'flooder' asked for " + std::to_string(many.size()) + " blobs at once"));
  std::string last;
  for (int i = 0; i < 20; ++i) {
    flatbuffers::FlatBufferBuilder a;
    last = refusal_of(message(a, wire::StoreBody::AttachStore,
                              wire::CreateAttachStoreDirect(a, kStoreProtocol, kSharedVersion, "tiny", "x")));
  }
  EXPECT_THAT(last, ::testing::AnyOf(HasSubstr("have begun to attach"), HasSubstr("run fewer workers")));
  const auto status = query_store(store_.endpoint(), std::chrono::seconds(10));
  ASSERT_TRUE(status);
  EXPECT_GE(status->refused, 2u);
  EXPECT_GE(status->refused_s, 0);
  EXPECT_TRUE((*client)->check());
}

TEST_F(StoreMessages, ChangesOfPacksThatMakeNoSenseAreRefused) {
  ASSERT_TRUE(store_.status());
  std::string key = testing::read_text(pack_.dir / "run" / "store.key");
  key.pop_back();  // the end of its line
  const auto change = [&](uint32_t protocol, uint8_t kind, const char* name, const char* pack) {
    flatbuffers::FlatBufferBuilder b;
    return refusal_of(message(
        b, wire::StoreBody::ChangePacks,
        wire::CreateChangePacksDirect(b, protocol, static_cast<wire::PackChange>(kind), name, pack, key.c_str())));
  };
  EXPECT_THAT(change(kStoreProtocol + 1, 0, "x", "/"), HasSubstr("run both from one build"));
  EXPECT_THAT(change(kStoreProtocol, 77, "x", "/"), HasSubstr("does not know"));
  EXPECT_THAT(change(kStoreProtocol, 0, "", "/"), HasSubstr("a model's name has"));
  EXPECT_THAT(change(kStoreProtocol, 0, "line\nbreak", "/"), HasSubstr("a model's name has"));
  EXPECT_THAT(change(kStoreProtocol, 0, std::string(129, 'x').c_str(), "/"), HasSubstr("a model's name has"));
  EXPECT_THAT(change(kStoreProtocol, 0, "x", "/dev/null"), HasSubstr("model 'x': "));
  EXPECT_THAT(change(kStoreProtocol, 0, "x", ""), HasSubstr("model 'x': "));
  EXPECT_THAT(change(kStoreProtocol, 1, "nobody", ""), HasSubstr("does not serve model 'nobody'"));
  flatbuffers::FlatBufferBuilder b;
  EXPECT_THAT(refusal_of(message(b, wire::StoreBody::ChangePacks, wire::CreateChangePacks(b, kStoreProtocol))),
              HasSubstr("without the key of this store"));
  key.back() = key.back() == '0' ? '1' : '0';
  EXPECT_THAT(change(kStoreProtocol, 0, "x", "/"), HasSubstr("without the key of this store"));
  key.clear();
  EXPECT_THAT(change(kStoreProtocol, 0, "x", "/"), HasSubstr("without the key of this store"));
}

TEST(PackOutside, NothingOutsideAPackIsReadForIt) {
  const SmallPack pack(3);
  const std::filesystem::path file = pack.dir / "pack" / pack.manifest.files[0], elsewhere = pack.dir / "elsewhere";
  std::filesystem::rename(file, elsewhere);
  std::filesystem::create_symlink(elsewhere, file);
  RunningStore store(store_options(pack, pack.dram(6)));
  EXPECT_THAT(store.status().message(), HasSubstr("is not a plain file"));
}

TEST(PackOutside, ALinkOrAPipeInPlaceOfAManifestIsRefused) {
  const SmallPack pack(3);
  const std::filesystem::path manifest = pack.dir / "pack" / "manifest", elsewhere = pack.dir / "elsewhere";
  std::filesystem::rename(manifest, elsewhere);
  std::filesystem::create_symlink(elsewhere, manifest);
  EXPECT_THAT(RunningStore(store_options(pack, pack.dram(6))).status().message(),
              HasSubstr("manifest: is not a plain file"));
  std::filesystem::remove(manifest);
  ASSERT_EQ(::mkfifo(manifest.c_str(), 0600), 0);
  EXPECT_THAT(RunningStore(store_options(pack, pack.dram(6))).status().message(),
              HasSubstr("manifest: is not a plain file"))
      << "and nobody waits for its other end";
}

TEST(RefusalLog, SaysTheFirstOnesAndThenHowManyWentUnsaid) {
  RefusalLog log;
  const auto start = RefusalLog::TimePoint{} + std::chrono::hours(1);
  for (uint32_t i = 0; i < RefusalLog::kBurst; ++i) EXPECT_EQ(log.refused(start), 0u);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(log.refused(start + std::chrono::milliseconds(1)));
  EXPECT_EQ(log.refused(start + RefusalLog::kEach), 1000u);
  EXPECT_FALSE(log.refused(start + RefusalLog::kEach));
  EXPECT_EQ(log.refused(start + std::chrono::hours(1)), 1u);
  EXPECT_EQ(log.count(), RefusalLog::kBurst + 1003u);
  EXPECT_EQ(log.last(), start + std::chrono::hours(1));
}

}  // namespace
}  // namespace moestro::store
