# docker build -t evenshare .
# docker run -p 8080:8080 -e EVENSHARE_API_KEY=sesame -v evenshare:/data evenshare
# docker run --rm -v evenshare:/data evenshare pull hf:Qwen/Qwen3-4B-GGUF
FROM debian:12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends cmake ninja-build gcc libc6-dev pkg-config dpkg-dev file \
    libjansson-dev libevent-dev libpcre2-dev libutf8proc-dev libedit-dev libcurl4-openssl-dev
COPY . /evenshare
WORKDIR /evenshare
RUN cmake --preset package && cmake --build build/package && cpack --config build/package/CPackConfig.cmake -B build/package

FROM debian:12-slim
COPY --from=build /evenshare/build/package/evenshare_*.deb /tmp/
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates /tmp/evenshare_*.deb \
    && rm -rf /tmp/evenshare_*.deb /var/lib/apt/lists/* \
    && useradd --system --create-home --home-dir /data evenshare
USER evenshare
WORKDIR /data
ENV ES_MODELS=/data/models XDG_CACHE_HOME=/data/cache EVENSHARE_HOST=0.0.0.0
EXPOSE 8080
ENTRYPOINT ["evenshare"]
CMD ["serve"]
