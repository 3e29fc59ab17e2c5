#include "orchestrator/http/connection_places.h"

#include <gtest/gtest.h>

namespace moestro::orchestrator {
namespace {

using Doing = ConnectionPlaces::Doing;
const Peer kHere{"127.0.0.1", true}, kAnn{"10.0.0.1", false}, kBob{"10.0.0.2", false};

TEST(ConnectionPlaces, WhoHasWaitedLongestGoesForANewOne) {
  ConnectionPlaces places(3, 0, 3);
  for (ConnectionPlaces::Id id = 1; id <= 3; ++id) EXPECT_FALSE(places.enter(id, kAnn).sent_away);
  places.does(1, Doing::kAnswered);
  EXPECT_EQ(places.enter(4, kAnn).sent_away, 2u) << "what is answered stays";
  places.does(1, Doing::kWaiting);
  EXPECT_EQ(places.enter(5, kAnn).sent_away, 3u) << "the first waits only since its answer";
  EXPECT_EQ(places.count(), 3u);
}

TEST(ConnectionPlaces, WhoSendsGoesAfterAllThatWait) {
  ConnectionPlaces places(2, 0, 2);
  places.enter(1, kAnn);
  places.does(1, Doing::kSending);
  places.enter(2, kAnn);
  EXPECT_EQ(places.enter(3, kAnn).sent_away, 2u);
  places.does(3, Doing::kAnswered);
  EXPECT_EQ(places.enter(4, kAnn).sent_away, 1u);
}

TEST(ConnectionPlaces, NobodyGoesWhereAllAreAnswered) {
  ConnectionPlaces places(2, 0, 2);
  for (ConnectionPlaces::Id id = 1; id <= 2; ++id) places.enter(id, kAnn), places.does(id, Doing::kAnswered);
  EXPECT_TRUE(places.enter(3, kBob).refused);
  EXPECT_EQ(places.count(), 2u);
  places.leave(1);
  EXPECT_FALSE(places.enter(4, kBob).refused);
}

TEST(ConnectionPlaces, TheAddressThatHasTheMostGivesUpAPlace) {
  ConnectionPlaces places(4, 0, 4);
  places.enter(1, kBob);
  for (ConnectionPlaces::Id id = 2; id <= 4; ++id) places.enter(id, kAnn);
  EXPECT_EQ(places.enter(5, kBob).sent_away, 2u) << "though another has waited longer";
  EXPECT_EQ(places.enter(6, kAnn).sent_away, 3u) << "of as many on both sides it is the newcomer's own";
  for (const ConnectionPlaces::Id id : {4, 6}) places.does(id, Doing::kAnswered);
  EXPECT_TRUE(places.enter(7, kAnn).refused) << "nobody goes for one that would then have more";
}

TEST(ConnectionPlaces, OneAddressHasItsMostAndThisHostItsPlaces) {
  ConnectionPlaces places(8, 2, 4);
  ConnectionPlaces::Id id = 0;
  const auto come = [&](const Peer& peer) {
    const auto entry = places.enter(++id, peer);
    places.does(id, Doing::kAnswered);
    return !entry.refused;
  };
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(come(kAnn));
  EXPECT_FALSE(come(kAnn));
  EXPECT_TRUE(come(kBob));
  EXPECT_TRUE(come(kBob));
  EXPECT_FALSE(come(kBob)) << "the last two are kept";
  EXPECT_TRUE(come(kHere));
  EXPECT_TRUE(come(kHere));
  EXPECT_FALSE(come(kHere));
}

TEST(ConnectionPlaces, LeavingTwiceAndWhatASentAwayOneDoesChangeNothing) {
  ConnectionPlaces places(1, 0, 1);
  places.enter(1, kAnn);
  EXPECT_EQ(places.enter(2, kAnn).sent_away, 1u);
  places.does(1, Doing::kAnswered);
  places.leave(1);
  places.leave(1);
  EXPECT_EQ(places.count(), 1u);
  EXPECT_EQ(places.enter(3, kAnn).sent_away, 2u);
}

}  // namespace
}  // namespace moestro::orchestrator
