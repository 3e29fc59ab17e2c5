// What a worker says of a host of several NUMA nodes.

#include "services/worker/memory_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

MemoryPlaces on_gpu() {
  return {.nodes = {0, 1},
          .device = "cuda:1",
          .gpu = 1,
          .threads = {1},
          .threads_stay = false,
          .arena = {{0, 256}, {1, 256}}};
}

TEST(MemoryPlaces, OnOneNodeThereIsNothingToSay) {
  MemoryPlaces places = on_gpu();
  places.nodes = {0};
  EXPECT_EQ(report_places(places).line, "");
  EXPECT_FALSE(report_places(places).remote);
}

TEST(MemoryPlaces, WeightsThatAreSpreadAreNotRemote) {
  const PlacesReport report = report_places(on_gpu());
  EXPECT_EQ(report.line, "cuda:1 is at NUMA node 1, threads on NUMA node 1, weights on node 0 50 %, node 1 50 %");
  EXPECT_FALSE(report.remote);
}

TEST(MemoryPlaces, WeightsOnAnotherNodeAreNamedWithWhatMendsIt) {
  MemoryPlaces places = on_gpu();
  places.arena = {{0, 512}};
  const PlacesReport report = report_places(places);
  EXPECT_TRUE(report.remote);
  EXPECT_THAT(report.line,
              AllOf(HasSubstr("weights on node 0 100 %"), HasSubstr("--numa 1 of the store, or --numa 0-1")));
  places.arena = {{0, 384}, {1, 128}};
  EXPECT_FALSE(report_places(places).remote) << "half of what there would be when spread";
  places.arena = {{0, 385}, {1, 127}};
  EXPECT_TRUE(report_places(places).remote);
}

TEST(MemoryPlaces, ThreadsFarFromTheirGpuAreNamed) {
  MemoryPlaces places = on_gpu();
  places.threads = {0};
  const PlacesReport report = report_places(places);
  EXPECT_TRUE(report.remote);
  EXPECT_THAT(report.line, HasSubstr("far from their GPU: --numa-node 1"));
  places.threads = {0, 1};
  EXPECT_FALSE(report_places(places).remote);
  EXPECT_THAT(report_places(places).line, HasSubstr("threads on NUMA nodes 0-1"));
}

TEST(MemoryPlaces, WhatNobodyKnowsIsNoFault) {
  MemoryPlaces places = on_gpu();
  places.arena.clear();
  EXPECT_FALSE(report_places(places).remote);
  EXPECT_THAT(report_places(places).line, ::testing::Not(HasSubstr("weights")));
  places = on_gpu();
  places.gpu.reset(), places.arena = {{0, 512}};
  EXPECT_FALSE(report_places(places).remote);
  EXPECT_THAT(report_places(places).line, HasSubstr("cuda:1 is at a NUMA node that the machine does not name"));
}

TEST(MemoryPlaces, AWorkerOnOneNodesCpusWantsItsWeightsThere) {
  MemoryPlaces places{
      .nodes = {0, 1}, .device = "", .gpu = {}, .threads = {1}, .threads_stay = false, .arena = {{0, 512}}};
  EXPECT_TRUE(report_places(places).remote);
  places.threads = {0, 1};
  EXPECT_FALSE(report_places(places).remote) << "it runs on both";
}

TEST(MemoryPlaces, AWorkerOnSeveralNodesSaysWhetherWhatLiesOnOneIsComputedThere) {
  MemoryPlaces places{
      .nodes = {0, 1}, .device = "", .gpu = {}, .threads = {0, 1}, .threads_stay = true, .arena = {{0, 256}, {1, 256}}};
  EXPECT_EQ(report_places(places).line,
            "threads on NUMA nodes 0-1, weights on node 0 50 %, node 1 50 %; what lies on a node is computed there");
  places.threads_stay = false;
  EXPECT_THAT(report_places(places).line,
              HasSubstr("; no thread keeps to a node, so any computes any: see --pin-threads"));
  places.threads_stay = true, places.arena = {{0, 512}};
  EXPECT_THAT(report_places(places).line,
              HasSubstr("; each thread computes what lies on its node first, then what is left"));
  places.arena = {{0, 256}, {2, 256}};
  EXPECT_THAT(report_places(places).line,
              HasSubstr("; each thread computes what lies on its node first, then what is left"));
  places.arena.clear();
  EXPECT_EQ(
      report_places(places).line,
      "threads on NUMA nodes 0-1; the kernel does not tell where weights lie (move_pages), so any thread computes any");
}

}  // namespace
}  // namespace moestro::worker
