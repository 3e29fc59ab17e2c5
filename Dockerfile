# One image with the four programs. BuildKit builds it (Docker 23 and later by itself, earlier with DOCKER_BUILDKIT=1):
#   docker build -t moestro .
#   docker build -t moestro:cuda --build-arg DEVEL=nvidia/cuda:12.6.3-devel-ubuntu22.04 --build-arg BASE=nvidia/cuda:12.6.3-base-ubuntu22.04 --build-arg CUDA=ON .
# Its plugin is built with the toolkit of DEVEL: CUDA 12 runs on NVIDIA's drivers from 525 on, CUDA 13 on those from 580 on.
# DEVEL and BASE are of one release of Debian (12) or Ubuntu (22.04 or later). JOBS: compile jobs at once, about 1 GB of memory each.
ARG BASE=debian:bookworm-slim
ARG DEVEL=$BASE

FROM $DEVEL AS build
ARG CUDA=OFF
ARG JOBS=2
WORKDIR /src
COPY scripts/install-deps scripts/has-libfuzzer scripts/
RUN scripts/install-deps build && rm -rf /var/lib/apt/lists/*
COPY . .
# The preset that the tests run on. The compiler's cache outlives the layer, so that a changed source costs what it changed.
RUN --mount=type=cache,target=/root/.cache/ccache \
    cmake --preset dev -DMOESTRO_TESTS=OFF -DMOESTRO_CUDA=$CUDA && \
    cmake --build build/dev -j"$JOBS" --target moestro moestro-store moestro-worker moestro-orchestrator $([ "$CUDA" = OFF ] || echo moestro_cuda) && \
    mkdir -p /out/bin && \
    cp build/dev/bin/moestro build/dev/bin/moestro-* $([ "$CUDA" = OFF ] || echo build/dev/bin/libmoestro_cuda.so) /out/bin/ && \
    strip /out/bin/*
# The packages that the programs' libraries are in, by the names of this release.
RUN ldd /out/bin/* | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u | xargs -n1 readlink -f | \
    while read -r file; do dpkg-query -S "$file" 2>/dev/null || dpkg-query -S "${file#/usr}"; done | cut -d: -f1 | sort -u >/out/packages

FROM $BASE
# The store has a user of its own: its files are read-only for the others by their very mode, and it alone may lock memory.
RUN groupadd -g 10000 moestro && \
    useradd -u 10001 -g moestro -M -d /nonexistent -s /usr/sbin/nologin moestro-store && \
    useradd -u 10002 -g moestro -M -d /nonexistent -s /usr/sbin/nologin moestro
# Files and batches of the orchestrator: a volume that is mounted here gets this owner.
RUN install -d -o 10002 -g 10000 -m 0750 /var/lib/moestro
COPY --from=build /out/packages /tmp/packages
RUN apt-get update -qq && \
    DEBIAN_FRONTEND=noninteractive xargs -a /tmp/packages apt-get install -y -qq --no-install-recommends libcap2-bin && \
    rm -rf /var/lib/apt/lists/* /tmp/packages
COPY --from=build /out/bin/ /usr/local/bin/
# Permitted, not effective: the store raises it itself, and starts without it where the container does not grant it.
RUN setcap cap_ipc_lock+p /usr/local/bin/moestro-store
USER moestro
ENTRYPOINT []
CMD ["moestro", "--help"]
